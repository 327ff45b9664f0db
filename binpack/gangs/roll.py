"""Which members of each gang are there, which are placed, and whether enough of them wait to be placed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fleet import labels
from fleet.pod import Phase, Pod

Key = tuple[str, str]  # namespace and name of a gang


class Call(Enum):
    """How a gang stands."""

    WHOLE = "whole"  # enough members wait: they can be placed together now
    ENOUGH = "enough"  # as many are placed as the gang needs: whoever waits is placed like any other pod
    INCOMPLETE = "incomplete"  # members are missing
    UNKNOWN = "unknown"  # nobody says yet how many it needs: its PodGroup is not there
    AT_ODDS = "at-odds"  # its members tell different sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A PodGroup.

    Attributes:
        size: Members that must be placed together (`schedulingPolicy.gang.minCount`); 0 = the basic policy, no gang.
    """

    namespace: str
    name: str
    size: int

    @property
    def key(self) -> Key:
        """Return the key of its gang."""
        return self.namespace, labels.POD_GROUP_PREFIX + self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A gang as it is now.

    Attributes:
        size: Members that must be placed together; 0 where nobody says.
        placed: Members that are placed, or were until they ended well.
        ready: Gated members that could be placed now, the oldest first, by name within.
        needed: How many of them must be placed together: what the placed ones leave of the size.
    """

    key: Key
    call: Call
    size: int
    placed: int
    ready: tuple[Pod, ...]

    @property
    def needed(self) -> int:
        """Return how many more members must be placed together."""
        return max(0, self.size - self.placed)

    @property
    def unit(self) -> tuple[Pod, ...]:
        """Return the members to place together; the others follow once these are placed."""
        return self.ready[: self.needed] if self.call is Call.WHOLE else ()

    @property
    def text(self) -> str:
        """Return how the gang stands, with the numbers."""
        name = self.key[1].removeprefix(labels.POD_GROUP_PREFIX)
        match self.call:
            case Call.UNKNOWN:
                return f"PodGroup {name} is not there, so nobody knows how many members it needs"
            case Call.AT_ODDS:
                return f"members of gang {name} tell different sizes in the label {labels.GANG_SIZE}"
            case _:
                here = self.placed + len(self.ready)
                return f"gang {name} needs {self.size} members at once; there are {here} so far"


class _Gang:
    """The members of one gang, and sums over them, kept up to date one by one: gangs may have thousands."""

    __slots__ = ("_ended", "_live", "members", "placed", "ready", "sizes")

    def __init__(self) -> None:
        self.members: dict[str, Pod] = {}
        self.placed = 0
        self.sizes: Counter[int] = Counter()
        self.ready: tuple[Pod, ...] | None = None
        self._live: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()

    def set(self, pod: Pod) -> None:
        """Take a new or changed member."""
        self.drop(pod.uid)
        self.members[pod.uid] = pod
        self._count(pod, 1)

    def drop(self, uid: str) -> None:
        """Forget a member."""
        pod = self.members.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)

    @property
    def ended_well(self) -> int:
        """Return how many members had their place and ended well, of owners that still have others.

        Those of an earlier run under the same name are no members of this one.
        """
        return sum(many for owner, many in self._ended.items() if self._live[owner])

    def _count(self, pod: Pod, more: int) -> None:
        self.ready = None
        self.placed += more * _is_placed(pod)
        if pod.is_live and not pod.is_terminating:
            _add(self.sizes, pod.gang_size, more)
        if pod.owner is not None:
            if pod.is_live:
                _add(self._live, pod.owner.uid, more)
            elif pod.phase is Phase.SUCCEEDED:
                _add(self._ended, pod.owner.uid, more)


def _add(counts: Counter[Any], what: object, more: int) -> None:
    counts[what] += more
    if not counts[what]:
        del counts[what]


_NOBODY = _Gang()


class Roll:
    """All gangs by their members; moved by single objects in any order."""

    def __init__(self) -> None:
        self._gangs: dict[Key, _Gang] = {}
        self._key_of: dict[str, Key] = {}
        self._groups: dict[Key, Group] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._gangs)

    def seen(self, pod: Pod) -> tuple[Key, ...]:
        """Take a new or changed pod; return the gangs that may stand otherwise now: two where it changed its gang."""
        key, before = key_of(pod), self._key_of.get(pod.uid)
        if before is not None and before != key:
            self.gone(pod.uid)
            return (before, *self.seen(pod))
        if key is None:
            return ()
        self._key_of[pod.uid] = key
        gang = self._gangs.setdefault(key, _Gang())
        known = gang.members.get(pod.uid)
        gang.set(pod)
        return (key,) if known is None or _what_counts(known) != _what_counts(pod) else ()

    def gone(self, uid: str) -> Key | None:
        """Forget a pod whose object is gone; return the gang that lost it."""
        key = self._key_of.pop(uid, None)
        if key is not None:
            gang = self._gangs[key]
            gang.drop(uid)
            if not gang.members:
                del self._gangs[key]
        return key

    def group_seen(self, group: Group) -> Key:
        """Take a new or changed PodGroup; return its gang."""
        self._groups[group.key] = group
        return group.key

    def group_gone(self, namespace: str, name: str) -> Key:
        """Forget a PodGroup; return its gang."""
        key = (namespace, labels.POD_GROUP_PREFIX + name)
        self._groups.pop(key, None)
        return key

    def members(self, key: Key) -> tuple[Pod, ...]:
        """Return all members of a gang, in no order."""
        return tuple(self._gangs.get(key, _NOBODY).members.values())

    def size(self, key: Key) -> int | None:
        """Return how many members a gang needs at once; 0 = it is none, None = nobody says."""
        size, call = self._size(key)
        return None if call is Call.UNKNOWN else size

    def ended_well(self, key: Key) -> int:
        """Return how many members of a gang had their place and ended well, which leaves that many fewer to run."""
        return self._gangs.get(key, _NOBODY).ended_well

    def is_alone(self, pod: Pod) -> bool:
        """Return True if the pod is placed like any other: it has no gang, or its gang stands already."""
        key = key_of(pod)
        return key is None or self.is_enough(key)

    def is_enough(self, key: Key) -> bool:
        """Return True if as many members are placed as the gang needs."""
        size, call = self._size(key)
        return call is None and self._placed(key) >= size

    def has_begun(self, key: Key) -> bool:
        """Return True if some member of a gang is placed, or was until it ended well."""
        return self._placed(key) > 0

    def standing(self, key: Key) -> Standing:
        """Return how a gang stands."""
        gang, placed = self._gangs.get(key, _NOBODY), self._placed(key)
        ready = gang.ready
        if ready is None:
            waiting = filter(_is_ready, gang.members.values())
            ready = gang.ready = tuple(sorted(waiting, key=lambda pod: (pod.created_at_s, pod.name)))
        size, call = self._size(key)
        if call is None:
            is_whole = placed + len(ready) >= size
            call = Call.ENOUGH if placed >= size else Call.WHOLE if is_whole else Call.INCOMPLETE
        return Standing(key=key, call=call, size=size, placed=placed, ready=ready)

    def _size(self, key: Key) -> tuple[int, Call | None]:
        if key[1].startswith(labels.POD_GROUP_PREFIX):
            group = self._groups.get(key)
            return (0, Call.UNKNOWN) if group is None else (group.size, None)
        told = self._gangs.get(key, _NOBODY).sizes
        return (max(told, default=0), Call.AT_ODDS if len(told) > 1 else None)

    def _placed(self, key: Key) -> int:
        gang = self._gangs.get(key, _NOBODY)
        return gang.placed + gang.ended_well


def key_of(pod: Pod) -> Key | None:
    """Return the gang of a pod."""
    return (pod.namespace, pod.gang) if pod.gang else None


def _what_counts(pod: Pod) -> tuple[object, ...]:
    return (
        pod.gates,
        pod.seat,
        pod.node_name,
        pod.phase,
        pod.is_terminating,
        pod.gang_size,
        pod.problems,
        pod.requests,
        pod.ask,
        pod.constraints,
        pod.resource_claims,
    )


def _is_ready(pod: Pod) -> bool:
    is_ours = pod.gates == (labels.PLAN_GATE,) and not pod.node_name
    return is_ours and pod.is_live and not pod.is_terminating and not pod.problems


def _is_placed(pod: Pod) -> bool:
    """Return True for a member that has its place; one that leaves has none."""
    return pod.is_live and not pod.is_terminating and not pod.gates
