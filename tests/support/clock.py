"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Generator
from itertools import count

_TURNS = 50


class _OneTurn:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def settle(turns: int = _TURNS) -> None:
    """Let every task that can run do so, without waiting on real time."""
    for _ in range(turns):
        await _OneTurn()


class ManualClock:
    """Time as the test says; sleepers wake in the order of their times."""

    def __init__(self, *, monotonic_s: float = 1000.0, epoch_s: float = 1_800_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._epoch_s = epoch_s - monotonic_s
        self._numbers = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals: list[asyncio.Future[None]] = []

    def now_s(self) -> float:
        return self._epoch_s + self._monotonic_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await _OneTurn()
            return
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic_s + seconds, next(self._numbers), wake))
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)
        self._arrivals.clear()
        await wake

    @property
    def pauses_s(self) -> list[float]:
        """How long each sleeper still has to wait, shortest first."""
        return sorted(due_s - self._monotonic_s for due_s, _, wake in self._sleepers if not wake.done())

    async def until_sleeping(self, sleepers: int = 1) -> None:
        """Wait (on real events, not on time) until this many are asleep."""
        while len(self.pauses_s) < sleepers:
            arrival = asyncio.get_running_loop().create_future()
            self._arrivals.append(arrival)
            await arrival

    async def advance(self, seconds: float) -> None:
        """Move on, waking sleepers one by one at their own times."""
        target_s = self._monotonic_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target_s:
            due_s, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                self._monotonic_s = max(self._monotonic_s, due_s)
                wake.set_result(None)
                await settle()
        self._monotonic_s = max(self._monotonic_s, target_s)
        await settle()

    def spend(self, seconds: float) -> None:
        """Move on while somebody computes: nobody wakes meanwhile."""
        self._monotonic_s += seconds

    def step(self, epoch_seconds: float) -> None:
        """Set the epoch clock forward or back, as NTP may; the monotonic one does not notice."""
        self._epoch_s += epoch_seconds
