"""What giving a device away costs: how much of what its pool could still give is lost. Milli-GPU, like the index's.

    whole device, alone:         1000 + 10 log2(1 + largest capacity)      the smallest that will do goes first
    drawing on shared counters:  1000 (V(before) - V(after)) / V(untouched)
                                 V = sum of (mean part that it takes of its counters)^2 over devices still to be had
    part of a capacity:          1000 (f^2 - (f - a)^2),  f = least free part of its capacities, a = what goes of it

Both squares favour what is broken already over what is whole: a partition goes beside other partitions, and of two
places in one card it takes the one that leaves the larger partitions possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import Final

from binpack.dra.books import draw
from binpack.dra.pools import Cell, Pool

_WHOLE: Final = 1000.0
_PER_DOUBLING: Final = 10.0
_NANO: Final = 10**9
# A device that is given in spite of a taint, and one whose pod must wait for a condition before it is bound.
TAINTED: Final = 500.0
CONDITIONAL: Final = 2000.0


class Values:
    """Prices of devices; what depends on a pool's make alone is worked out once for all pools of that make."""

    def __init__(self) -> None:
        self._lost: dict[tuple[object, ...], float] = {}
        self._makes: dict[int, tuple[Pool, tuple[object, ...]]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def price(
        self,
        cell: Cell,
        used: Mapping[tuple[str, str], int],
        consumed: Mapping[str, int] | None,
        more: Mapping[str, int],
        *,
        is_fresh: bool,
    ) -> float:
        """Return what it costs to give the device.

        Args:
            cell: The device.
            used: What is drawn of its pool's counters.
            consumed: What is used of its capacities; None = it is given whole.
            more: What would be used more.
            is_fresh: Nobody has any of it yet, so that it begins to draw on counters.
        """
        cost = 0.0
        if consumed is not None:
            cost += _part(cell, consumed, more)
        elif not cell.device.uses:
            largest = max((capacity.value for capacity in cell.device.capacity.values()), default=0)
            cost += _WHOLE + _PER_DOUBLING * log2(1 + largest / _NANO)
        if cell.device.uses and is_fresh:
            cost += self._loss(cell, used)
        if cell.device.binding_conditions:
            cost += CONDITIONAL
        return cost

    def _loss(self, cell: Cell, used: Mapping[tuple[str, str], int]) -> float:
        pool = cell.pool
        sets = {counter_set for counter_set, _ in cell.device.uses}
        state = tuple(sorted((key, amount) for key, amount in used.items() if key[0] in sets and amount))
        key = (self._make(pool), cell.device.name, state)
        known = self._lost.get(key)
        if known is None:
            if len(self._lost) > _MOST_KEPT:
                self._lost.clear()
            siblings = [other for other in pool.cells if any(one in sets for one, _ in other.device.uses)]
            before = dict(used)
            after = dict(used)
            draw(after, cell)
            untouched = _worth(pool, siblings, {}) or 1.0
            known = _WHOLE * (_worth(pool, siblings, before) - _worth(pool, siblings, after)) / untouched
            known = known * len(sets) if len(sets) > 1 else known
            self._lost[key] = known
        return known

    def _make(self, pool: Pool) -> int:
        """Return a number that pools of equal devices and counters share."""
        known = self._makes.get(id(pool))
        if known is None or known[0] is not pool:
            make = (
                tuple((cell.device.name, cell.device.uses) for cell in pool.cells if cell.device.uses),
                tuple((name, tuple(sorted(amounts.items()))) for name, amounts in sorted(pool.counters.items())),
            )
            if len(self._makes) > _MOST_KEPT:
                self._makes.clear()
            known = self._makes[id(pool)] = (pool, make)
        return self._numbers.setdefault(known[1], len(self._numbers))


def fits_counters(cell: Cell, used: Mapping[tuple[str, str], int]) -> bool:
    """Return True if the pool's counters still hold what the device draws."""
    totals = cell.pool.counters
    return all(
        used.get((counter_set, name), 0) + amount <= totals[counter_set][name]
        for counter_set, amounts in cell.device.uses
        for name, amount in amounts
    )


def _worth(pool: Pool, cells: list[Cell], used: Mapping[tuple[str, str], int]) -> float:
    total = 0.0
    for cell in cells:
        if fits_counters(cell, used):
            total += _size(pool, cell) ** 2
    return total


def _size(pool: Pool, cell: Cell) -> float:
    """Return which part of its counter sets the device takes, mean over their counters, 0..1."""
    parts = [
        sum(amount / pool.counters[counter_set][name] for name, amount in amounts if pool.counters[counter_set][name])
        / max(1, len(pool.counters[counter_set]))
        for counter_set, amounts in cell.device.uses
    ]
    return sum(parts) / max(1, len(parts))


def _part(cell: Cell, consumed: Mapping[str, int], more: Mapping[str, int]) -> float:
    capacities = cell.device.capacity
    free = min((1 - consumed.get(name, 0) / one.value for name, one in capacities.items() if one.value), default=1.0)
    goes = max((more.get(name, 0) / one.value for name, one in capacities.items() if one.value), default=0.0)
    return _WHOLE * (free**2 - max(0.0, free - goes) ** 2)


_MOST_KEPT: Final = 65_536
