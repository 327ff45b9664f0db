"""Cumulative curves of a load: what is in progress and what ends, second by second.

As long as nothing waits, every request starts when it comes, so both curves are known before the run. They are laid out
once for the whole load; only requests that wait, or leave with a draining replica, are corrected.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scaler.simulate.load import Floats, Load

Ints = NDArray[np.int64]


class Curves:
    """Second differences of the work done, and ends per second.

    With B(t) = slot-seconds done until t, the time average in progress of second k is F(k) = B(k + 1) - B(k). A start
    at s = k + f adds 1 - f to F(k) - F(k - 1) and f to the next difference; an end takes the same away.

    Attributes:
        step: F(k) - F(k - 1), shape (seconds + 2,).
        ends: Requests that end in each second, shape (seconds + 2,); what ends later stands in the last two.
        first: Index of the first request that comes in each second, shape (seconds + 1,).
        peak: Most in progress just after an arrival of each second if nothing ever waited, shape (seconds,).
        tail: Requests per second that may still run because they waited, shape (seconds + 2,), as differences.
    """

    def __init__(self, load: Load) -> None:
        seconds = load.duration_s
        self._last = seconds
        self.step = np.zeros(seconds + 2)
        self.ends = np.zeros(seconds + 2, dtype=np.int64)
        self.tail = np.zeros(seconds + 2, dtype=np.int64)
        self.first = np.searchsorted(load.arrival_s, np.arange(seconds + 1))
        ends_s = load.arrival_s + load.service_s
        self.add(load.arrival_s, ends_s, 1)
        self.peak = _peaks(load.arrival_s, ends_s, self.first)

    def add(self, start_s: Floats, end_s: Floats, sign: int) -> None:
        """Enter (sign 1) or take out (sign -1) requests that run from start_s to end_s."""
        self._bend(start_s, sign)
        self.add_ends(end_s, sign)

    def add_ends(self, end_s: Floats, sign: int) -> None:
        """Enter (sign 1) or take out (sign -1) the ends alone."""
        second = self._bend(end_s, -sign)
        np.add.at(self.ends, second, sign)

    def linger(self, planned_end_s: Floats, end_s: Floats, from_second: int) -> None:
        """Note requests that end later than planned: for so long, from a second on, the plan is too low by as many."""
        np.add.at(self.tail, np.maximum(self._second(planned_end_s), from_second), 1)
        np.subtract.at(self.tail, self._second(end_s) + 1, 1)

    def _bend(self, at_s: Floats, sign: int) -> Ints:
        second = self._second(at_s)
        part = np.minimum(at_s, self._last) - second
        np.add.at(self.step, second, sign * (1.0 - part))
        np.add.at(self.step, second + 1, sign * part)
        return second

    def _second(self, at_s: Floats) -> Ints:
        return np.minimum(at_s, self._last).astype(np.int64)


def _peaks(arrival_s: Floats, end_s: Floats, first: Ints) -> Ints:
    """Return the most in progress just after an arrival of each second; 0 where none comes."""
    peak = np.zeros(len(first) - 1, dtype=np.int64)
    if not arrival_s.size:
        return peak
    in_progress = np.arange(1, arrival_s.size + 1) - np.searchsorted(np.sort(end_s), arrival_s, side="right")
    busy = np.flatnonzero(np.diff(first))
    peak[busy] = np.maximum.reduceat(in_progress, first[:-1][busy])
    return peak
