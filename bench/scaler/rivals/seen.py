"""What every rival sees of an endpoint, and the averages they take of it."""

from __future__ import annotations

import math
from collections import deque

from scaler.seen import Sample, usable

# A ratio that is a whole number must not become the next one by the last bit of a float.
_ROUNDING = 1e-9
_TOLERANCE_RATIO = 0.1


def requests(sample: Sample) -> float | None:
    """Return requests in progress and waiting; None if either is unknown, because half a sum is no load.

    Every rival is given the queue, as its own proxy would see it: without it none of them ever notices an overload.
    """
    if not usable(sample.in_flight) or not usable(sample.queued):
        return None
    return (sample.in_flight or 0.0) + (sample.queued or 0.0)


def replicas_for(load: float, target: float) -> int:
    """Return ceil(load / target)."""
    return math.ceil(load / target - _ROUNDING)


def is_near(load: float, target: float, replicas: int) -> bool:
    """Return whether the load is within a tenth of what the replicas are wanted for: both HPA and AIBrix then rest."""
    ratio = load / (target * replicas)
    return 1.0 - _TOLERANCE_RATIO <= ratio <= 1.0 + _TOLERANCE_RATIO


def bounded(wanted: int, maximum: int) -> int:
    """Return the count within 1..maximum.

    Every rival keeps one replica: what a first request waits for a start is not what they are compared by.
    """
    return max(1, min(maximum, wanted))


class WindowMean:
    """Mean over the last seconds; a window that is not filled yet is averaged over what was seen."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._values: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, value: float | None) -> None:
        """Remember a value; None adds nothing."""
        if value is not None:
            self._values.append((at_s, value))

    def at(self, now_s: float) -> float | None:
        """Return the mean of the values in (now - window, now]; None without one."""
        while self._values and self._values[0][0] <= now_s - self._window_s:
            self._values.popleft()
        inside = [value for at_s, value in self._values if at_s <= now_s]
        return math.fsum(inside) / len(inside) if inside else None


class WindowMaximum:
    """Largest count of the last seconds: how most of them hold on before they shrink."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._falling: deque[tuple[float, int]] = deque()

    def add(self, at_s: float, value: int) -> int:
        """Remember a count and return the largest in (at - window, at]."""
        while self._falling and self._falling[-1][1] <= value:
            self._falling.pop()
        self._falling.append((at_s, value))
        while self._falling[0][0] <= at_s - self._window_s:
            self._falling.popleft()
        return self._falling[0][1]
