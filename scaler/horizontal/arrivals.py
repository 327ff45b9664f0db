"""What arrived in any of the last few minutes, to the second, and in the last half hour, in bins of 10 s."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BIN_S: Final = 10
_SPAN: Final = 256  # seconds of running totals; more than the longest window, 180 s, and two trend windows, 240 s
_BINS: Final = 180  # 30 min


class Arrivals:
    """Running totals, so that any window costs two reads; 6 KB.

    A second whose count is not known adds nothing to either total: windows divide by the seconds that are known.
    """

    __slots__ = ("_bins", "_known", "_open", "_open_known", "_second", "_totals")

    def __init__(self) -> None:
        self._second = 0
        self._totals: Floats = np.zeros(_SPAN)
        self._known: Floats = np.zeros(_SPAN)
        self._bins: Floats = np.full(_BINS, math.nan)
        self._open = 0.0
        self._open_known = 0

    def add(self, count: float | None) -> None:
        """Take the next second; None = not known."""
        last = self._second % _SPAN
        self._second += 1
        place = self._second % _SPAN
        total, known = self._totals[last], self._known[last]
        if count is not None:
            total += count
            known += 1
            self._open += count
            self._open_known += 1
        self._totals[place] = total
        self._known[place] = known
        if self._second % BIN_S == 0:
            self._close()

    def over(self, window_s: int) -> tuple[float, float]:
        """Return arrivals of the last `window_s` (< 256) seconds and how many of those seconds are known."""
        now, then = self._second % _SPAN, (self._second - min(window_s, self._second)) % _SPAN
        return float(self._totals[now] - self._totals[then]), float(self._known[now] - self._known[then])

    def recent_bins(self, count: int) -> Floats:
        """Return the last `count` (<= 25) spans of 10 s that end now, oldest first, as arrivals; shorter at the start.

        Unknown seconds count like the known ones of their span; a span that is mostly unknown is nan.
        """
        count = min(count, self._second // BIN_S)
        edges = (self._second - BIN_S * np.arange(count, -1, -1)) % _SPAN
        known = np.diff(self._known[edges])
        counts: Floats = np.diff(self._totals[edges])
        if (known < BIN_S).any():
            counts = np.where(2 * known >= BIN_S, counts * BIN_S / np.maximum(known, 1), math.nan)
        return counts

    def bins(self) -> Floats:
        """Return the closed 10 s counts of the last 30 min, oldest first; nan = mostly unknown."""
        closed = self._second // BIN_S
        if closed < _BINS:
            return self._bins[:closed]
        return np.roll(self._bins, -(closed % _BINS))

    def _close(self) -> None:
        place = (self._second // BIN_S - 1) % _BINS
        is_known = 2 * self._open_known >= BIN_S
        self._bins[place] = self._open * BIN_S / self._open_known if is_known else math.nan
        self._open, self._open_known = 0.0, 0
