"""The pods that hold something, by node: their priority, budgets and owners, which the ledger's sums do not keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from binpack.books import is_agent
from fleet.pod import Pod


class Tenants:
    """Bound and pinned pods by node, moved by single objects in any order."""

    def __init__(self) -> None:
        self._on: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self._priorities: Counter[int] = Counter()

    def seen(self, pod: Pod) -> None:
        """Take a new or changed pod."""
        node = pod.node_name or ("" if pod.gates else pod.pinned_node)
        if not node or not pod.is_live:
            self.gone(pod.uid)
            return
        self.gone(pod.uid)
        self._node_of[pod.uid] = node
        self._on.setdefault(node, {})[pod.uid] = pod
        self._priorities[pod.priority] += 1

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            on_node = self._on[node]
            priority = on_node.pop(uid).priority
            self._priorities[priority] -= 1
            if not self._priorities[priority]:
                del self._priorities[priority]
            if not on_node:
                del self._on[node]

    @property
    def least_priority(self) -> int:
        """Return the lowest priority of anybody here; far above all where there is nobody."""
        return min(self._priorities, default=2**31)

    def on(self, node: str) -> Mapping[str, Pod]:
        """Return the pods of a node by uid; not to be changed."""
        return self._on.get(node, _NOBODY)

    def below(self, node: str, priority: int) -> list[Pod]:
        """Return the pods of a node that may be made to go for this priority, in the order in which they should.

        Agents of the node come back at once, so they stay. The least important go first, of these the youngest.
        """
        found = [
            pod
            for pod in self._on.get(node, _NOBODY).values()
            if pod.priority < priority and not pod.is_terminating and not is_agent(pod)
        ]
        return sorted(found, key=lambda pod: (pod.priority, -pod.created_at_s, pod.uid))


_NOBODY: Mapping[str, Pod] = {}
