"""What all peers share: the books, the hard rules, best score wins, ties by a fixed order of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from binpack.index import room
from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Floats, Ints
from binpack.index.eligibility import Eligibility
from binpack.index.miss import Misses
from binpack.index.scores import PodClass, ScoreCache
from binpack.peers.simple import Clustering
from binpack.state import NodeState
from fleet.device import AskKind
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod

ScoreRows = Callable[[Arrays, PodClass, Ints, Bools], tuple[Floats, Ints]]
"""Scores rows of slots, higher is better. Given which devices of each node can serve the pod, (n, D), it returns the
scores, (n,), and the position of the device for a share, (n,); both are only read where the pod fits."""


class Peer:
    """A policy that places each pod on the feasible node of the highest score."""

    def __init__(
        self,
        states: Iterable[NodeState],
        order: Sequence[str],
        make: Callable[[Arrays], ScoreRows],
    ) -> None:
        """Book nothing yet; equal scores go to the node that stands first in `order`, if empty first in `states`."""
        self.arrays = Arrays()
        for state in states:
            self.arrays.set_node(state)
        self._eligibility = Eligibility(self.arrays)
        self._misses = Misses(self.arrays, self._eligibility)
        self._score_rows = make(self.arrays)
        self._cache = ScoreCache(self.arrays, self._costs)
        self._place_of = np.zeros(self.arrays.count, np.int64)
        for place, name in enumerate(order or list(self.arrays.slots)):
            self._place_of[self.arrays.slots[name]] = place

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth."""
        self.arrays.take(pod, berth)
        self.arrays.changed.clear()

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`."""
        self.arrays.give_back(pod, berth)
        self.arrays.changed.clear()

    def place(self, pod: Pod, *, with_shortfall: bool = True) -> Placement | Unplaced:
        """Return the berth of the highest score, or why there is none; nothing is booked."""
        cost, position = self._cache.scores(PodClass.of(pod))
        cost = np.where(room.nodes_with_room(self.arrays, self._eligibility, pod), cost, np.inf)
        least = cost.min() if len(cost) else np.inf
        if least == np.inf:
            return self._misses.explain(pod, with_shortfall=with_shortfall)
        slot = self._choose(np.flatnonzero(cost == least))
        return self._placement(pod, slot, float(least), int(position[slot]))

    def _choose(self, slots: Ints) -> int:
        return int(slots[np.argmin(self._place_of[slots])])

    def _placement(self, pod: Pod, slot: int, cost: float, position: int) -> Placement:
        ask = pod.ask
        devices: tuple[str, ...] = ()
        if ask is not None and ask.kind is not AskKind.CLASSIC:
            chosen = [position] if not ask.is_whole and ask.count == 1 else self._first(pod, slot)
            devices = self.arrays.device_ids(slot, chosen)
        return Placement(pod_uid=pod.uid, berth=Berth(node=self.arrays.name(slot), devices=devices), score=cost)

    def _first(self, pod: Pod, slot: int) -> list[int]:
        assert pod.ask is not None
        free = _usable(self.arrays, PodClass.of(pod), np.array([slot]))[0]
        return [int(p) for p in np.flatnonzero(free)[: pod.ask.count]]

    def _costs(self, pod_class: PodClass, slots: Ints) -> tuple[Floats, Ints]:
        arrays, ask = self.arrays, pod_class.ask
        fits = room.cpu_suffices(arrays, pod_class.milli_cpu, slots)
        usable = _usable(arrays, pod_class, slots)
        if ask is not None:
            fits &= room.takes_kind(arrays, ask, slots) & (usable.sum(axis=1) >= ask.count)
        score, position = self._score_rows(arrays, pod_class, slots, usable)
        return np.where(fits, -score, np.inf), position


class ClusteringPeer(Peer):
    """Puts pods of a kind beside each other; it remembers what it placed where."""

    def __init__(self, states: Iterable[NodeState], order: Sequence[str]) -> None:
        """Start from nodes that hold nothing."""
        super().__init__(states, order, self._make)

    def _make(self, arrays: Arrays) -> ScoreRows:
        self._clustering = Clustering(arrays)
        return self._clustering.score

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth."""
        super().take(pod, berth)
        self._clustering.note(self.arrays.slots[berth.node], pod.ask)


class RandomPeer(Peer):
    """Any feasible node with equal chance, and any device that can give the share."""

    def __init__(self, states: Iterable[NodeState], order: Sequence[str], seed: int) -> None:
        """Draw from a generator with this seed."""
        super().__init__(states, order, lambda _: _indifferent)
        self._random = np.random.default_rng(seed)

    def _choose(self, slots: Ints) -> int:
        return int(self._random.choice(slots))

    def _placement(self, pod: Pod, slot: int, cost: float, position: int) -> Placement:
        if pod.ask is not None and not pod.ask.is_whole:
            usable = np.flatnonzero(_usable(self.arrays, PodClass.of(pod), np.array([slot]))[0])
            position = int(self._random.choice(usable))
        return super()._placement(pod, slot, cost, position)


def _indifferent(_arrays: Arrays, _pod_class: PodClass, slots: Ints, _usable: Bools) -> tuple[Floats, Ints]:
    return np.zeros(len(slots)), np.full(len(slots), -1, np.int64)


def _usable(arrays: Arrays, pod_class: PodClass, slots: Ints) -> Bools:
    ask = pod_class.ask
    if ask is None:
        return np.zeros((len(slots), arrays.width), np.bool_)
    return room.whole_devices(arrays, ask, slots) if ask.is_whole else room.shared_devices(arrays, ask, slots)[0]
