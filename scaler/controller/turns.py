"""Turns once a second, from start to start; a turn that fails costs itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fleet.clock import Clock

log = logging.getLogger(__name__)

_MOST_APART_S = 1.5


async def each_second(
    turn: Callable[[], Awaitable[float]], clock: Clock, *, name: str, failed: Callable[[], None]
) -> None:
    """Turn until cancelled, at the time that the turn before asked for where that is near.

    Args:
        turn: What to do; returns when to do it again on the monotonic clock, -inf = a second after its start.
        clock: Time.
        name: For the log.
        failed: Told of each failure, to count it.
    """
    next_s = clock.monotonic_s()
    while True:
        wanted_s = float("-inf")
        try:
            wanted_s = await turn()
        except Exception:
            # Broad on purpose: the one place where a fault of a whole turn is caught.
            failed()
            log.exception("a turn of %s failed", name)
        now_s = clock.monotonic_s()
        next_s = wanted_s if 0 < wanted_s - next_s < _MOST_APART_S else next_s + 1.0
        next_s = max(next_s, now_s)
        await clock.sleep(next_s - now_s)
