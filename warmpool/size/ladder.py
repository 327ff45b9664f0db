"""Sizes as a function of one price: what a miss is worth in idle node-hours.

S_b(p) = argmin_S idle_b[S] + p missed_b[S]

One price for all levels of the forecast, and not one quantile for each, because it spends idle time where a node saves
most misses, and hits are counted per draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEP: Final = 0.25
PRICES: Final[Floats] = np.exp(np.arange(-6.0, 20.0, STEP))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """One rung a price, rising.

    Attributes:
        sizes: Per rung and level, shape (rungs, levels); no rung has a smaller one than the rung below.
        missed: What the real windows would have missed, per rung.
        idle_h: What they would have idled, per rung.
        draws: What was drawn in them.
    """

    sizes: NDArray[np.uint16]
    missed: Floats
    idle_h: Floats
    draws: float

    def rung_for_goal(self, goal_ratio: float) -> int:
        """Return the lowest rung that misses no more than 1 - goal of the draws; where none does, the highest."""
        return self._first_missing(1.0 - goal_ratio)

    def chord_h(self, goal_ratio: float) -> float:
        """Return idle node-hours per miss saved on the way from three times the misses allowed to those allowed.

        A chord and not a tangent: the last misses of a flash crowd have a price without end.
        """
        high, low = self.rung_for_goal(goal_ratio), self._first_missing(3.0 * (1.0 - goal_ratio))
        saved = float(self.missed[low] - self.missed[high])
        return float(self.idle_h[high] - self.idle_h[low]) / saved if saved > 1e-9 else float(PRICES[high])

    def _first_missing(self, part: float) -> int:
        fits = self.missed <= part * self.draws
        return int(fits.argmax()) if fits.any() else len(PRICES) - 1


def rung_of(price_h: float) -> int:
    """Return the rung nearest to a price in idle node-hours per miss."""
    if price_h <= PRICES[0]:
        return 0
    return min(len(PRICES) - 1, round(math.log(price_h / float(PRICES[0])) / STEP))


def ladder(idle_h: Floats, missed: Floats, real_idle_h: Floats, real_missed: Floats, draws: float) -> Ladder:
    """Return the sizes that a pair of tables gives, judged by what was really seen.

    Args:
        idle_h: Per level and size, shape (levels, sizes): what the rule believes.
        missed: Likewise.
        real_idle_h: Sums over real windows, same shape.
        real_missed: Likewise.
        draws: In those windows.
    """
    rows = np.arange(len(idle_h))
    sizes = np.empty((len(PRICES), len(idle_h)), np.uint16)
    missed_sum, idle_sum = np.empty(len(PRICES)), np.empty(len(PRICES))
    cost = np.empty_like(idle_h)
    for rung, price in enumerate(PRICES):
        np.multiply(missed, price, out=cost)
        np.add(cost, idle_h, out=cost)
        best = cost.argmin(axis=1)
        sizes[rung] = best
        missed_sum[rung] = real_missed[rows, best].sum()
        idle_sum[rung] = real_idle_h[rows, best].sum()
    return Ladder(sizes=sizes, missed=missed_sum, idle_h=idle_sum, draws=draws)
