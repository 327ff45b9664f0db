"""The search for patterns: what the index's answer can be exchanged for, by column generation with beams.

Columns start with the answer itself and the cheapest nodes for each single pod. Then, a few times over, prices from
the linear relaxation say which pods and nodes are worth fighting for, and beams grow patterns whose pods are worth more
than they cost: from empty nodes, and from the answer's own patterns, whole or with one pod less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.index.columns import Floats, Ints
from binpack.index.reservation import Reserve
from binpack.solver.instance import Column, Instance, PodGroup
from binpack.solver.relax import Prices, Relaxation
from binpack.solver.sketch import Rows, Sketch, Steps, Trail

# Costs are kept in this fraction of a milli-GPU.
UNIT: Final = 1024

# A pattern is followed while it costs less than this beyond its worth: a further pod may make it worth its cost.
_HOPE_MILLI: Final = 500.0
_BACKLOG_PODS: Final = 1_000

Seating = tuple[int, tuple[tuple[int, tuple[int, ...]], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How far the search goes; all limits are counts, so that it ends the same way everywhere.

    Attributes:
        singles: Cheapest nodes looked at per single pod, beside as many as there are pods of the kind.
        rounds: Times that prices are made anew.
        depth: Pods that a beam puts on an empty node at most.
        beam: Patterns kept per node and depth.
        widest: Patterns kept per depth over all nodes.
    """

    singles: int = 12
    rounds: int = 3
    depth: int = 2
    beam: int = 4
    widest: int = 256

    @classmethod
    def for_batch(cls, pods: int) -> Effort:
        """Return what suits a batch: more patterns than CP-SAT weighs in its time make answers to thousands worse."""
        return cls() if pods < _BACKLOG_PODS else cls(rounds=2)


class Columns:
    """Patterns found so far, the cheapest of those with the same pods on the same node group."""

    def __init__(
        self,
        sketch: Sketch,
        pods: Sequence[PodGroup],
        reserves: Sequence[Reserve],
        reserve_price: float,
        unplaced_price: int,
    ) -> None:
        self.columns: list[Column] = []
        self.trails: list[Trail] = []
        self.hint: list[int] = []
        self._number: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._sketch = sketch
        self._pods = tuple(pods)
        self._reserves = [(frozenset(one.nodes), frozenset(one.owners), one.milli_cpu) for one in reserves]
        self._spare = tuple(one.spare for one in reserves)
        self._reserve_price = round(reserve_price * UNIT)
        self._unplaced_price = unplaced_price * UNIT

    def add(self, rows: Rows, row: int) -> int:
        """Note one row's pattern; return its column."""
        trail = rows.trails[row]
        node, takes = int(rows.node[row]), tuple(sorted(Counter(group for group, _, _ in trail).items()))
        column = Column(
            node_group=node, takes=takes, cost=round(float(rows.cost[row]) * UNIT), breaks=self._breaks(node, takes)
        )
        number = self._number.setdefault((node, takes), len(self.columns))
        if number == len(self.columns):
            self.columns.append(column)
            self.trails.append(trail)
            self.hint.append(0)
        elif column.cost < self.columns[number].cost:
            self.columns[number] = column
            self.trails[number] = trail
        return number

    def instance(self) -> Instance:
        """Return the instance of all columns so far."""
        return Instance(
            pods=self._pods,
            node_counts=tuple(map(len, self._sketch.members)),
            columns=tuple(self.columns),
            hint=tuple(self.hint),
            unplaced_price=self._unplaced_price,
            spare=self._spare,
            reserve_price=self._reserve_price,
        )

    def _breaks(self, node: int, takes: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """Return the reserves that these pods break into on a node of this group."""
        found: list[int] = []
        first = self._sketch.members[node][0]
        for number, (nodes, owners, milli_cpu) in enumerate(self._reserves):
            strangers = [(group, n) for group, n in takes if group not in owners]
            if first not in nodes or not strangers:
                continue
            if all(self._sketch.pods[group].ask is None for group, _ in takes):
                asked = sum(self._sketch.pods[group].requests.milli_cpu * n for group, n in takes)
                if int(self._sketch.empty.arrays.milli_cpu[node]) - asked >= milli_cpu:
                    continue
            found.append(number)
        return tuple(found)


def generate(columns: Columns, sketch: Sketch, draft: Sequence[Seating], effort: Effort) -> tuple[Prices, float]:
    """Fill `columns`; return the prices of the relaxation over all of them, and what the draft's patterns cost.

    Args:
        columns: Empty.
        sketch: The nodes.
        draft: Per node group used by the index's answer the (pod group, device positions) of one of its nodes.
        effort: Where to stop.
    """
    whole = sketch.replayed(draft)
    for row in range(len(whole.node)):
        columns.hint[columns.add(whole, row)] += 1
    seeds = sketch.replayed([*draft, *_with_one_less(draft)])
    from_seeds = sketch.steps(seeds)
    from_empty = sketch.steps(sketch.empty)
    for row in range(len(whole.node), len(seeds.node)):
        columns.add(seeds, row)
    _add(columns, sketch.taken(sketch.empty, from_empty, _cheapest(from_empty, sketch.counts, effort.singles)))
    relaxation = Relaxation()
    found = relaxation.prices(columns.instance())
    for _ in range(effort.rounds):
        before = len(columns.columns)
        for rows in _beams(sketch, seeds, from_seeds, found, effort, 1):
            _add(columns, rows)
        for rows in _beams(sketch, sketch.empty, from_empty, found, effort, effort.depth):
            _add(columns, rows)
        if len(columns.columns) == before:
            break
        found = relaxation.prices(columns.instance())
    return found, float(whole.cost.sum())


def _add(columns: Columns, rows: Rows) -> None:
    for row in range(len(rows.node)):
        columns.add(rows, row)


def _with_one_less(draft: Sequence[Seating]) -> list[Seating]:
    """Return the patterns of several pods without one of them, each kind of pod left out once."""
    found: list[Seating] = []
    for node, pods in draft:
        kinds = {group: place for place, (group, _) in enumerate(pods)} if len(pods) > 1 else {}
        found += [(node, (*pods[:place], *pods[place + 1 :])) for place in kinds.values()]
    return found


def _cheapest(steps: Steps, counts: Ints, most: int) -> Ints:
    """Return for each pod group its cheapest steps: `most`, and as many more as there are pods of the group."""
    order = np.lexsort((steps.row, steps.cost, steps.group))
    group = steps.group[order]
    return order[_place_in_run(group) < most + counts[group]]


def _beams(sketch: Sketch, rows: Rows, steps: Steps, found: Prices, effort: Effort, depth: int) -> Iterator[Rows]:
    """Yield patterns of one pod more, two, ... up to `depth`: per node those worth most beyond their cost."""
    of_pod, of_node = np.array(found.pods) / UNIT, np.array(found.nodes) / UNIT
    for level in range(depth):
        if not len(steps.row):
            return
        reduced = steps.cost - (rows.counts @ of_pod)[steps.row] - of_pod[steps.group] - of_node[rows.node[steps.row]]
        chosen = _best_per_node(rows, steps, reduced, effort, is_last=level == depth - 1)
        if not len(chosen):
            return
        rows = sketch.taken(rows, steps, chosen)
        yield rows
        if level < depth - 1:
            steps = sketch.steps(rows)


def _best_per_node(rows: Rows, steps: Steps, reduced: Floats, effort: Effort, *, is_last: bool) -> Ints:
    """Return the steps to follow: different pods each, on each node the `beam` best, `widest` in all."""
    node = rows.node[steps.row]
    salt = _salt(rows.counts.shape[1])
    key = (rows.counts @ salt)[steps.row] + salt[steps.group]
    order = np.lexsort((reduced, key, node))
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(key[order]) != 0) | (np.diff(node[order]) != 0)
    different = order[is_first & (reduced[order] < (0.0 if is_last else _HOPE_MILLI))]
    ranked = different[np.lexsort((reduced[different], node[different]))]
    best = ranked[_place_in_run(node[ranked]) < effort.beam]
    return best[np.argsort(reduced[best], kind="stable")][: effort.widest]


def _salt(groups: int) -> Ints:
    """Return numbers by which different counts of pods get, nearly always, different sums."""
    return np.random.default_rng(1).integers(1, 2**40, groups)


def _place_in_run(values: Ints) -> Ints:
    """Return each entry's place among the equal ones around it, for values that come in runs."""
    places = np.arange(len(values))
    is_new = np.ones(len(values), np.bool_)
    is_new[1:] = np.diff(values) != 0
    return places - np.maximum.accumulate(np.where(is_new, places, 0))
