"""Chooses devices on one node for claims: every rule of the API, the least valuable devices first, with backtracking.

kube-scheduler takes the first devices that fit (kubernetes/enhancements#4970); here candidates are tried in order of
what giving them away costs (binpack/dra/value.py), so that what is whole stays whole. Requests are taken in the claim's
order and prioritised lists in theirs. A search that would take too long ends with an answer that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from binpack.dra.allocations import Pick, allocation_of
from binpack.dra.amounts import consumed, fits
from binpack.dra.books import BookView, draw
from binpack.dra.pools import Cell, PoolId, Reach
from binpack.dra.value import TAINTED, Values, fits_counters
from binpack.dra.wants import Want, Way, covers
from fleet.dra import MOST_RESULTS, ClaimChoice, DeviceId

_MOST_STEPS = 30_000  # devices looked at, for each constraint
_MOST_CLAIMS, _MOST_REQUESTS, _MOST_DEVICES = 64, 96, 256  # of one pod: the search is as deep as they are many
_LATER_WAY = 100_000.0  # a way further down a prioritised list costs more than any choice of devices within one
_PER_FREE_PEER = 1.0  # of nodes alike in all else, the one with the fewest free devices of the kind is taken
_NOTHING: Mapping[tuple[str, str], int] = {}


class Obstacle(Enum):
    """Why a node cannot give a claim its devices."""

    NONE_MATCH = "none-match"  # no device here is of the kind, whoever has it
    IN_USE = "in-use"  # there are enough of the kind, and too few of them are free
    POOL_CLOSED = "pool-closed"  # a pool here is incomplete or contradicts itself
    CONSTRAINT = "constraint"  # enough are free, and no choice of them meets the claim's constraints
    TOO_LONG = "too-long"  # the search was given up
    HELD_ELSEWHERE = "held-elsewhere"  # a claim is allocated already, for other nodes


@dataclass(frozen=True, slots=True)
class Chosen:
    """Devices for every claim, and what they cost (milli-GPU)."""

    search: _Search | None
    cost: float

    @property
    def choices(self) -> tuple[ClaimChoice, ...]:
        """Return the allocations; of many nodes' answers only one's are ever asked."""
        return tuple(self.search.choices()) if self.search is not None else ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there are none: the obstacle, the request that met it, how many devices it wants, how many are to be had."""

    obstacle: Obstacle
    request: str = ""
    wanted: int = 0
    free: int = 0
    detail: str = ""


Suitable = Callable[[Way], Sequence[Cell]]


def choose(
    node: str, wants: Sequence[Want], reach: Reach, suitable: Suitable, books: BookView, values: Values
) -> Chosen | Refused:
    """Return devices for all claims, or why there are none.

    Args:
        node: Where the pod would be.
        wants: Claims without devices.
        reach: What the node reaches.
        suitable: Returns the devices of `reach` that a way allows, whoever has them.
        books: What is held.
        values: Prices.
    """
    if len(wants) > _MOST_CLAIMS or sum(len(want.ways) for want in wants) > _MOST_REQUESTS:
        return Refused(Obstacle.TOO_LONG)
    search = _Search(node, wants, reach, suitable, books, values)
    if search.claim(0):
        return Chosen(search, search.cost)
    if search.steps >= _MOST_STEPS:
        return Refused(Obstacle.TOO_LONG)
    refused = search.refused or Refused(Obstacle.CONSTRAINT)
    if reach.problems and refused.obstacle is Obstacle.NONE_MATCH:
        return Refused(Obstacle.POOL_CLOSED, refused.request, refused.wanted, refused.free, reach.problems[0])
    return refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Ways to satisfy claims on one node, the cheapest first found; `is_all` = there are no others that differ."""

    choices: tuple[tuple[ClaimChoice, ...], ...]
    is_all: bool


Alike = Callable[[Cell], Hashable]


def choose_each(
    node: str,
    wants: Sequence[Want],
    reach: Reach,
    suitable: Suitable,
    books: BookView,
    values: Values,
    *,
    alike: Alike,
    most: int,
) -> Ways:
    """Return ways to give all claims their devices that differ in what they leave.

    Args:
        node: Where the pod would be.
        wants: Claims without devices.
        reach: What the node reaches.
        suitable: Returns the devices of `reach` that a way allows, whoever has them.
        books: What is held.
        values: Prices.
        alike: Equal for devices of the node that are as good as each other while nobody has any of them.
        most: Ways to return; as many mean that there may be others.
    """
    if len(wants) > _MOST_CLAIMS or sum(len(want.ways) for want in wants) > _MOST_REQUESTS:
        return Ways(choices=(), is_all=False)
    found: list[tuple[ClaimChoice, ...]] = []
    search = _Search(node, wants, reach, suitable, books, values)

    def accept() -> bool:
        found.append(tuple(search.choices()))
        return len(found) >= most

    search.alike, search.accept = alike, accept
    is_cut = search.claim(0) or search.steps >= _MOST_STEPS
    return Ways(choices=tuple(found), is_all=not is_cut)


@dataclass(slots=True)
class _Search:
    node: str
    wants: Sequence[Want]
    reach: Reach
    suitable: Suitable
    books: BookView
    values: Values
    steps: int = 0
    given: int = 0
    cost: float = 0.0
    refused: Refused | None = None
    picks: list[list[Pick]] = field(default_factory=list)
    ways: list[list[Way]] = field(default_factory=list)
    taken: dict[DeviceId, int] = field(default_factory=dict)
    shared: dict[DeviceId, dict[str, int]] = field(default_factory=dict)
    sharers: dict[DeviceId, int] = field(default_factory=dict)
    drawn: dict[PoolId, dict[tuple[str, str], int]] = field(default_factory=dict)
    used: dict[PoolId, dict[tuple[str, str], int]] = field(default_factory=dict)  # `drawn` beside what is held
    alike: Alike | None = None
    accept: Callable[[], bool] | None = None

    def claim(self, number: int) -> bool:
        """Allocate the claims from this one on."""
        if number == len(self.wants):
            return self.accept is None or self.accept()
        self.picks.append([])
        self.ways.append([])
        if self._request(number, 0):
            return True
        self.picks.pop()
        self.ways.pop()
        return False

    def _request(self, claim: int, number: int) -> bool:
        want = self.wants[claim]
        if number == len(want.ways):
            return self.claim(claim + 1)
        for place, way in enumerate(want.ways[number]):
            before = self.cost
            self.cost += _LATER_WAY * place
            self.ways[claim].append(way)
            if self._way(claim, number, way):
                return True
            self.ways[claim].pop()
            self.cost = before
        return False

    def _way(self, claim: int, number: int, way: Way) -> bool:
        if self.steps >= _MOST_STEPS:
            return False
        matching = self.suitable(way)
        self.steps += 1 + len(matching)
        wanted = way.option.count or len(matching)
        if not way.option.count and self.reach.problems:
            self._note(Refused(Obstacle.POOL_CLOSED, way.title, detail=self.reach.problems[0]))
            return False
        if not matching or len(matching) < wanted:
            self._note(Refused(Obstacle.NONE_MATCH, way.title, max(1, wanted), len(matching)))
            return False
        if wanted > MOST_RESULTS - len(self.picks[claim]):
            self._note(Refused(Obstacle.NONE_MATCH, way.title, wanted, MOST_RESULTS, "more than one claim can hold"))
            return False
        if wanted > _MOST_DEVICES - self.given:
            self.steps = _MOST_STEPS
            return False
        free = [cell for cell in matching if self._is_free(cell, way, claim)]
        if len(free) < wanted:
            self._note(Refused(Obstacle.IN_USE, way.title, wanted, len(free)))
            return False
        priced = sorted(((self._price(cell, way), place, cell) for place, cell in enumerate(free)), key=_by_price)
        peers = _PER_FREE_PEER * (len(free) - wanted)
        self.cost += peers
        if self._devices(claim, number, way, wanted, [cell for _, _, cell in priced]):
            return True
        self.cost -= peers
        self._note(Refused(Obstacle.CONSTRAINT, way.title, wanted, len(free)))
        return False

    def _devices(self, claim: int, number: int, way: Way, wanted: int, cells: list[Cell]) -> bool:
        """Give `wanted` of these devices, in this order; each combination is tried once."""
        if wanted == 0:
            return self._request(claim, number + 1)
        tried: set[Hashable] = set()
        for place, cell in enumerate(cells):
            if len(cells) - place < wanted:
                return False
            if self.alike is not None:
                looks = (self.alike(cell), *sorted(self._consumed(cell).items()))
                if looks in tried:
                    continue
                tried.add(looks)
            self.steps += 1
            if self.steps >= _MOST_STEPS:
                return False
            if not self._is_free(cell, way, claim) or not self._agrees(claim, way, cell):
                continue
            pick = self._take(claim, way, cell)
            self.steps += (len(cells) - place) * (1 + len(self.wants[claim].constraints))
            rest = [other for other in cells[place + 1 :] if self._agrees(claim, way, other)]
            if len(rest) >= wanted - 1 and self._devices(claim, number, way, wanted - 1, rest):
                return True
            self._untake(claim, pick)
        return False

    # -- one device --------------------------------------------------------------------------------------------

    def _is_free(self, cell: Cell, way: Way, claim: int) -> bool:
        if way.option.is_admin:
            return all(pick.cell.id != cell.id for pick in self.picks[claim])
        if cell.id in self.taken or self.books.is_whole_held(cell.id):
            return False
        more = consumed(cell.device, way.option.capacity)
        if more is None:
            return False
        if not cell.device.is_multiple:
            return not self.books.is_held(cell.id) and fits_counters(cell, self._used(cell))
        if not fits(cell.device, self._consumed(cell), more):
            return False
        return self._is_begun(cell) or fits_counters(cell, self._used(cell))

    def _is_begun(self, cell: Cell) -> bool:
        return self.books.is_held(cell.id) or self.sharers.get(cell.id, 0) > 0

    def _used(self, cell: Cell) -> Mapping[tuple[str, str], int]:
        """Return what is drawn of the pool, held or taken in this search."""
        if not cell.device.uses:
            return _NOTHING
        pool_id = cell.pool.id
        more = self.drawn.get(pool_id)
        if not more:
            return self.books.counters(pool_id)
        known = self.used.get(pool_id)
        if known is None:
            known = self.used[pool_id] = dict(self.books.counters(pool_id))
            for key, amount in more.items():
                known[key] = known.get(key, 0) + amount
        return known

    def _draw(self, cell: Cell, sign: int = 1) -> None:
        """Note that a device begins to draw on its pool's counters, or ends."""
        draw(self.drawn.setdefault(cell.pool.id, {}), cell, sign)
        self.used.pop(cell.pool.id, None)

    def _consumed(self, cell: Cell) -> dict[str, int]:
        held = self.books.consumed(cell.id)
        for name, amount in self.shared.get(cell.id, {}).items():
            held[name] = held.get(name, 0) + amount
        return held

    def _price(self, cell: Cell, way: Way) -> float:
        if way.option.is_admin:
            return 0.0
        more = consumed(cell.device, way.option.capacity) or {}
        price = self.values.price(
            cell,
            self._used(cell),
            self._consumed(cell) if cell.device.is_multiple else None,
            more,
            is_fresh=not self._is_begun(cell),
        )
        return price + TAINTED * len(cell.taints)

    def _agrees(self, claim: int, way: Way, cell: Cell) -> bool:
        for constraint in self.wants[claim].constraints:
            if not covers(constraint, way.title):
                continue
            value = cell.device.attributes.get(constraint.attribute)
            if value is None:
                return False
            for pick in self.picks[claim]:
                if not covers(constraint, pick.way.title):
                    continue
                other = pick.cell.device.attributes[constraint.attribute]
                is_same = type(other) is type(value) and other == value
                if is_same is constraint.is_distinct:
                    return False
        return True

    def _take(self, claim: int, way: Way, cell: Cell) -> Pick:
        more = consumed(cell.device, way.option.capacity) or {}
        began = not way.option.is_admin and not self._is_begun(cell)
        pick = Pick(way, cell, more, began, self._price(cell, way))
        self.picks[claim].append(pick)
        self.given += 1
        self.cost += pick.cost
        if way.option.is_admin:
            return pick
        if began and cell.device.uses:
            self._draw(cell)
        if cell.device.is_multiple:
            used = self.shared.setdefault(cell.id, {})
            for name, amount in more.items():
                used[name] = used.get(name, 0) + amount
            self.sharers[cell.id] = self.sharers.get(cell.id, 0) + 1
        else:
            self.taken[cell.id] = claim
        return pick

    def _untake(self, claim: int, pick: Pick) -> None:
        cell = pick.cell
        self.picks[claim].pop()
        self.given -= 1
        self.cost -= pick.cost
        if pick.way.option.is_admin:
            return
        if pick.began and cell.device.uses:
            self._draw(cell, -1)
        if cell.device.is_multiple:
            for name, amount in pick.more.items():
                self.shared[cell.id][name] -= amount
            self.sharers[cell.id] -= 1
        else:
            del self.taken[cell.id]

    def _note(self, refused: Refused) -> None:
        """Keep the obstacle that came nearest to an answer."""
        order = [Obstacle.NONE_MATCH, Obstacle.POOL_CLOSED, Obstacle.IN_USE, Obstacle.CONSTRAINT]
        old = self.refused
        if old is None or order.index(refused.obstacle) > order.index(old.obstacle):
            self.refused = refused

    # -- the answer --------------------------------------------------------------------------------------------

    def choices(self) -> list[ClaimChoice]:
        """Return what the search ended with."""
        return [
            ClaimChoice(claim_uid=want.uid, allocation=allocation_of(self.node, want, picks, ways))
            for want, picks, ways in zip(self.wants, self.picks, self.ways, strict=True)
        ]


def _by_price(row: tuple[float, int, Cell]) -> tuple[float, int]:
    return row[0], row[1]
