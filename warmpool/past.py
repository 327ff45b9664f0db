"""Draws of a time before the pool was there, from what a Prometheus query gives by the minute. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

DAYS: Final = 28
DAY_MIN: Final = 1440
# A server answers 11,000 points of a series at most.
CHUNK_MIN: Final = 7 * DAY_MIN
_MOST_DRAWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What was drawn.

    Attributes:
        minute: The first one, since the epoch.
        by_minute: Nodes drawn in each; None = not known.
    """

    minute: int
    by_minute: tuple[int | None, ...]

    @property
    def known_min(self) -> int:
        """Return how many minutes are known."""
        return sum(count is not None for count in self.by_minute)

    @property
    def total(self) -> int:
        """Return all draws."""
        return sum(count or 0 for count in self.by_minute)


def chunks(now_s: float) -> tuple[tuple[int, int], ...]:
    """Return the last four weeks as (first minute, minutes), oldest first, up to the last whole minute."""
    end = int(now_s // 60)
    starts = range(end - DAYS * DAY_MIN, end, CHUNK_MIN)
    return tuple((start, min(CHUNK_MIN, end - start)) for start in starts)


def draws_of(lines: Iterable[Sequence[tuple[float, float]]], minute: int, count: int) -> Draws | None:
    """Return the draws by minute, several lines added up; None where no minute is known.

    A value with stamp t tells of the minute that ends at t. What `increase` extrapolates to a fraction goes over into
    the next minute's count, so that none is lost; below zero is no count at all. The unknown time before the first
    known minute is left out.

    Args:
        lines: (stamp_s, value) per series.
        minute: The first one that was asked for.
        count: How many were.
    """
    sums: list[float | None] = [None] * count
    for line in lines:
        for stamp_s, value in line:
            place = round(stamp_s / 60.0) - 1 - minute
            if 0 <= place < count and 0.0 <= value <= _MOST_DRAWS:
                sums[place] = (sums[place] or 0.0) + value
    first = next((place for place, one in enumerate(sums) if one is not None), None)
    if first is None:
        return None
    found: list[int | None] = []
    left = 0.0
    for one in sums[first:]:
        if one is None:
            found.append(None)
            continue
        whole = int(one + left + 1e-6)
        left += one - whole
        found.append(whole)
    return Draws(minute=minute + first, by_minute=tuple(found))
