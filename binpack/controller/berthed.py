"""Pods that have a berth and might be asked to leave it: what the ledger's sums do not keep of them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from binpack.books import is_agent
from fleet.pod import Pod


class Berthed:
    """Bound and pinned pods by uid, but for those that are part of their node.

    Attributes:
        moving: Those that are being moved.
        moved: Those that take the place of one, until its move is over.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._of_owner: dict[str, set[str]] = {}
        self.moving: dict[str, Pod] = {}
        self.moved: dict[str, Pod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def seen(self, pod: Pod) -> None:
        """Take a new or changed pod."""
        has_berth = pod.node_name or (pod.pinned_node and not pod.gates)
        if not (has_berth and pod.is_live) or is_agent(pod):
            self.gone(pod.uid)
            return
        self._pods[pod.uid] = pod
        if pod.owner is not None:
            self._of_owner.setdefault(pod.owner.uid, set()).add(pod.uid)
        _note(self.moving, pod, is_in=pod.moving_to is not None)
        _note(self.moved, pod, is_in=bool(pod.moved_from and pod.moving_by))

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        pod = self._pods.pop(uid, None)
        self.moving.pop(uid, None)
        self.moved.pop(uid, None)
        if pod is not None and pod.owner is not None:
            others = self._of_owner[pod.owner.uid]
            others.discard(uid)
            if not others:
                del self._of_owner[pod.owner.uid]

    def of_owner(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods of one controller, by name."""
        return tuple(sorted((self._pods[one] for one in self._of_owner.get(uid, ())), key=lambda pod: pod.name))

    def get(self, uid: str) -> Pod | None:
        """Return the pod, None where it has no berth or is part of its node."""
        return self._pods.get(uid)


def _note(table: dict[str, Pod], pod: Pod, *, is_in: bool) -> None:
    if is_in:
        table[pod.uid] = pod
    else:
        table.pop(pod.uid, None)
