"""What is usual at this minute of the day or of the week."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

DAY_MIN: Final = 1440
WEEK_MIN: Final = 7 * DAY_MIN
_REFRESH_MIN: Final = 60


class Calendar:
    """Exponential means per minute of a period; the first value of a minute counts whole.

    Sums over windows are read from prefix sums that are renewed once an hour: neighbouring minutes are averaged anyway.
    """

    __slots__ = ("_gain", "_means", "_prefix", "_refreshed")

    def __init__(self, period_min: int, gain: float) -> None:
        self._gain = gain
        self._means: NDArray[np.float32] = np.full(period_min, np.nan, np.float32)
        self._prefix: NDArray[np.float64] = np.zeros(period_min + 1)
        self._refreshed = -_REFRESH_MIN

    def see(self, minute: int, value: float) -> None:
        """Add the value of a minute since the epoch."""
        place = minute % len(self._means)
        old = float(self._means[place])
        self._means[place] = value if old != old else old + self._gain * (value - old)

    def refresh(self, minute: int) -> None:
        """Renew the sums if an hour has passed."""
        if 0 <= minute - self._refreshed < _REFRESH_MIN:
            return
        self._refreshed = minute
        known = np.isfinite(self._means)
        filler = float(self._means[known].mean()) if known.any() else 0.0
        values = np.where(known, self._means, filler).astype(np.float64)
        self._prefix[1:] = np.cumsum(values)

    def mean(self, first: int, count: int) -> float:
        """Return the mean over `count` minutes from minute `first` on; an unseen one is as the others."""
        period = len(self._means)
        begin = first % period
        count = min(count, period)
        end = begin + count
        total = self._prefix[min(end, period)] - self._prefix[begin]
        if end > period:
            total += self._prefix[end - period]
        return float(total) / count

    def largest(self, first: int, count: int) -> float:
        """Return the largest mean among `count` minutes from `first` on; 0 where none was seen."""
        values = self._means[np.arange(first, first + count) % len(self._means)]
        known = values[np.isfinite(values)]
        return float(known.max()) if len(known) else 0.0

    @property
    def array(self) -> NDArray[np.float32]:
        """Return the means, nan where unseen; to be stored."""
        return self._means

    def restore(self, means: NDArray[np.float64]) -> None:
        """Take means as they were stored.

        Raises:
            ValueError: They are of another period.
        """
        if means.shape != self._means.shape:
            raise ValueError(f"a calendar of {len(self._means)} minutes cannot hold {means.shape}")
        self._means[...] = means
        self._refreshed = -_REFRESH_MIN
