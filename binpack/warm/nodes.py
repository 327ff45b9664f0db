"""Warm nodes and their own index: serving nodes are asked first because warm ones are not among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from binpack.company import Company
from binpack.demand import hardest_first
from binpack.dra.desk import Desk
from binpack.index import Index
from binpack.state import NodeState
from binpack.warm.pools import Pools
from fleet import labels
from fleet.image import full_name
from fleet.plan import Placement
from fleet.pod import Pod

Ints = npt.NDArray[np.int64]

_NEVER = -1
_SLACK = 64
_PER_IMAGE = 2  # one more of the pod's images counts for more than a node that is begun already


class WarmNodes:
    """The nodes that this planner may draw: open ones, and those it has claimed and not filled.

    Nodes are ranked for each pod: most of the pod's images first, then nodes that others of ours go to already (one
    node serves as many replicas as fit), then the index's cost. A pod without devices takes no node that has some,
    unless one of its images lies there.
    """

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._index = Index()
        self._states: dict[str, NodeState] = {}
        self._kinds: list[tuple[str, str]] = []  # (pool, what is proven there): few, however many nodes
        self._kind_of: dict[tuple[str, str], int] = {}
        self._begun: set[str] = set()
        self._kind: Ints = np.full(0, _NEVER, np.int64)  # by slot, as the next two
        self._is_fresh: Ints = np.ones(0, np.int64)
        self._has_devices: Ints = np.zeros(0, np.int64)

    def __contains__(self, name: object) -> bool:
        return name in self._states

    def __len__(self) -> int:
        return len(self._states)

    def set_node(self, state: NodeState, *, is_ours: bool) -> None:
        """Take a node that may be drawn.

        Args:
            state: Without the pool's taint: the pin brings the toleration.
            is_ours: Whether this planner has claimed it.
        """
        node = state.node
        self._states[node.name] = state
        self._index.set_node(state)
        self._grow()
        slot = self._index.slot(node.name)
        self._kind[slot] = self._kind_number((node.pool, node.warm))
        self._has_devices[slot] = bool(node.devices)
        if is_ours:
            self._begun.add(node.name)
        self._is_fresh[slot] = node.name not in self._begun

    def remove_node(self, name: str) -> None:
        """Forget a node; one that is not there is no error."""
        if self._states.pop(name, None) is not None:
            self._kind[self._index.slot(name)] = _NEVER
            self._index.remove_node(name)
            self._begun.discard(name)

    def begin(self, name: str) -> None:
        """Note that a pod of ours goes there, before the claim shows."""
        self._mark(name, is_begun=True)

    def end(self, name: str) -> None:
        """Note that nobody of ours goes there after all."""
        self._mark(name, is_begun=False)

    def _mark(self, name: str, *, is_begun: bool) -> None:
        if name in self._states:
            (self._begun.add if is_begun else self._begun.discard)(name)
            self._is_fresh[self._index.slot(name)] = not is_begun

    def use_company(self, company: Company) -> None:
        """Read rules between pods from a company that knows all nodes; before there are any here."""
        self._index.use_company(company)

    def use_claims(self, desk: Desk) -> None:
        """Ask this desk what the resource claims of pods can get; before there are any nodes here."""
        self._index.use_claims(desk)

    def place(self, pod: Pod) -> Placement | None:
        """Return the best berth on a warm node, None if there is none; nothing is booked."""
        return self._index.place_first(pod, self._rank(pod)) if self._states else None

    def placements(
        self, pods: Iterable[Pod], beside: Iterable[Placement] = (), batch: Mapping[str, Pod] | None = None
    ) -> tuple[Placement, ...]:
        """Return berths for as many of these pods as fit on warm nodes, the hardest first, on as few nodes as fit.

        Args:
            pods: Who is to be placed.
            beside: What the same batch places elsewhere: rules between pods count it.
            batch: The pods of those placements, by uid.
        """
        if not self._states:
            return ()
        others = [(batch[one.pod_uid], one.berth) for one in beside] if batch is not None else []
        company = self._index.company
        booked: list[tuple[Pod, Placement]] = []
        begun: list[str] = []
        for pod, berth in others:
            company.enter(pod, berth.node)
        try:
            for pod in sorted(pods, key=hardest_first):
                placement = self.place(pod)
                if placement is not None:
                    self._index.take(pod, placement.berth)
                    booked.append((pod, placement))
                    if placement.berth.node not in self._begun:
                        begun.append(placement.berth.node)
                        self.begin(placement.berth.node)
        finally:
            for pod, placement in reversed(booked):
                self._index.give_back(pod, placement.berth)
            for pod, berth in others:
                company.leave(pod, berth.node)
            for name in begun:
                self.end(name)
        return tuple(placement for _, placement in booked)

    def states(self, names: Iterable[str]) -> Mapping[str, NodeState]:
        """Return the states of the named nodes that are here."""
        return {name: self._states[name] for name in names if name in self._states}

    def _rank(self, pod: Pod) -> Ints:
        """Return the rank of each slot for a pod, (slots,), below 0 where it may not go."""
        self._grow()
        held = np.array([self._held(pool, warm, pod.images) for pool, warm in (*self._kinds, ("", ""))], np.int64)
        held_by_slot = held[self._kind]
        rank = _PER_IMAGE * (len(pod.images) - held_by_slot) + self._is_fresh
        is_barred = self._kind < 0
        if pod.ask is None and not pod.resource_claims:
            is_barred |= (self._has_devices > 0) & (held_by_slot == 0)
        found: Ints = np.where(is_barred, _NEVER, rank)
        return found

    def _kind_number(self, kind: tuple[str, str]) -> int:
        number = self._kind_of.get(kind)
        if number is None:
            if len(self._kinds) > len(self._states) + _SLACK:  # every image that ever moved left one behind
                self._renumber()
            number = self._kind_of[kind] = len(self._kinds)
            self._kinds.append(kind)
        return number

    def _renumber(self) -> None:
        self._kinds.clear()
        self._kind_of.clear()
        for name, state in self._states.items():
            kind = (state.node.pool, state.node.warm)
            if kind not in self._kind_of:
                self._kind_of[kind] = len(self._kinds)
                self._kinds.append(kind)
            self._kind[self._index.slot(name)] = self._kind_of[kind]

    def _grow(self) -> None:
        more = self._index.slots_used - len(self._kind)
        if more > 0:
            self._kind = np.concatenate((self._kind, np.full(more, _NEVER, np.int64)))
            self._is_fresh = np.concatenate((self._is_fresh, np.ones(more, np.int64)))
            self._has_devices = np.concatenate((self._has_devices, np.zeros(more, np.int64)))

    def _held(self, pool_name: str, warm: str, images: Sequence[str]) -> int:
        """Return how many of the images are proven to lie on such a node."""
        pool = self._pools.get(pool_name)
        if pool is not None and pool.images:
            return pool.holds(tuple(images))
        proven = {full_name(text) for text in warm.split(",")}
        return sum(full_name(image) in proven for image in images)


def untainted(state: NodeState) -> NodeState:
    """Return the state of a pool's node without the pool's taint, for pods whose pin brings the toleration."""
    node = state.node
    taints = tuple(taint for taint in node.taints if taint.key != labels.POOL)
    return replace(state, node=replace(node, taints=taints))
