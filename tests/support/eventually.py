"""Waiting for something to become true, with a deadline and the last thing seen in the message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleet.clock import SystemClock

T = TypeVar("T")

_CLOCK = SystemClock()


async def eventually(
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], object] = bool,
    *,
    within_s: float = 20.0,
    every_s: float = 0.05,
    what: str = "it",
) -> T:
    """Look until it holds, and return what was seen then.

    Raises:
        AssertionError: It did not hold in time; the message shows what was seen last.
    """
    deadline_s = _CLOCK.monotonic_s() + within_s
    while True:
        seen = await look()
        if holds(seen):
            return seen
        if _CLOCK.monotonic_s() >= deadline_s:
            raise AssertionError(f"{what}: not within {within_s:g} s; seen last: {str(seen)[:3000]}")
        await _CLOCK.sleep(every_s)


async def never(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], object], *, for_s: float, what: str = "it"
) -> None:
    """Look for a while, and see to it that it never holds."""
    deadline_s = _CLOCK.monotonic_s() + for_s
    while _CLOCK.monotonic_s() < deadline_s:
        seen = await look()
        assert not holds(seen), f"{what}: {str(seen)[:3000]}"
        await _CLOCK.sleep(0.05)
