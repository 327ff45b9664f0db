"""The last few seconds of one number, of which some may be unknown."""

from __future__ import annotations

from collections import deque


class Window:
    """Values of the last `seconds` seconds."""

    __slots__ = ("_values",)

    def __init__(self, seconds: int) -> None:
        self._values: deque[float | None] = deque(maxlen=max(1, seconds))

    def add(self, value: float | None) -> None:
        """Take the next second; None = unknown."""
        self._values.append(value)

    def mean(self, age_s: float = 0.0) -> float | None:
        """Return the mean of what is known; None = nothing is.

        Args:
            age_s: Seconds since the last value came: as many of the oldest have left the window by now.
        """
        known = self._known(age_s)
        return sum(known) / len(known) if known else None

    def largest(self) -> float | None:
        """Return the largest of what is known; None = nothing is."""
        known = self._known(0.0)
        return max(known) if known else None

    def resized(self, seconds: int) -> Window:
        """Return the same values in a window of another length."""
        other = Window(seconds)
        other._values.extend(self._values)
        return other

    def _known(self, age_s: float) -> list[float]:
        values = self._values
        gone = 0
        if age_s >= 1.0 and values.maxlen is not None:
            gone = max(0, len(values) - max(0, values.maxlen - int(age_s)))
        return [value for place, value in enumerate(values) if value is not None and place >= gone]
