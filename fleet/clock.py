"""The one file that reads the clock and sleeps; everything else is given its time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as an argument for the shells; the pure core takes plain numbers instead."""

    def now_s(self) -> float:
        """Return seconds since the epoch: for records and logs, never for durations."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never steps: for durations and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; returns at once for zero or less."""
        ...


def cpu_s() -> float:
    """Return seconds of CPU that this thread has spent: to give up work that takes too much, never to tell time."""
    return time.thread_time()


class SystemClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds on the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(max(0.0, seconds))

    def sleep_blocking(self, seconds: float) -> None:
        """Sleep the calling thread: for the command line, which has no event loop."""
        time.sleep(max(0.0, seconds))
