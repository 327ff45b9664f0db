"""What-if nodes: copies of the excerpt's nodes with some of the batch's pods booked, many at once.

Scoring is the index's own, so a pattern costs exactly what the index would charge for its pods one after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from binpack.index import room
from binpack.index.columns import BY_DEVICE, Bools, Columns, Floats, Ints
from binpack.index.excerpt import Excerpt
from binpack.index.scorer import Scorer
from binpack.index.scores import PodClass
from fleet.device import WHOLE_MILLI, AskKind
from fleet.pod import Pod

# (pod group, device positions, what the pod costs there after the ones before it), in the order of booking
Trail = tuple[tuple[int, tuple[int, ...], float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Partly filled nodes.

    Attributes:
        arrays: One row each.
        node: Node group of each, (m,).
        counts: How many pods of each group it was given, (m, groups).
        cost: What they cost together, milli-GPU, (m,).
        trails: How they were given.
    """

    arrays: Columns
    node: Ints
    counts: Ints
    cost: Floats
    trails: tuple[Trail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One pod more on some rows: (n,) arrays."""

    row: Ints
    group: Ints
    position: Ints
    cost: Floats  # of the row's pods and the new one together


class Sketch:
    """The nodes of an excerpt, equal ones grouped, and the pod groups that may go there.

    Attributes:
        pods: One pod of each group.
        counts: Pods per group, (groups,).
        members: Per node group its nodes, as places in the excerpt, ascending.
    """

    def __init__(self, excerpt: Excerpt, pods: Sequence[Pod], counts: Sequence[int]) -> None:
        self.pods = tuple(pods)
        self.counts = np.array(counts, np.int64)
        self._classes = [PodClass.of(pod) for pod in pods]
        self._potential = excerpt.potential()
        arrays, self._order = _with_devices_sorted(excerpt.arrays())
        surcharge = excerpt.surcharges()
        self.members = _equal_rows(arrays, surcharge, excerpt)
        first = np.array([nodes[0] for nodes in self.members], np.int64)
        self._surcharge = surcharge[:, first]
        self._place = {node: number for number, nodes in enumerate(self.members) for node in nodes}
        many = len(first)
        self.empty = Rows(
            arrays=Columns.of(arrays.copied(first), arrays.models),
            node=np.arange(many),
            counts=np.zeros((many, len(self.pods)), np.int64),
            cost=np.zeros(many),
            trails=((),) * many,
        )
        self._scorer = Scorer(self.empty.arrays, self._potential)

    def group_of(self, node: int) -> int:
        """Return the node group of a node of the excerpt."""
        return self._place[node]

    def positions(self, node: int, sketched: tuple[int, ...]) -> tuple[int, ...]:
        """Return which devices of a real node these positions of a sketched one stand for."""
        return tuple(int(self._order[node, position]) for position in sketched)

    def sketched(self, node: int, positions: Sequence[int]) -> tuple[int, ...]:
        """Return the inverse of `positions`."""
        where = np.argsort(self._order[node])
        return tuple(int(where[position]) for position in positions)

    def steps(self, rows: Rows) -> Steps:
        """Return every way to put one pod more on every row, with the best device for each."""
        scorer = Scorer(rows.arrays, self._potential) if rows is not self.empty else self._scorer
        found: list[tuple[Ints, Ints, Ints, Floats]] = []
        for group, pod in enumerate(self.pods):
            has_room = rows.counts[:, group] < self.counts[group]
            has_room &= np.isfinite(self._surcharge[group, rows.node])
            has_room &= room.amounts_suffice(rows.arrays, pod)
            row = np.flatnonzero(has_room)
            if not len(row):
                continue
            cost, position = scorer.score(self._classes[group], row)
            fits = cost < np.inf
            row = row[fits]
            cost = rows.cost[row] + cost[fits] + self._surcharge[group, rows.node[row]]
            found.append((row, np.full(len(row), group), position[fits], cost))
        if not found:
            nothing = np.zeros(0, np.int64)
            return Steps(row=nothing, group=nothing, position=nothing, cost=np.zeros(0))
        row, group_of, position, cost = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Steps(row=row, group=group_of, position=position, cost=cost)

    def taken(self, rows: Rows, steps: Steps, chosen: Ints) -> Rows:
        """Return the rows that these of the steps lead to."""
        row, group, cost = steps.row[chosen], steps.group[chosen], steps.cost[chosen]
        arrays = Columns.of(rows.arrays.copied(row), rows.arrays.models)
        scorer = Scorer(arrays, self._potential)
        counts = rows.counts[row]
        counts[np.arange(len(row)), group] += 1
        devices: list[tuple[int, ...]] = [()] * len(row)
        for number in np.unique(group).tolist():
            here = np.flatnonzero(group == number)
            given, after = self._devices(arrays, scorer, self.pods[number], here, steps.position[chosen[here]])
            _book(arrays, self.pods[number], here, given, after)
            for place, mask in zip(here.tolist(), given, strict=True):
                devices[place] = tuple(np.flatnonzero(mask).tolist())
        more = cost - rows.cost[row]
        trails = tuple(
            (*rows.trails[parent], (number, positions, price))
            for parent, number, positions, price in zip(
                row.tolist(), group.tolist(), devices, more.tolist(), strict=True
            )
        )
        return Rows(arrays=arrays, node=rows.node[row], counts=counts, cost=cost, trails=trails)

    def replayed(self, seatings: Sequence[tuple[int, Sequence[tuple[int, tuple[int, ...]]]]]) -> Rows:
        """Return rows with exactly these pods on exactly these devices.

        Args:
            seatings: Per row a node group and its (pod group, device positions) in order of booking.
        """
        node = np.array([number for number, _ in seatings], np.int64)
        arrays = Columns.of(self.empty.arrays.copied(node), self.empty.arrays.models)
        scorer = Scorer(arrays, self._potential)
        counts = np.zeros((len(node), len(self.pods)), np.int64)
        cost = np.zeros(len(node))
        trails: list[Trail] = [()] * len(node)
        # The first pods of all rows at once, kind by kind, then the second ones, and so on.
        for place in range(max((len(pods) for _, pods in seatings), default=0)):
            by_group: dict[int, list[int]] = defaultdict(list)
            for row, (_, pods) in enumerate(seatings):
                if place < len(pods):
                    by_group[pods[place][0]].append(row)
            for group, rows in by_group.items():
                here, given = np.array(rows), [seatings[row][1][place][1] for row in rows]
                price = self._replay(arrays, scorer, group, here, given) + self._surcharge[group, node[here]]
                counts[here, group] += 1
                cost[here] += price
                for row, positions, of_one in zip(rows, given, price.tolist(), strict=True):
                    trails[row] = (*trails[row], (group, tuple(positions), of_one))
        return Rows(arrays=arrays, node=node, counts=counts, cost=cost, trails=tuple(trails))

    def _replay(
        self, arrays: Columns, scorer: Scorer, group: int, rows: Ints, positions: Sequence[tuple[int, ...]]
    ) -> Floats:
        """Book a pod on these devices of each row; return by how much the potential rose, (n,)."""
        pod = self.pods[group]
        given, after = self._devices(arrays, scorer, pod, rows, np.full(len(rows), -1))
        if pod.ask is None:
            price = scorer.score(self._classes[group], rows)[0].astype(np.float64)
        else:
            if pod.ask.kind is not AskKind.CLASSIC:
                given = np.zeros_like(given)
                for row, chosen in enumerate(positions):
                    given[row, list(chosen)] = True
            price = scorer.lesser(pod.ask, rows, given) - scorer.phi(rows)
        _book(arrays, pod, rows, given, after)
        scorer.renew(rows)
        return price if pod.ask is None else price + scorer.phi(rows)

    @staticmethod
    def _devices(arrays: Columns, scorer: Scorer, pod: Pod, rows: Ints, position: Ints) -> tuple[Bools, Ints]:
        """Return which devices the pod gets on each row, (n, D), and what every device would keep, (n, D)."""
        ask = pod.ask
        if ask is None:
            return np.zeros((len(rows), arrays.width), np.bool_), arrays.residual[rows]
        if ask.is_whole or ask.count > 1:
            return scorer.choose(ask, rows)
        _, after = room.shared_devices(arrays, ask, rows)
        return np.arange(arrays.width) == position[:, None], after


def _book(arrays: Columns, pod: Pod, rows: Ints, given: Bools, after: Ints) -> None:
    """Book the pod on each of the rows, which are all different."""
    wanted, ask = pod.requests, pod.ask
    arrays.milli_cpu[rows] -= wanted.milli_cpu
    arrays.memory_bytes[rows] -= wanted.memory_bytes
    arrays.pod_slots[rows] -= wanted.pod_slots
    for name, amount in wanted.extended:
        arrays.extended(name)[rows] -= amount
    if ask is None:
        return
    arrays.untouched[rows] *= ~given
    arrays.residual[rows] = np.where(given, after, arrays.residual[rows])
    total = arrays.total_mib[rows]
    if ask.is_whole:
        arrays.free_milli[rows] -= WHOLE_MILLI * given
        arrays.free_mib[rows] -= total * given
    else:
        arrays.free_milli[rows] -= ask.milli_gpu * given
        arrays.free_mib[rows] -= ask.memory_mib * (given & (total > 0))


def _with_devices_sorted(arrays: Columns) -> tuple[Columns, Ints]:
    """Return the nodes with their devices in an order of state, so that equal nodes read alike, and that order, (n, D).

    Who else uses a device and when its node last changed makes no difference to a batch.
    """
    columns = arrays.copied(np.arange(arrays.count))
    for name in ("users", "version", "node_class"):
        columns[name][:] = 0
    order = np.tile(np.arange(arrays.width), (arrays.count, 1))
    by_device = [name for name in BY_DEVICE if name in columns]
    for name in reversed(by_device):
        keys = np.take_along_axis(columns[name], order, axis=1)
        order = np.take_along_axis(order, np.argsort(-keys, axis=1, kind="stable"), axis=1)
    for name in by_device:
        columns[name] = np.take_along_axis(columns[name], order, axis=1)
    return Columns.of(columns, arrays.models), order


def _equal_rows(arrays: Columns, surcharge: Floats, excerpt: Excerpt) -> tuple[tuple[int, ...], ...]:
    """Return the nodes in groups that no pod of the batch can tell apart."""
    columns = arrays.copied(np.arange(arrays.count))
    reserved = np.zeros((arrays.count, len(excerpt.reserves)), np.int64)
    for number, reserve in enumerate(excerpt.reserves):
        reserved[list(reserve.nodes), number] = 1
    parts = [columns[name].reshape(arrays.count, -1) for name in sorted(columns)]
    rows = np.ascontiguousarray(np.concatenate([*parts, reserved, surcharge.T.view(np.int64)], axis=1))
    groups: dict[bytes, list[int]] = {}
    for node in range(arrays.count):
        groups.setdefault(rows[node].tobytes(), []).append(node)
    return tuple(tuple(nodes) for nodes in groups.values())
