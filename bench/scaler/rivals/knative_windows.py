"""The averages and maxima of Knative's autoscaler, re-made: pkg/autoscaler/aggregation of knative/serving v0.48.0."""

from __future__ import annotations

import math
from collections import deque


class Buckets:
    """Sums per second in a window of whole seconds, and their mean.

    A second without a value counts as 0 once a later one came; seconds before the first value and after the last do not
    count. A window without any value forgets everything.
    """

    def __init__(self, window_s: int) -> None:
        self._sums = [0.0] * window_s
        self._total = 0.0
        self._first = 0
        self._last: int | None = None

    def record(self, at_s: float, value: float) -> None:
        """Add a value to its second; one that is a window or more older than the last is ignored."""
        second = math.floor(at_s)
        size = len(self._sums)
        if self._last is None or second - self._last >= size:
            self._sums = [0.0] * size
            self._total = 0.0
            self._first = self._last = second
        elif second > self._last:
            for passed in range(self._last + 1, second + 1):
                self._total -= self._sums[passed % size]
                self._sums[passed % size] = 0.0
            self._last = second
        elif second + size <= self._last:
            return
        self._first = min(self._first, second)
        self._sums[second % size] += value
        self._total += value

    def is_empty(self, now_s: float) -> bool:
        """Return whether nothing came for more than a window."""
        return self._last is None or math.floor(now_s) - self._last > len(self._sums)

    def average(self, now_s: float) -> float:
        """Return the mean per second, rounded to 6 digits; 0 if nothing came for a window."""
        size = len(self._sums)
        if self._last is None:
            return 0.0
        silent = math.floor(now_s) - self._last
        if silent >= size:
            return 0.0
        total = self._total
        for passed in range(self._last + 1, self._last + silent + 1):
            total -= self._sums[passed % size]
        counted = min(self._last - self._first + 1, size - max(0, silent))
        return math.floor(total / counted * 1e6 + 0.5) / 1e6


class DelayWindow:
    """Largest count of the last `duration_s`, in steps of one tick."""

    def __init__(self, duration_s: float, tick_s: float) -> None:
        self._tick_s = tick_s
        self._steps = math.ceil(duration_s / tick_s)
        self._falling: deque[tuple[int, int]] = deque()

    def record(self, at_s: float, count: int) -> int:
        """Remember a count, of two in one tick the larger, and return the largest of the window."""
        step = math.floor(at_s / self._tick_s)
        while self._falling and self._falling[-1][1] <= count:
            self._falling.pop()
        while self._falling and step - self._falling[0][0] >= self._steps:
            self._falling.popleft()
        if not self._falling or self._falling[-1][0] != step:
            self._falling.append((step, count))
        return self._falling[0][1]
