"""What a pool has earned: draws, misses and idle time of the last four weeks, by the hour. Mutable sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

HOUR_S = 3600.0
DAY_HOURS = 24
KEPT_HOURS = 28 * DAY_HOURS
_MOST = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over some hours."""

    draws: int = 0
    misses: int = 0
    idle_s: float = 0.0
    watched_s: float = 0.0

    @property
    def hit_ratio(self) -> float | None:
        """Return the share of draws that were hits; None = there were none."""
        return 1.0 - self.misses / self.draws if self.draws else None


@dataclass(slots=True)
class Ledger:
    """Sums per hour since the epoch; hours without any are left out."""

    hours: dict[int, list[float]] = field(default_factory=dict)

    def drew(self, wall_s: float, draws: int, misses: int) -> None:
        """Count draws."""
        row = self._row(wall_s)
        row[0] += draws
        row[1] += misses

    def idled(self, wall_s: float, idle_s: float, watched_s: float) -> None:
        """Count node-seconds that were warm and unclaimed, and the time that was watched."""
        row = self._row(wall_s)
        row[2] += idle_s
        row[3] += watched_s

    def sums(self, wall_s: float, hours: int = KEPT_HOURS) -> Sums:
        """Return the sums of the last hours, the current one included."""
        first = int(wall_s // HOUR_S) - hours + 1
        rows = [row for hour, row in self.hours.items() if hour >= first]
        draws, misses, idle_s, watched_s = (sum(row[place] for row in rows) for place in range(4))
        return Sums(draws=round(draws), misses=round(misses), idle_s=idle_s, watched_s=watched_s)

    def rows(self) -> list[list[float]]:
        """Return it to be stored: hour, draws, misses, idle seconds, watched seconds."""
        return [[hour, *(round(value, 1) for value in row)] for hour, row in sorted(self.hours.items())]

    def _row(self, wall_s: float) -> list[float]:
        hour = int(wall_s // HOUR_S)
        row = self.hours.get(hour)
        if row is None:
            row = self.hours[hour] = [0.0, 0.0, 0.0, 0.0]
            for old in [known for known in self.hours if known <= hour - KEPT_HOURS]:
                del self.hours[old]
        return row


def ledger_from(rows: Any) -> Ledger:
    """Return a stored ledger; rows that are none are left out."""
    found: dict[int, list[float]] = {}
    for row in rows if isinstance(rows, list) else ():
        if _is_row(row):
            found[int(row[0])] = [float(value) for value in row[1:5]]
    return Ledger(hours=dict(sorted(found.items())[-KEPT_HOURS:]))


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, Sequence)
        and len(row) == 5
        and all(isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST for value in row)
    )
