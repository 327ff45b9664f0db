"""Counts the replayed pods on their way from created to bound, from watch events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fleet import labels
from fleet.kube.objects import MetaObject


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None
    scheduling_gates: list[_Gate] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: list[_Condition] | None = None


class PodSeen(msgspec.Struct, gc=False):
    """The little of a pod that the board needs."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """Where all pods stand: each is on its way, bound or waiting."""

    created: int
    bound: int
    waiting: dict[str, int]

    @property
    def on_the_way(self) -> int:
        """Return how many were created and are neither bound nor told to wait."""
        return self.created - self.bound - sum(self.waiting.values())


class Board:
    """A sink for the pod watch. Times are this process's own, on one monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._created_s: dict[str, float] = {}
        self._bound_s: dict[str, float] = {}
        self._waiting: dict[str, tuple[str, str]] = {}
        self._deleted = 0

    def created(self, uid: str) -> None:
        """Note that the API has answered the creation."""
        self._created_s[uid] = self._now_s()

    def upsert(self, obj: PodSeen) -> None:
        """Take a watch event."""
        uid = obj.metadata.uid
        if obj.spec.node_name:
            self._bound_s.setdefault(uid, self._now_s())
            self._waiting.pop(uid, None)
        if uid in self._bound_s:
            return
        condition = next(
            (c for c in obj.status.conditions or () if c.type == labels.WAITING_CONDITION and c.status == "True"), None
        )
        if condition is not None and obj.spec.scheduling_gates:
            self._waiting[uid] = (condition.reason, condition.message)
        else:
            self._waiting.pop(uid, None)

    def delete(self, obj: PodSeen) -> None:
        """Count a deletion: the replay deletes nothing, so somebody else did."""
        self._deleted += 1
        for pods in (self._created_s, self._bound_s, self._waiting):
            pods.pop(obj.metadata.uid, None)

    def synced(self) -> None:
        """Nothing to do: the watch starts before the first pod."""

    @property
    def deleted(self) -> int:
        """Return how many pods were deleted."""
        return self._deleted

    @property
    def standings(self) -> Standings:
        """Return where all pods stand now."""
        return Standings(
            created=len(self._created_s),
            bound=len(self._bound_s),
            waiting=dict(Counter(reason for reason, _ in self._waiting.values()).most_common()),
        )

    @property
    def waiting_messages(self) -> tuple[str, ...]:
        """Return what the waiting pods say, most frequent first."""
        return tuple(text for text, _ in Counter(message for _, message in self._waiting.values()).most_common())

    @property
    def last_bound_s(self) -> float | None:
        """Return when the last pod was seen bound, None before the first."""
        return max(self._bound_s.values(), default=None)

    @property
    def latencies_s(self) -> tuple[float, ...]:
        """Return created-to-bound times of all bound pods, sorted."""
        return tuple(
            sorted(
                max(0.0, bound_s - self._created_s[uid])
                for uid, bound_s in self._bound_s.items()
                if uid in self._created_s
            )
        )


def quantile(ordered: tuple[float, ...], q: float) -> float | None:
    """Return the q-quantile (nearest rank) of sorted values, None of none."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
