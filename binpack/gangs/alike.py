"""Which nodes and devices are as good as each other to the resource claims of a gang. Pure.

Drivers publish attributes, a UUID say, that tell every device from every other. What counts is what claims of the gang
read: by which ways a device can be had, the attributes that constraints compare, capacities and counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from binpack.dra.desk import Desk
from binpack.dra.pools import Cell, PoolId, Reach
from binpack.dra.wants import Way
from fleet import labels
from fleet.dra import DeviceId

_CELLS_PER_STEP: Final = 4


@dataclass(slots=True, kw_only=True)
class _Known:
    """What does not change about a node's devices: which look alike to the gang's claims, by a number for each look.

    Attributes:
        reach: The devices that this is about.
        number_of: By device that some claim could have.
        own: Those of them that no other node reaches.
        pools: With counters on which devices here draw.
        common: What counts beside `own`.
    """

    reach: Reach
    number_of: dict[DeviceId, int] = field(default_factory=dict)
    own: list[tuple[Cell, int]] = field(default_factory=list)
    pools: tuple[PoolId, ...] = ()
    common: Hashable = None


class Alike:
    """Tells nodes and devices apart for one gang, on the books of a desk."""

    def __init__(self, desk: Desk, ways: Mapping[Way, int], attributes: Sequence[str], *, by_name: bool) -> None:
        """Prepare.

        Args:
            desk: Whose books count.
            ways: All ways of the claims' requests, numbered.
            attributes: Those that constraints compare.
            by_name: Cards that pods hold by record are told apart by name: members do both.
        """
        self._desk = desk
        self._ways = ways
        self._attributes = attributes
        self._by_name = by_name
        self._numbers: dict[Hashable, int] = {}
        self._nodes: dict[str, _Known] = {}

    def numbers(self, node: str) -> Mapping[DeviceId, int]:
        """Return numbers of devices that claims could have, equal for those alike but for who has them."""
        return self._known(node).number_of

    def looks(self, node: str) -> Hashable:
        """Return everything that counts of a node's devices for these claims, as they are now."""
        books, known = self._desk.books, self._known(node)
        cards: Counter[Hashable] = Counter()
        for cell, look in known.own:
            if books.is_held(cell.id):
                cards[look, books.is_whole_held(cell.id), frozenset(books.consumed(cell.id).items())] += 1
            else:
                cards[look] += 1
        drawn = tuple(frozenset(books.counters(pool_id).items()) for pool_id in known.pools)
        return frozenset(cards.items()), drawn, known.common

    def cards(self, node: str) -> dict[str, int]:
        """Return by id which of a node's cards look how to claims, where members hold cards by record, too."""
        if not self._by_name:
            return {}
        numbers = self._known(node).number_of
        return {name: n for (driver, _, name), n in numbers.items() if driver.startswith(labels.DRA_GPU_DRIVERS)}

    def steps(self, node: str) -> int:
        """Return what a member costs the search on a node, in steps of a member without claims."""
        return 1 + len(self._desk.pools.reach(node).cells) // _CELLS_PER_STEP

    def _known(self, node: str) -> _Known:
        """Return what does not change about a node's devices while they are the same."""
        reach = self._desk.pools.reach(node)
        known = self._nodes.get(node)
        if known is None or known.reach is not reach:
            known = self._nodes[node] = self._looked_at(node, reach)
        return known

    def _looked_at(self, node: str, reach: Reach) -> _Known:
        fits: dict[DeviceId, list[int]] = {}
        for way, number in self._ways.items():
            for cell in self._desk.suitable(node, way):
                fits.setdefault(cell.id, []).append(number)
        known = _Known(reach=reach)
        common: Counter[int] = Counter()
        places: dict[PoolId, int] = {}
        for cell in reach.cells:
            device = cell.device
            if device.uses:
                places.setdefault(cell.pool.id, len(places))
            if cell.id not in fits:
                continue
            values = [device.attributes.get(one) for one in self._attributes]
            is_own = cell.where.node == node
            is_card = self._by_name and cell.id[0].startswith(labels.DRA_GPU_DRIVERS)
            look = (
                tuple(fits[cell.id]),
                tuple((type(value).__name__, value) for value in values),
                device.is_multiple,
                tuple(sorted((name, one.value) for name, one in device.capacity.items())),
                (places[cell.pool.id], device.uses) if device.uses else (),
                (cell.id[2] if is_card else "") if is_own else cell.id,
            )
            number = known.number_of[cell.id] = self._numbers.setdefault(look, len(self._numbers))
            if is_own:
                known.own.append((cell, number))
            else:
                common[number] += 1  # it is in the same state for all who reach it
        known.pools = tuple(places)
        totals = tuple(
            frozenset((name, frozenset(amounts.items())) for name, amounts in pool.counters.items())
            for pool in (self._desk.pools.pool(pool_id) for pool_id in places)
            if pool is not None
        )
        known.common = (frozenset(common.items()), totals)
        return known
