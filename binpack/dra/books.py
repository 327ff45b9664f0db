"""Which claim holds which device: whole, in part, or beside another as an administrator. A function of the claims."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

from binpack.dra.pools import Cell, PoolId, Pools
from fleet.dra import DeviceId, DeviceResult

Used = Mapping[tuple[str, str], int]
Holdings = Mapping[str, Sequence[DeviceResult]]


class BookView(ABC):
    """What can be read of books, kept or imagined."""

    @abstractmethod
    def holdings(self, device: DeviceId) -> Holdings:
        """Return what is held of a device, by the uid of the claim."""

    @abstractmethod
    def counters(self, pool_id: PoolId) -> Used:
        """Return what the held devices of a pool draw, by (counter set, counter); each device draws once."""

    def holders(self, device: DeviceId) -> tuple[str, ...]:
        """Return the uids of the claims that hold any of the device, sorted."""
        return tuple(sorted(self.holdings(device)))

    def is_whole_held(self, device: DeviceId) -> bool:
        """Return True if a claim has the device for itself."""
        return any(not result.share_id for results in self.holdings(device).values() for result in results)

    def is_held(self, device: DeviceId) -> bool:
        """Return True if a claim has all or part of the device."""
        return bool(self.holdings(device))

    def consumed(self, device: DeviceId) -> dict[str, int]:
        """Return what is used of each capacity of a device that claims share."""
        total: dict[str, int] = {}
        for results in self.holdings(device).values():
            for result in results:
                for name, amount in result.consumed:
                    total[name] = total.get(name, 0) + amount
        return total


class Books(BookView):
    """Books of all devices, moved by single claims."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._held: dict[str, tuple[DeviceResult, ...]] = {}
        self._holders: dict[DeviceId, dict[str, list[DeviceResult]]] = {}
        self._in_pool: dict[PoolId, set[DeviceId]] = {}
        self._counters: dict[PoolId, dict[tuple[str, str], int]] = {}

    def book(self, claim: str, results: Iterable[DeviceResult]) -> set[PoolId]:
        """Let these be all that the claim holds; return the pools in which that moves anything."""
        new = tuple(result for result in results if not result.is_admin)
        old = self._held.pop(claim, ())
        if new:
            self._held[claim] = new
        if new == old:
            return set()
        for device in {result.id for result in old}:
            self._holders[device].pop(claim)
            if not self._holders[device]:
                del self._holders[device]
                self._in_pool[device[:2]].discard(device)
        for result in new:
            self._holders.setdefault(result.id, {}).setdefault(claim, []).append(result)
            self._in_pool.setdefault(result.id[:2], set()).add(result.id)
        moved = {result.id[:2] for result in (*old, *new)}
        for pool_id in moved:
            self._counters.pop(pool_id, None)
        return moved

    def pool_changed(self, pool_id: PoolId) -> None:
        """Count the counters of a pool anew whose devices changed."""
        self._counters.pop(pool_id, None)

    def holdings(self, device: DeviceId) -> Holdings:
        """Return what is held of a device, by the uid of the claim."""
        return self._holders.get(device, _NOTHING)

    def counters(self, pool_id: PoolId) -> Used:
        """Return what the held devices of a pool draw, by (counter set, counter); each device draws once."""
        known = self._counters.get(pool_id)
        if known is None:
            known = {}
            held = self._in_pool.get(pool_id, ())
            pool = self._pools.pool(pool_id)
            for cell in pool.cells if pool is not None and held else ():
                if cell.id in held:
                    draw(known, cell)
            self._counters[pool_id] = known
        return known


class Beside(BookView):
    """Books as they would be once some holders are gone and others have taken devices; nothing is booked."""

    def __init__(
        self, books: BookView, pools: Pools, gone: Collection[str], taken: Mapping[str, Iterable[DeviceResult]]
    ) -> None:
        """Imagine it.

        Args:
            books: As they are.
            pools: Of the devices.
            gone: Uids of holders that hold nothing any more.
            taken: What others hold beside, by uid; who is in the books as well is to be among the `gone`.
        """
        self._books = books
        self._pools = pools
        self._gone = frozenset(gone)
        self._taken: dict[DeviceId, dict[str, list[DeviceResult]]] = {}
        self._counters: dict[PoolId, dict[tuple[str, str], int]] = {}
        for holder, results in taken.items():
            for result in results:
                if not result.is_admin:
                    self._taken.setdefault(result.id, {}).setdefault(holder, []).append(result)

    def holdings(self, device: DeviceId) -> Holdings:
        """Return what would be held of a device, by the uid of the claim."""
        held, more = self._books.holdings(device), self._taken.get(device)
        if more is None and self._gone.isdisjoint(held):
            return held
        return {holder: results for holder, results in held.items() if holder not in self._gone} | (more or {})

    def counters(self, pool_id: PoolId) -> Used:
        """Return what the held devices of a pool would draw, by (counter set, counter); each device draws once."""
        known = self._counters.get(pool_id)
        if known is None:
            known = self._counters[pool_id] = {}
            pool = self._pools.pool(pool_id)
            for cell in pool.cells if pool is not None else ():
                if cell.device.uses and self.is_held(cell.id):
                    draw(known, cell)
        return known


def draw(used: dict[tuple[str, str], int], cell: Cell, sign: int = 1) -> None:
    """Add what a device draws while it is held."""
    for counter_set, amounts in cell.device.uses:
        for name, amount in amounts:
            used[counter_set, name] = used.get((counter_set, name), 0) + sign * amount


_NOTHING: Holdings = {}
