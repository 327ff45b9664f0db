"""Pods that have a berth, by node and by controller, and those being moved: what the ledger does not keep. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from binpack.books import is_agent
from fleet.pod import Pod


class Tenants:
    """Bound and pinned pods, moved by single objects in any order.

    Those that are part of their node count on it, and are nobody who could be asked to leave.

    Attributes:
        moving: Those that are being moved.
        moved: Those that take the place of one, until its move is over.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, dict[str, Pod]] = {}
        self._of_owner: dict[str, dict[str, Pod]] = {}
        self._priorities: Counter[int] = Counter()
        self.moving: dict[str, Pod] = {}
        self.moved: dict[str, Pod] = {}

    def seen(self, pod: Pod) -> None:
        """Take a new or changed pod."""
        self.gone(pod.uid)
        node = node_of(pod)
        if not node or not pod.is_live:
            return
        self._pods[pod.uid] = pod
        self._on.setdefault(node, {})[pod.uid] = pod
        self._priorities[pod.priority] += 1
        if is_agent(pod):
            return
        if pod.owner is not None:
            self._of_owner.setdefault(pod.owner.uid, {})[pod.uid] = pod
        if pod.moving_to is not None:
            self.moving[pod.uid] = pod
        if pod.moved_from and pod.moving_by:
            self.moved[pod.uid] = pod

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        _leave(self._on, node_of(pod), uid)
        if pod.owner is not None:
            _leave(self._of_owner, pod.owner.uid, uid)
        self._priorities[pod.priority] -= 1
        if not self._priorities[pod.priority]:
            del self._priorities[pod.priority]
        self.moving.pop(uid, None)
        self.moved.pop(uid, None)

    def __iter__(self) -> Iterator[Pod]:
        return (pod for pod in self._pods.values() if not is_agent(pod))

    def get(self, uid: str) -> Pod | None:
        """Return the pod, None where it has no berth or is part of its node."""
        pod = self._pods.get(uid)
        return None if pod is None or is_agent(pod) else pod

    def of_owner(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods of one controller, by name."""
        return tuple(sorted(self._of_owner.get(uid, _NOBODY).values(), key=lambda pod: pod.name))

    def on(self, node: str) -> Mapping[str, Pod]:
        """Return the pods of a node by uid, those that are part of it included; not to be changed."""
        return self._on.get(node, _NOBODY)

    @property
    def least_priority(self) -> int:
        """Return the lowest priority of anybody here; far above all where there is nobody."""
        return min(self._priorities, default=2**31)

    def below(self, node: str, priority: int) -> list[Pod]:
        """Return the pods of a node that may be made to go for this priority, in the order in which they should.

        Agents of the node come back at once, so they stay. The least important go first, of these the youngest.
        """
        found = [
            pod
            for pod in self.on(node).values()
            if pod.priority < priority and not pod.is_terminating and not is_agent(pod)
        ]
        return sorted(found, key=lambda pod: (pod.priority, -pod.created_at_s, pod.uid))


def node_of(pod: Pod) -> str:
    """Return the node where a pod has its berth, bound or pinned; "" = none."""
    return pod.node_name or ("" if pod.gates else pod.pinned_node)


def _leave(table: dict[str, dict[str, Pod]], key: str, uid: str) -> None:
    pods = table.get(key)
    if pods is not None and pods.pop(uid, None) is not None and not pods:
        del table[key]


_NOBODY: Mapping[str, Pod] = {}
