"""What is known now about the draws of the coming lead time, as ten numbers, and their forecast.

Each is in draws within the window H: the minute of the day and of the week as usual, the last 10 minutes, hour and day
carried on, nodes freed lately (they come back), a rise, and how far the nodes in use are below what is usual soon or
was so within the hour. The forecast is theta x, theta from non-negative ridge regression. Measured: bench/warmpool.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from warmpool.size.calendar import DAY_MIN, WEEK_MIN, Calendar

Floats = NDArray[np.float64]

COUNT: Final = 10
_FIRST_GUESS: Final = np.array([0.2] * 5 + [0.0] * 5)
# Pulled to the mean of a day, and a little to the minute of the day.
_PRIOR: Final = np.array([0.4, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
_RIDGE: Final = 0.5
_ROUNDS: Final = 30
_DAY_GAIN: Final = 0.2
_WEEK_GAIN: Final = 0.35
_SMOOTH_MIN: Final = 15
_HOUR: Final = 60
_FEW_MIN: Final = 10
_SOON_MIN: Final = 5
_SCALE_LOW, _SCALE_HIGH = 0.5, 2.0


class Features:
    """Mutable means, fed once a minute; 110 KB.

    Attributes:
        day: Draws at each minute of the day.
        week: Draws at each minute of the week.
        usual: Nodes in use at each minute of the day.
        seen_min: Minutes that were seen.
    """

    __slots__ = (
        "_day_mean",
        "_few",
        "_freed_few",
        "_freed_hour",
        "_hour",
        "_in_use",
        "day",
        "seen_min",
        "usual",
        "week",
    )

    def __init__(self) -> None:
        self.day = Calendar(DAY_MIN, _DAY_GAIN)
        self.week = Calendar(WEEK_MIN, _WEEK_GAIN)
        self.usual = Calendar(DAY_MIN, _DAY_GAIN)
        self._in_use: deque[float] = deque(maxlen=_HOUR)
        self._few = self._hour = self._day_mean = self._freed_few = self._freed_hour = 0.0
        self.seen_min = 0

    @property
    def day_mean(self) -> float:
        """Return the draws per minute of the last day."""
        return self._day_mean

    def see(self, minute: int, draws: float, freed: float, in_use: float | None) -> None:
        """Add a minute that has passed; a gap is not added at all."""
        self.seen_min += 1
        self._few += (draws - self._few) / _FEW_MIN
        self._hour += (draws - self._hour) / _HOUR
        self._day_mean += (draws - self._day_mean) / min(self.seen_min, DAY_MIN)
        self._freed_few += (freed - self._freed_few) / _FEW_MIN
        self._freed_hour += (freed - self._freed_hour) / _HOUR
        self.day.see(minute, draws)
        self.week.see(minute, draws)
        if in_use is not None:
            self.usual.see(minute, in_use)
            self._in_use.append(in_use)

    def at(self, minute: int, window_min: int) -> Floats:
        """Return the features at the beginning of `minute`, shape (10,), each >= 0."""
        self.day.refresh(minute)
        self.week.refresh(minute)
        self.usual.refresh(minute)
        span = window_min + 2 * _SMOOTH_MIN
        daily = self.day.mean(minute - _SMOOTH_MIN, span)
        has_week = self.seen_min >= WEEK_MIN + DAY_MIN
        weekly = self.week.mean(minute - _SMOOTH_MIN, span) if has_week else daily
        below_usual, below_hour = self._below(minute, window_min)
        rate = (
            daily, weekly, self._few, self._hour, self._day_mean, self._freed_few, self._freed_hour,
            max(0.0, self._few - self._hour),
        )  # fmt: skip
        return np.array([*(window_min * one for one in rate), below_usual, below_hour])

    def _below(self, minute: int, window_min: int) -> tuple[float, float]:
        if not self._in_use:
            return 0.0, 0.0
        now = self._in_use[-1]
        usual = self.usual.mean(minute - _HOUR, _HOUR)
        level = sum(self._in_use) / len(self._in_use)
        scale = min(_SCALE_HIGH, max(_SCALE_LOW, level / usual)) if usual > 0 else 1.0
        soon = self.usual.largest(minute, window_min + _SOON_MIN + 1) * scale
        return max(0.0, soon - now), max(0.0, max(self._in_use) - now)

    def numbers(self) -> Floats:
        """Return the running means, to be stored."""
        return np.array([self._few, self._hour, self._day_mean, self._freed_few, self._freed_hour, self.seen_min])

    def restore(self, numbers: Floats) -> None:
        """Take running means as they were stored."""
        self._few, self._hour, self._day_mean, self._freed_few, self._freed_hour = map(float, numbers[:5])
        self.seen_min = int(numbers[5])


class Regression:
    """Sums of a weighted ridge regression without negative coefficients."""

    __slots__ = ("moments", "products", "theta")

    def __init__(self) -> None:
        self.products: Floats = np.zeros((COUNT, COUNT))
        self.moments: Floats = np.zeros(COUNT)
        self.theta: Floats = _FIRST_GUESS.copy()

    def add(self, features: Floats, came: float, weight: float) -> None:
        """Add one window."""
        weighted = weight * features
        self.products += weighted[:, None] * features
        self.moments += weighted * came

    def fade(self, factor: float) -> None:
        """Let everything count less."""
        self.products *= factor
        self.moments *= factor

    def solve(self) -> None:
        """Renew theta by coordinate descent from where it is."""
        matrix = self.products + _RIDGE * np.eye(COUNT)
        right = self.moments + _RIDGE * _PRIOR
        theta = self.theta.copy()
        for _ in range(_ROUNDS):
            for row in range(COUNT):
                rest = right[row] - matrix[row] @ theta + matrix[row, row] * theta[row]
                theta[row] = max(0.0, rest / matrix[row, row])
        self.theta = theta
