"""Shadow fleets: imaginary fleets of every size are fed the real arrivals.

The smallest that would have kept the promise is the level to hold. Each second, over the capacities m in slots::

    e = exp(-1/S);  g = S (1 - e)
    Q += A;  start = min(Q, (m - X e) / g);  X = X e + start g;  Q -= start
    Q = min(Q, 60 s m / S);  late += A  where  Q S / m > longest wait

A: arrivals; S: service time; X: requests in progress; Q: requests waiting. X is there because a pure work queue
over-orders by 42 % when S is long. Who would have waited for 60 s leaves: else small fleets, overloaded all day, are
late for hours after the last real queue (World Cup 8 July, start 60 s: 204K replica-seconds, now 163K).
Measured: bench/scaler.

Only as many sizes are kept as ever had to queue, and one more: all larger ones are equal to that one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scaler.horizontal.arrivals import BIN_S, Floats

_SMALLEST: Final = 0.25  # of a replica
_STEP_RATIO: Final = 1.05
_LONGEST_WAIT_S: Final = 60.0
_MINUTE_S: Final = 60
RECENT_S: Final = 300
_RECENT_ROWS: Final = RECENT_S // BIN_S + 1  # the open one too
RECORD_MINUTES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A capacity that would have kept the promise.

    Attributes:
        slots: The smallest capacity that was late for no more than the share allowed.
        bursts: k, the minutes of the last 30 in which half of that would have been late.
    """

    slots: float
    bursts: int


class ShadowFleets:
    """Mutable sums, fed every second; at 100 sizes and 30 minutes 27 KB."""

    __slots__ = (
        "_arrivals_minute", "_arrivals_recent", "_grid", "_late_minute", "_late_recent", "_minute", "_queued",
        "_recent", "_running", "_scratch", "_second", "_sizes",
    )  # fmt: skip

    def __init__(self, unit_slots: float, most_replicas: int, longest_window_s: float) -> None:
        """Make the smallest grid.

        Args:
            unit_slots: Slots of one replica.
            most_replicas: No larger fleet is imagined.
            longest_window_s: Longest that `level` will be asked for.
        """
        self._grid = _grid(unit_slots, most_replicas)
        minutes = max(RECORD_MINUTES, math.ceil(longest_window_s / _MINUTE_S)) + 1
        self._second = 0
        self._recent, self._minute = 0, 0
        self._arrivals_recent = np.zeros(_RECENT_ROWS)
        self._arrivals_minute = np.zeros(minutes)
        self._sizes: Floats = self._grid[:1].copy()
        self._queued: Floats = np.zeros(1)
        self._running: Floats = np.zeros(1)
        self._scratch: Floats = np.zeros(1)
        self._late_recent: NDArray[np.float32] = np.zeros((_RECENT_ROWS, 1), dtype=np.float32)
        self._late_minute: NDArray[np.float32] = np.zeros((minutes, 1), dtype=np.float32)

    def step(self, arrivals: float, service_s: float, longest_wait_s: float) -> None:
        """Live one second."""
        kept = math.exp(-1.0 / service_s)
        per_start = service_s * (1.0 - kept)
        sizes, queued, running, room = self._sizes, self._queued, self._running, self._scratch
        running *= kept
        queued += arrivals
        while queued[-1] * per_start > sizes[-1] - running[-1] and len(sizes) < len(self._grid):
            self._widen()
            sizes, queued, running, room = self._sizes, self._queued, self._running, self._scratch
        np.subtract(sizes, running, out=room)
        room /= per_start
        np.minimum(room, queued, out=room)
        queued -= room
        room *= per_start
        running += room
        np.multiply(sizes, _LONGEST_WAIT_S / service_s, out=room)
        np.minimum(queued, room, out=queued)
        if arrivals > 0:
            self._arrivals_recent[self._recent] += arrivals
            self._arrivals_minute[self._minute] += arrivals
            if queued[0] * service_s > longest_wait_s * sizes[0]:
                np.multiply(sizes, longest_wait_s / service_s, out=room)
                late = int(np.count_nonzero(queued > room))  # small fleets queue longest: they come first
                self._late_recent[self._recent, :late] += arrivals
                self._late_minute[self._minute, :late] += arrivals
        self._second += 1
        if self._second % BIN_S == 0:
            self._turn()

    def level(self, window_s: float, late_ratio: float) -> Level | None:
        """Return the smallest capacity that was late for at most `late_ratio` of the arrivals of the window.

        The window is rounded up to whole bins; None = nothing arrived in it. Where even the largest was late, that.
        """
        if window_s <= RECENT_S:
            late, arrivals = self._late_recent.sum(axis=0), float(self._arrivals_recent.sum())
        else:
            rows = self._rows(math.ceil(window_s / _MINUTE_S) + 1)
            late, arrivals = self._late_minute[rows].sum(axis=0), float(self._arrivals_minute[rows].sum())
        if arrivals <= 0:
            return None
        fits = late <= late_ratio * arrivals
        place = int(fits.argmax()) if fits.any() else len(fits) - 1
        slots = float(self._sizes[place])
        half = max(int(np.searchsorted(self._sizes, slots / 2, side="right")) - 1, 0)
        # The open minute too, which begins without a burst: k must not fall each time that a minute turns.
        bursts = int(np.count_nonzero(self._late_minute[self._rows(RECORD_MINUTES + 1), half]))
        return Level(slots=slots, bursts=min(bursts, RECORD_MINUTES))

    def rebase(self, unit_slots: float, most_replicas: int) -> None:
        """Go on with another grid: each size takes over what the nearest old one has lived.

        Sizes below the old grid that are smaller than what runs now would have been late all along.
        """
        grid = _grid(unit_slots, most_replicas)
        wanted = max(1, int(np.searchsorted(grid, self._sizes[-1])) + 1)
        sizes = grid[:wanted].copy()
        nearest = np.abs(np.log(sizes[:, None] / self._sizes[None, :])).argmin(axis=1)
        overloaded = sizes < min(float(self._sizes[0]), float(self._running[0]))
        self._grid = grid
        self._sizes = sizes
        self._queued = self._queued[nearest]
        self._running = np.minimum(self._running[nearest], sizes)
        self._scratch = np.zeros(len(sizes))
        self._late_recent = self._late_recent[:, nearest]
        self._late_minute = self._late_minute[:, nearest]
        self._late_recent[:, overloaded] = self._arrivals_recent[:, None]
        self._late_minute[:, overloaded] = self._arrivals_minute[:, None]

    def _rows(self, count: int) -> Floats | NDArray[np.intp]:
        rows = len(self._arrivals_minute)
        return (self._minute - np.arange(min(count, rows))) % rows

    def _turn(self) -> None:
        self._recent = (self._recent + 1) % _RECENT_ROWS
        self._arrivals_recent[self._recent] = 0.0
        self._late_recent[self._recent] = 0.0
        if self._second % _MINUTE_S == 0:
            self._minute = (self._minute + 1) % len(self._arrivals_minute)
            self._arrivals_minute[self._minute] = 0.0
            self._late_minute[self._minute] = 0.0

    def _widen(self) -> None:
        """Add sizes; none of them ever queued, so they are what the largest was until now."""
        have = len(self._sizes)
        more = min(max(4, have // 4), len(self._grid) - have)
        self._sizes = self._grid[: have + more].copy()
        self._queued = np.append(self._queued, np.full(more, self._queued[-1]))
        self._running = np.append(self._running, np.full(more, self._running[-1]))
        self._scratch = np.zeros(have + more)
        self._late_recent = np.pad(self._late_recent, ((0, 0), (0, more)))
        self._late_minute = np.pad(self._late_minute, ((0, 0), (0, more)))


def _grid(unit_slots: float, most_replicas: int) -> Floats:
    """Return the capacities in slots, 5 % apart, from a quarter of a replica to the most.

    Parts of a replica too: what half of a level would have done is asked of small fleets as well.
    """
    most = most_replicas / _SMALLEST
    steps = math.ceil(math.log(most) / math.log(_STEP_RATIO))
    return np.geomspace(_SMALLEST, most_replicas, steps + 1) * unit_slots
