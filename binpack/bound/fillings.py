"""The best filling of one node for given values of the pods: exact, in whole numbers.

Two dynamic programmes. With V(r, c) the most that shares can be worth within r steps of one device and c units of CPU::

    V(r, c) = max( V(r-1, c),  max_i V(r - g_i, c - c_i) + v_i )

and with the fillings of one device that are worth their CPU (the steps of V(R, .)) and the whole-device pods as items::

    B(d, c) = max( B(d-1, c),  max_j B(d - n_j, c - c_j) + v_j )

B(devices, CPU) of a node is the most that any set of pods on it can be worth, since demand limits only take sets away.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from binpack.bound.kinds import NodeKind, PodKind
from binpack.index.columns import Ints
from fleet.device import WHOLE_MILLI

Filling = tuple[tuple[int, int], ...]
"""(number of a pod kind, how many of it), ascending."""


@dataclass(frozen=True, slots=True)
class _Item:
    """Something to put into a room: what it takes (steps or devices, CPU), what it is worth, what it is made of."""

    size: int
    cpu: int
    value: int
    kind: int


class Fillings:
    """Best fillings for all nodes whose devices are of the same models."""

    def __init__(self, models: tuple[str, ...], nodes: Sequence[NodeKind], pods: Sequence[PodKind]) -> None:
        """Prepare for these node kinds and for `pods`, by whose numbers values are given."""
        self._devices = max(node.devices for node in nodes)
        self._cpu = max(node.cpu for node in nodes)
        self._step = math.gcd(WHOLE_MILLI, *(pod.milli_gpu for pod in pods))
        able = [(number, pod) for number, pod in enumerate(pods) if pod.runs_on(models)]
        self._shares = [(number, pod) for number, pod in able if pod.milli_gpu < WHOLE_MILLI]
        self._wholes = [(number, pod) for number, pod in able if pod.milli_gpu >= WHOLE_MILLI]

    def priced(self, values: Sequence[int]) -> Priced:
        """Return the best fillings where pod kind i is worth values[i]; what is worth nothing is not used."""
        shares = [_Item(pod.milli_gpu // self._step, pod.cpu, values[number], number) for number, pod in self._shares]
        wholes = [_Item(pod.devices, pod.cpu, values[number], number) for number, pod in self._wholes]
        device = _Knapsack(_undominated(shares, self._cpu), WHOLE_MILLI // self._step, self._cpu)
        of_device = [_Item(1, cpu, value, -1) for cpu, value in device.steps()]
        node = _Knapsack(_undominated([*wholes, *of_device], self._cpu), self._devices, self._cpu)
        return Priced(node, device)


class Priced:
    """Best fillings at one set of values."""

    def __init__(self, node: _Knapsack, device: _Knapsack) -> None:
        self._node = node
        self._device = device

    def best(self, node: NodeKind) -> int:
        """Return what the best filling of such a node is worth."""
        return self._node.best(node.devices, node.cpu)

    def filling(self, node: NodeKind) -> Filling:
        """Return the best filling."""
        kinds: Counter[int] = Counter()
        for item in self._node.chosen(node.devices, node.cpu):
            if item.kind >= 0:
                kinds[item.kind] += 1
            else:
                kinds.update(part.kind for part in self._device.chosen(self._device.size, item.cpu))
        return tuple(sorted(kinds.items()))


class _Knapsack:
    """Unbounded knapsack of two dimensions; table[s, c] is the most that fits into size s and CPU c."""

    def __init__(self, items: Sequence[_Item], size: int, cpu: int) -> None:
        self._items = items
        self.size = size
        self._table = np.zeros((size + 1, cpu + 1), np.int64)
        for room in range(1, size + 1):
            row = self._table[room]
            row[:] = self._table[room - 1]
            for item in items:
                if item.size <= room:
                    before = self._table[room - item.size]
                    tail = row[item.cpu :]
                    np.maximum(tail, before[: cpu + 1 - item.cpu] + item.value, out=tail)

    def best(self, size: int, cpu: int) -> int:
        return int(self._table[size, cpu])

    def steps(self) -> list[tuple[int, int]]:
        """Return (CPU, value) wherever more CPU is worth more, ascending, at full size."""
        row: Ints = self._table[self.size]
        rises = np.flatnonzero(np.diff(row, prepend=0) > 0)
        return [(int(cpu), int(row[cpu])) for cpu in rises]

    def chosen(self, size: int, cpu: int) -> list[_Item]:
        """Return the items of one best filling."""
        found: list[_Item] = []
        while size > 0 and (value := self._table[size, cpu]) > 0:
            if self._table[size - 1, cpu] == value:
                size -= 1
                continue
            item = next(one for one in self._items if self._makes(one, size, cpu, int(value)))
            found.append(item)
            size, cpu = size - item.size, cpu - item.cpu
        return found

    def _makes(self, item: _Item, size: int, cpu: int, value: int) -> bool:
        fits = item.size <= size and item.cpu <= cpu
        return fits and int(self._table[size - item.size, cpu - item.cpu]) + item.value == value


def _undominated(items: Sequence[_Item], cpu: int) -> list[_Item]:
    """Return the items that are worth something, fit, and are worth more than every one that takes no more."""
    found: list[_Item] = []
    for item in sorted(items, key=lambda one: (-one.value, one.size, one.cpu)):
        if item.value <= 0 or item.cpu > cpu:
            continue
        if not any(other.size <= item.size and other.cpu <= item.cpu for other in found):
            found.append(item)
    return found


def worth(filling: Filling, values: Sequence[int]) -> int:
    """Return what a filling is worth at these values."""
    return sum(values[kind] * number for kind, number in filling)
