"""Who is on which node, of the whole cluster, as the verifier counts it; shares no line with the index."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from binpack.state import NodeState
from fleet.company import Guest
from fleet.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """Who was where at one time, and what was known of nodes and namespaces; equal where all of that is."""

    nodes: Mapping[str, Node]
    guests: Mapping[str, tuple[Guest, ...]]
    namespaces: Mapping[str, Mapping[str, str]]


class Register:
    """Who is on which node, of the whole cluster; kept beside the plans so that each is judged against all of it."""

    def __init__(self, states: Iterable[NodeState] = ()) -> None:
        self.nodes: dict[str, Node] = {}
        self.on: dict[str, Counter[Guest]] = {}
        self.where: defaultdict[Guest, Counter[str]] = defaultdict(Counter)
        self.averse: dict[Guest, None] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.counting: dict[Hashable, dict[str, str]] = {}
        self._guests: dict[str, tuple[Guest, ...]] = {}
        for state in states:
            self.set_node(state)

    def set_node(self, state: NodeState) -> None:
        """Take a node as it is now."""
        self._set(state.node, state.guests)

    def remove_node(self, name: str) -> None:
        """Forget a node."""
        if self.nodes.pop(name, None) is not None:
            self.counting.clear()
            self._replace(name, ())

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Learn the labels of a namespace; None = it is gone."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels

    def roll(self) -> Roll:
        """Return all of it as it is now; O(nodes), and nothing that comes later moves it."""
        return Roll(nodes=dict(self.nodes), guests=dict(self._guests), namespaces=dict(self.namespaces))

    @contextmanager
    def as_of(self, roll: Roll) -> Iterator[None]:
        """Be what it was at an earlier time, and on leaving what it is now; costs as much as has changed since."""
        now = self.roll()
        self._become(roll)
        try:
            yield
        finally:
            self._become(now)

    def _become(self, roll: Roll) -> None:
        for name in self.nodes.keys() - roll.nodes.keys():
            self.remove_node(name)
        for name, node in roll.nodes.items():
            guests = roll.guests.get(name, ())
            if self.nodes.get(name) is not node or self._guests.get(name, ()) is not guests:
                self._set(node, guests)
        self.namespaces = dict(roll.namespaces)

    def _set(self, node: Node, guests: tuple[Guest, ...]) -> None:
        name = node.name
        before = self.nodes.get(name)
        if before is not node:
            if before is None or before.labels != node.labels or before.taints != node.taints:
                self.counting.clear()
            self.nodes[name] = node
        if self._guests.get(name) != guests:
            self._replace(name, guests)

    def _replace(self, name: str, guests: tuple[Guest, ...]) -> None:
        for guest in self._guests.pop(name, ()):
            there = self.where[guest]
            there[name] -= 1
            if not there[name]:
                del there[name]
            if not there:
                del self.where[guest]
                self.averse.pop(guest, None)
        if guests:
            self._guests[name] = guests
        self.on[name] = Counter(guests)
        for guest in guests:
            self.where[guest][name] += 1
            if guest.anti:
                self.averse[guest] = None
