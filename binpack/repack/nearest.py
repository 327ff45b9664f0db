"""Which nodes could be cleared for a pod at the least cost: an estimate over all nodes and movable pods at once.

It only ranks: what it names is tried exactly, and what it overlooks is not found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.index import Index
from binpack.index.arrays import Arrays
from binpack.index.columns import CLASSIC, SHARING, Floats, Ints
from binpack.repack.claimed import holds_by_claim, with_claims
from binpack.repack.occupants import COUNTED, Occupants
from binpack.repack.values import Movable
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.pod import Pod

# Added to what a pod asks where it fits nowhere now: others would have to give way to it in turn.
_IN_TURN_MILLI: Final = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What moving each kind of pod costs now, (kinds,).

    Attributes:
        least: Cost of its best berth, milli-GPU; inf where it has none.
        slot: Slot of that berth; -1 where it has none.
        second: Cost of its best berth on another node.
        in_turn: What is assumed where others would have to give way to it.
        milli_gpu: What it takes of each of its devices; milli_cpu, memory_bytes: what it asks beside.
    """

    least: Floats
    slot: Ints
    second: Floats
    in_turn: Floats
    milli_gpu: Ints
    milli_cpu: Ints
    memory_bytes: Ints

    @classmethod
    def of(cls, index: Index, occupants: Occupants) -> Prices:
        """Ask the index for every kind."""
        pods = [example.pod for example in occupants.examples]
        options = [index.options(pod, 2) for pod in pods]
        asked = [0 if pod.ask is None else pod.ask.total_milli_gpu for pod in pods]
        return cls(
            least=np.array([found[0].score if found else np.inf for found in options]),
            slot=np.array([index.slot(found[0].berth.node) if found else -1 for found in options], np.int64),
            second=np.array([found[1].score if len(found) > 1 else np.inf for found in options]),
            in_turn=np.array(asked) + _IN_TURN_MILLI,
            milli_gpu=np.array([_milli_of(pod.ask) for pod in pods], np.int64),
            milli_cpu=np.array([pod.requests.milli_cpu for pod in pods], np.int64),
            memory_bytes=np.array([pod.requests.memory_bytes for pod in pods], np.int64),
        )

    def leaving(self, kind: Ints, slot: Ints, *, is_deep: bool) -> Floats:
        """Return what moving pods of these kinds away from these slots costs, (n,); deep = others may give way."""
        cost: Floats = np.where(self.slot[kind] == slot, self.second[kind], self.least[kind])
        return np.where(np.isfinite(cost), cost, self.in_turn[kind]) if is_deep else cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """One node, and the order in which its pods are worth moving away.

    Attributes:
        members: Its movable pods.
        estimate: What clearing enough of it costs, milli-GPU.
    """

    slot: int
    members: tuple[Movable, ...]
    estimate: float


class Nearest:
    """Estimates for one pod that fits nowhere."""

    def __init__(
        self, index: Index, occupants: Occupants, prices: Prices, pod: Pod, *, move_price: float, is_deep: bool
    ) -> None:
        """Price every device and node.

        Args:
            index: What is free.
            occupants: Who may be moved.
            prices: Of the occupants' kinds, at least about now.
            pod: The pod.
            move_price: What every move costs beside the rise of the potential.
            is_deep: Whether pods that fit nowhere now may be moved too, others giving way to them in turn.
        """
        self._arrays = arrays = index.arrays
        self._occupants = occupants
        self._pod = pod
        self._prices = prices
        held = occupants.held()
        self._row, self._kind, self._slot = held.row, held.kind, held.slot
        self._position = _positions(arrays, held.slot, held.position)
        self._cost = prices.leaving(held.kind, held.slot, is_deep=is_deep) + move_price
        self._is_first = np.zeros(len(held.row), np.bool_)
        self._is_first[np.unique(held.row, return_index=True)[1]] = True
        self._is_enough = np.zeros(len(held.row), np.bool_)
        nodes = self._amounts()
        self._device = np.zeros((arrays.count, arrays.width))
        if pod.ask is not None:
            self._device = self._devices(pod.ask)
            nodes += _cheapest(self._device, pod.ask.count)
        nodes[~index.allowed(pod)] = np.inf
        self._by_claim = np.zeros(len(held.row), np.bool_)
        if pod.resource_claims and index.desk is not None:
            self._by_claim = holds_by_claim(occupants, held.row) & np.isfinite(self._cost)
            slot, cost = self._slot[self._by_claim], self._cost[self._by_claim]
            nodes = with_claims(pod, index.desk, arrays.name, nodes, slot, cost)
        self._node = nodes

    def clearings(self, most: int) -> list[Clearing]:
        """Return up to `most` nodes, the cheapest first."""
        slots = np.flatnonzero(np.isfinite(self._node))
        chosen = slots[np.lexsort((self._arrays.order[slots], self._node[slots]))][:most]
        return [
            Clearing(slot=slot, members=self._order(slot), estimate=float(self._node[slot])) for slot in chosen.tolist()
        ]

    def _order(self, slot: int) -> tuple[Movable, ...]:
        """Return the pods of a node: those of the devices to clear, then those that free most CPU for their cost."""
        here = np.flatnonzero((self._slot == slot) & np.isfinite(self._cost))
        position = self._position[here]
        device = np.where(position >= 0, self._device[slot, position], np.inf)
        wanted = 0 if self._pod.ask is None else self._pod.ask.count
        is_needed = np.isfinite(device) & (device <= np.sort(self._device[slot])[: max(1, wanted)][-1]) & (wanted > 0)
        relief = np.maximum(1, self._prices.milli_cpu[self._kind[here]])
        is_needed |= self._by_claim[here]
        rate = np.where(is_needed & np.isfinite(device), device, self._cost[here] / relief)
        ranked = here[np.lexsort((self._cost[here], rate, ~self._is_enough[here], ~is_needed))]
        members = (self._occupants.members[row] for row in dict.fromkeys(self._row[ranked].tolist()))
        return tuple(one for one in members if one is not None)

    def _devices(self, ask: DeviceAsk) -> Floats:
        """Return what it costs to make the ask fit on each device, (count, D): 0 = it does, inf = it never will."""
        arrays, count, width = self._arrays, self._arrays.count, self._arrays.width
        usable = (arrays.healthy[:count] > 0) & (arrays.models.ranks(ask.models)[arrays.model[:count]] >= 0)
        usable &= (arrays.kind[:count] == (CLASSIC if ask.kind is AskKind.CLASSIC else SHARING))[:, None]
        named = self._position >= 0
        slot, position, cost = self._slot[named], self._position[named], self._cost[named]
        place = slot * width + position
        # A pod of several devices is paid for once, by an equal part on each.
        parts = cost / np.bincount(self._row)[self._row[named]] if len(cost) else cost
        price = np.bincount(place, parts, count * width).reshape(count, width).astype(np.float64)
        movable = np.bincount(place, None, count * width).reshape(count, width)
        price[movable < arrays.users[:count]] = np.inf
        if ask.kind is AskKind.SHARE:
            free = arrays.free_milli[slot, position] + self._prices.milli_gpu[self._kind[named]]
            is_enough = free >= ask.milli_gpu
            self._is_enough[named] = is_enough
            np.minimum.at(price, (slot[is_enough], position[is_enough]), cost[is_enough])
            price[arrays.free_milli[:count] >= max(1, ask.milli_gpu)] = 0.0
        price[~usable] = np.inf
        return price

    def _amounts(self) -> Floats:
        """Return what it costs at least to free CPU and memory where they are short, (count,)."""
        arrays, count = self._arrays, self._arrays.count
        found = np.zeros(count)
        asked = self._pod.requests
        for free, wanted, of_kind in (
            (arrays.milli_cpu, asked.milli_cpu, self._prices.milli_cpu),
            (arrays.memory_bytes, asked.memory_bytes, self._prices.memory_bytes),
        ):
            short = np.maximum(0, wanted - free[:count])
            if wanted <= 0 or not short.any():
                continue
            relief = of_kind[self._kind]
            useful = self._is_first & np.isfinite(self._cost) & (relief > 0)
            slot, relief = self._slot[useful], relief[useful]
            rate = np.full(count, np.inf)
            np.minimum.at(rate, slot, self._cost[useful] / np.minimum(relief, np.maximum(1, short[slot])))
            needed = np.zeros(count)
            is_short = short > 0
            needed[is_short] = short[is_short] * rate[is_short]
            needed[np.bincount(slot, relief, count) < short] = np.inf
            found = np.maximum(found, needed)
        return found


def _cheapest(price: Floats, many: int) -> Floats:
    """Return the sum of the `many` least of each row, inf where there are not as many."""
    if many > price.shape[1]:
        return np.full(len(price), np.inf)
    found: Floats = np.sort(price, axis=1)[:, :many].sum(axis=1)
    return found


def _positions(arrays: Arrays, slot: Ints, position: Ints) -> Ints:
    """Return the positions of devices held; where a node keeps a mere count, devices in use are dealt out in turn."""
    found = position.copy()
    counted: Ints = np.flatnonzero((position == COUNTED) & (arrays.kind[slot] == CLASSIC))
    if len(counted):
        order = counted[np.argsort(slot[counted], kind="stable")]
        slots = slot[order]
        nth = np.arange(len(order)) - np.searchsorted(slots, slots)
        in_use = np.argsort(arrays.users[slots] == 0, axis=1, kind="stable")
        found[order] = in_use[np.arange(len(order)), np.minimum(nth, arrays.width - 1)]
    return found


def _milli_of(ask: DeviceAsk | None) -> int:
    if ask is None:
        return 0
    return WHOLE_MILLI if ask.is_whole else ask.milli_gpu
