"""The bound: the most GPU that any method could have in use at once, whatever it knows and whomever it refuses.

For any prices p_i >= 0 of the pod kinds, and B_k(p) the best filling of a node of kind k where pod i is worth
G_i - p_i, no placement of at most d_i pods each on n_k nodes each allocates more than ::

    L(p) = sum_i p_i d_i + sum_k n_k B_k(p)

(Lagrangian duality). Prices are rounded to whole numbers first and L(p) is then an exact sum of integers: the linear
programme only proposes prices and can neither loosen nor break the proof. Source: Gilmore & Gomory 1961 (columns
priced by a knapsack); Farley 1990 and Wentges 1997 (limits and smoothed prices before the programme is at its end).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from binpack.bound.fillings import Filling, Fillings, worth
from binpack.bound.kinds import NodeKind, PodKind, demand_of, ground_of
from binpack.solver.fillings_program import FillingsProgram
from fleet.device import WHOLE_MILLI
from fleet.node import Node
from fleet.pod import Pod

UNIT: Final = 1024  # values are counted in this fraction of a milli-GPU
_CLOSE_RATIO: Final = 2e-5  # of the capacity: 0.002 %; the programme's optimum is no further away
_ROUNDS: Final = 400
_SMOOTHING: Final = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What is proved about one set of pods on one set of nodes.

    Attributes:
        allocated_milli_gpu: No method can have more than this in use at once.
        unallocated_gpu_ratio: The same as the least free part of the capacity; None where the nodes have no GPU.
        slack_ratio: Part of the capacity by which the relaxation's own optimum may still be lower than
            `allocated_milli_gpu`; the search ends where it is small, and may end earlier.
        rounds: Times that prices were made.
    """

    allocated_milli_gpu: int
    unallocated_gpu_ratio: float | None
    slack_ratio: float
    rounds: int


def bound_of(nodes: Sequence[Node], pods: Iterable[Pod]) -> Bound:
    """Return the bound for these pods on these nodes, all empty."""
    pods = tuple(pods)
    return Bounds(nodes, pods).of(pods)


class Bounds:
    """Bounds for many sets of pods on the same nodes; each starts from the columns and prices of those before."""

    def __init__(self, nodes: Sequence[Node], pods: Iterable[Pod]) -> None:
        """Prepare.

        Args:
            nodes: Empty nodes.
            pods: At least one pod of each kind that will be asked about.
        """
        self._ground = ground_of(nodes)
        self._kinds = sorted(demand_of(pods, self._ground))
        self._worth = [pod.total_milli_gpu for pod in self._kinds]
        by_models: defaultdict[tuple[str, ...], list[NodeKind]] = defaultdict(list)
        for kind, _ in self._ground.nodes:
            by_models[kind.models].append(kind)
        self._fillings = {models: Fillings(models, kinds, self._kinds) for models, kinds in by_models.items()}
        self._program = FillingsProgram([count for _, count in self._ground.nodes], len(self._kinds))
        self._known: set[tuple[int, Filling]] = set()
        self._prices = [0] * len(self._kinds)
        for number, (kind, _) in enumerate(self._ground.nodes):
            for filling in _fillings_of_one_kind(kind, self._kinds):
                self._add(number, filling)

    def of(self, pods: Iterable[Pod]) -> Bound:
        """Return the bound for these pods.

        Raises:
            ValueError: A pod is of a kind that was not prepared for.
        """
        found = demand_of(pods, self._ground)
        if unknown := found.keys() - set(self._kinds):
            raise ValueError(f"pods of unknown kinds: {sorted(unknown)[:3]}")
        return self._search(found)

    def _search(self, demand: Counter[PodKind]) -> Bound:
        counts = [demand[kind] for kind in self._kinds]
        capacity = self._ground.capacity_milli_gpu
        least = UNIT * min(capacity, sum(n * milli for n, milli in zip(counts, self._worth, strict=True)))
        floor, rounds, smoothing = 0.0, 0, _SMOOTHING
        self._program.set_pods(counts)
        while rounds < _ROUNDS and least / UNIT - floor > _CLOSE_RATIO * capacity:
            rounds += 1
            proposal = self._program.solve()
            if proposal is None:
                break
            floor = proposal.objective
            prices = [
                round(smoothing * old + (1 - smoothing) * UNIT * new)
                for old, new in zip(self._prices, proposal.of_pods, strict=True)
            ]
            limit, is_new = self._round(prices, counts)
            if limit < least:
                least, self._prices = limit, prices
            elif not is_new:
                if not smoothing:
                    break
                smoothing = 0.0
        allocated = least // UNIT
        return Bound(
            allocated_milli_gpu=allocated,
            unallocated_gpu_ratio=1 - allocated / capacity if capacity else None,
            slack_ratio=max(0.0, allocated - floor) / capacity if capacity else 0.0,
            rounds=rounds,
        )

    def _round(self, prices: Sequence[int], counts: Sequence[int]) -> tuple[int, bool]:
        """Return L(prices), in units, and whether a column was found that improves the programme."""
        values = [UNIT * milli - price for milli, price in zip(self._worth, prices, strict=True)]
        priced = {models: fillings.priced(values) for models, fillings in self._fillings.items()}
        limit = sum(price * count for price, count in zip(prices, counts, strict=True))
        is_new = False
        for number, (kind, count) in enumerate(self._ground.nodes):
            best = priced[kind.models]
            limit += count * best.best(kind)
            is_new |= self._add(number, best.filling(kind))
        return limit, is_new

    def _add(self, node: int, filling: Filling) -> bool:
        if not filling or (node, filling) in self._known:
            return False
        self._known.add((node, filling))
        self._program.add(node, filling, worth(filling, self._worth))
        return True


def _fillings_of_one_kind(node: NodeKind, pods: Sequence[PodKind]) -> list[Filling]:
    """Return the node filled with pods of one kind alone, for every kind that fits."""
    found: list[Filling] = []
    for number, pod in enumerate(pods):
        by_devices = node.devices // pod.devices * (WHOLE_MILLI // pod.milli_gpu)
        many = min(by_devices, node.cpu // pod.cpu) if pod.cpu else by_devices
        if many and pod.runs_on(node.models):
            found.append(((number, many),))
    return found
