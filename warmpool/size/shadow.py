"""Shadow pools: imaginary pools of every size are fed the real draws and sampled lead times.

Each keeps its position (warm + ordered) at its size S: a draw takes a warm node and orders the next at once, or misses
and gets its node from elsewhere. So `missed[S]` and `idle_s[S]` are what a fixed pool of S would really have done,
bunches of draws and all; no arrival process is assumed.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Orders that end within the same step are one entry: what is on its way is bounded by the longest lead, not by demand.
STEP_S: Final = 15.0


class ShadowPools:
    """Mutable sums over the sizes 0..most; cost is per draw, not per second.

    Attributes:
        missed: Draws (replicas) that found no warm node, per size, since the beginning.
        idle_s: Node-seconds that were warm and unclaimed, per size, since the beginning.
    """

    __slots__ = ("_coming", "_due", "_now_s", "_warm", "idle_s", "missed")

    def __init__(self, most: int, now_s: float) -> None:
        """Begin full.

        Args:
            most: Largest size imagined.
            now_s: Seconds; every later time is not before it.
        """
        sizes = np.arange(most + 1)
        self._warm: Floats = sizes.astype(np.float64)
        self._coming: dict[float, Floats] = {}
        self._due: list[float] = []
        self._now_s = now_s
        self.missed: Floats = np.zeros(most + 1)
        self.idle_s: Floats = np.zeros(most + 1)

    def draw(self, at_s: float, lead_s: float, weight: float = 1.0) -> None:
        """Take one node of every pool.

        Args:
            at_s: When.
            lead_s: How long the node ordered in its place takes to be warm.
            weight: Replicas that it is for.
        """
        self.advance(at_s)
        warm = self._warm
        hit = warm > 0
        warm -= hit
        self.missed += np.where(hit, 0.0, weight)
        due_s = round((at_s + lead_s) / STEP_S) * STEP_S
        if due_s <= at_s:
            due_s += STEP_S
        coming = self._coming.get(due_s)
        if coming is None:
            self._coming[due_s] = hit.astype(np.float64)
            heapq.heappush(self._due, due_s)
        else:
            coming += hit

    def advance(self, to_s: float) -> None:
        """Let time pass until `to_s`."""
        while self._due and self._due[0] <= to_s:
            due_s = heapq.heappop(self._due)
            self._pass(due_s)
            self._warm += self._coming.pop(due_s)
        self._pass(to_s)

    def _pass(self, to_s: float) -> None:
        if to_s > self._now_s:
            self.idle_s += self._warm * (to_s - self._now_s)
            self._now_s = to_s
