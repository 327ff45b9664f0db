"""Which warm pool serves a pod: judged on an empty node of the pool's shape, so that it holds while there is none."""

from __future__ import annotations

from dataclasses import replace

from binpack.fit import mismatch, missing
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet.constraints import Mismatch
from fleet.node import Node
from fleet.pod import Pod
from fleet.pool import Pool

_KEPT = 4096


class Pools:
    """The pools there are. Answers are kept by what the pod wishes, until a pool changes."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._empty: dict[str, NodeState] = {}
        self._seen: dict[str, Node] = {}
        self._known: dict[tuple[object, ...], Pool | None] = {}

    def __len__(self) -> int:
        return len(self._pools)

    def set_pool(self, pool: Pool) -> bool:
        """Take a new or changed pool; True if that changes anything."""
        if self._pools.get(pool.name) == pool:
            return False
        self._pools[pool.name] = pool
        self._renew(pool.name)
        return True

    def remove_pool(self, name: str) -> bool:
        """Forget a pool; True if it was known."""
        self._seen.pop(name, None)
        self._empty.pop(name, None)
        self._known.clear()
        return self._pools.pop(name, None) is not None

    def saw(self, node: Node) -> None:
        """Learn from a real node of a pool what the pool's shape does not tell: its labels, its true amounts.

        The first that is whole will do: a shape does not change between nodes, and a node that is still starting tells
        less than the shape.
        """
        pool = self._pools.get(node.pool)
        if pool is None or node.pool in self._seen or not node.warm:
            return
        self._seen[node.pool] = node
        self._renew(node.pool)

    def get(self, name: str) -> Pool | None:
        """Return a pool by name."""
        return self._pools.get(name)

    def owner(self, pod: Pod) -> Pool | None:
        """Return the pool whose miss it is when this pod finds no room; None = none's.

        It is a pool that names the pod, or holds one of its images; and one of whose nodes, empty, could take it. Those
        that order come before those that only observe; then who names it; then who holds most of its images; then the
        first by name.
        """
        if not self._pools or pod.problems:
            return None
        asked = (pod.requests, pod.ask, pod.constraints, pod.images, pod.namespace, tuple(sorted(pod.labels.items())))
        if asked not in self._known:
            if len(self._known) > _KEPT:
                self._known.clear()
            self._known[asked] = self._owner(pod)
        return self._known[asked]

    def _owner(self, pod: Pod) -> Pool | None:
        ranked: list[tuple[bool, bool, int, str]] = []
        for name, pool in self._pools.items():
            is_named, held = pool.names(pod), pool.holds(pod.images)
            if (is_named or held) and self._could_take(name, pod):
                ranked.append((not pool.is_acting, not is_named, -held, name))
        return self._pools[min(ranked)[-1]] if ranked else None

    def _could_take(self, name: str, pod: Pod) -> bool:
        empty = self._empty[name]
        if missing(pod, empty):
            return False
        why = mismatch(pod, empty.node)
        if why is None:
            return True
        if name in self._seen or why is Mismatch.TAINT:
            return False
        return not _contradicts(pod, empty.node)

    def _renew(self, name: str) -> None:
        self._known.clear()
        node = self._seen.get(name, self._pools[name].template)
        ledger = Ledger()
        ledger.set_node(replace(node, taints=(), is_cordoned=False))
        state = ledger.state(node.name)
        assert state is not None
        self._empty[name] = state


def _contradicts(pod: Pod, node: Node) -> bool:
    """Return True if labels that the shape tells rule the pod out; of those it does not tell nobody knows yet."""
    wish = pod.constraints
    if any(key in node.labels and node.labels[key] != text for key, text in wish.node_selector):
        return True
    if wish.terms is None:
        return False
    return not any(
        all(r.key not in node.labels or r.accepts(node.labels[r.key]) for r in term.labels)
        for term in wish.terms
        if not term.fields and term.labels
    )
