"""Asks Prometheus once, when a pool is new, what would have been drawn before."""

from __future__ import annotations

from fleet.clock import Clock
from fleet.prom import Prometheus
from warmpool.past import Draws, chunks, draws_of

_CALL_S = 20.0
_STEP_S = 60.0


class PastDraws:
    """A Prometheus that knows what was drawn.

    Args:
        prometheus: Where to ask.
        clock: What time it is.
    """

    def __init__(self, prometheus: Prometheus, clock: Clock) -> None:
        self._prometheus = prometheus
        self._clock = clock

    async def ask(self, query: str) -> Draws | str:
        """Return what the last four weeks had, or why that is not known.

        Args:
            query: PromQL of the nodes drawn within the minute before.
        """
        wanted = chunks(self._clock.now_s())
        lines: list[tuple[tuple[float, float], ...]] = []
        for minute, count in wanted:
            start_s = 60.0 * (minute + 1)
            end_s = start_s + 60.0 * (count - 1)
            past = await self._prometheus.past(query, start_s=start_s, end_s=end_s, step_s=_STEP_S, timeout_s=_CALL_S)
            if not past.is_answered:
                return f"{past.outcome}: {past.text}"
            lines += past.lines
        first, minutes = wanted[0][0], sum(count for _, count in wanted)
        return draws_of(lines, first, minutes) or "the query gives no value in the last four weeks"
