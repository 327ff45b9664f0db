"""What one pool comes to for given draws: size, idle nodes and hits, hour by hour.

Draws within a lead time L are taken as negative binomial with mean m = rate x L and dispersion f (variance over mean,
1 = Poisson); nodes on their way follow the same law (Palm's theorem, exactly so where f = 1)::

    S = least with  P(N <= S - 1) >= goal,    idle = E[(S - N)+]

The rate follows the hours: a pool that is sized by a forecast is resized with them. Replicas of one
node fill it before another is drawn, so a draw of d devices counts d / D of a node of D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from warmpool.advice.values import Cost, Demand, NodeShape

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MOST_NODES = 5000
_HOUR_S = 3600.0
_STEP = math.log(1.03)
_WINDOW_HOURS = 6


def dispersion(hourly: Sequence[float | None]) -> float:
    """Return variance over mean of hourly counts, their slow changes left out; at least 1.

    f = sum (n_h - n_(h-1))^2 / (2 sum n_h) over neighbouring watched hours (von Neumann's mean square of successive
    differences, Ann. Math. Stat. 12, 1941): a daily rhythm does not count as chance, bursts do.
    """
    pairs = [(a, b) for a, b in pairwise(hourly) if a is not None and b is not None]
    total = sum(a + b for a, b in pairs)
    if total <= 0:
        return 1.0
    return max(1.0, sum((b - a) ** 2 for a, b in pairs) / total)


def node_share(demand: Demand, shape: NodeShape) -> float:
    """Return the part of a node of this shape that one draw takes; 0 where it cannot go there."""
    if demand.model and shape.model and demand.model != shape.model:
        return 0.0
    if demand.devices == 0:
        return 1.0 if demand.shape == shape.name else 0.0
    fit = shape.devices // demand.devices
    return 1.0 / fit if fit else 0.0


class Hours:
    """The draws of some demands, hour by hour, as a forecast would have known them: the mean of the last hours.

    Sized by each hour's own count, a pool would look as if chance could be foreseen.
    """

    def __init__(self, demands: Sequence[Demand]) -> None:
        self._rows = {demand.name: row for row, demand in enumerate(demands)}
        hours = max((len(demand.hourly) for demand in demands), default=0)
        counts = np.full((len(demands), hours), np.nan)
        for row, demand in enumerate(demands):
            counts[row, : len(demand.hourly)] = [np.nan if count is None else count for count in demand.hourly]
        self._known = ~np.isnan(counts)
        self._rates = _smoothed(np.nan_to_num(counts), self._known)
        self._mean = np.array([demand.per_hour for demand in demands])
        self._spread = np.array([dispersion(demand.hourly) for demand in demands])

    def cost(self, demands: Sequence[Demand], shape: NodeShape, goal_ratio: float) -> Cost:
        """Return what a pool of this shape comes to that serves these demands.

        Args:
            demands: Of those known here; each can go there (`node_share` above 0).
            shape: Of its nodes.
            goal_ratio: The strictest of theirs.
        """
        rows = np.array([self._rows[demand.name] for demand in demands])
        shares = np.array([node_share(demand, shape) for demand in demands])
        is_known = self._known[rows].any(axis=0)
        means = (shares @ self._rates[rows])[is_known] * (shape.lead_s / _HOUR_S)
        levels, often = np.unique(_rounded(means), return_counts=True)
        if not len(levels):
            return Cost(size=0.0, peak_size=0, idle_nodes=0.0, hour_cost=0.0, hit_ratio=1.0)
        spread = float(_rounded(np.array([self._joint_spread(rows, shares)]))[0])
        sized = np.array([_sized(mean, spread, goal_ratio) for mean in levels.tolist()])
        drawn = levels * often
        idle = float(np.average(sized[:, 1], weights=often))
        return Cost(
            size=float(np.average(sized[:, 0], weights=often)),
            peak_size=int(sized[:, 0].max()),
            idle_nodes=idle,
            hour_cost=idle * shape.hour_cost,
            hit_ratio=float(np.average(sized[:, 2], weights=drawn)) if drawn.sum() > 0 else 1.0,
        )

    def _joint_spread(self, rows: Ints, shares: Floats) -> float:
        """Return variance over mean of all node draws together: sum v^2 f r / sum v r, v the share of a node."""
        node_rates = shares * self._mean[rows]
        total = float(node_rates.sum())
        return max(1.0, float((shares * self._spread[rows] * node_rates).sum()) / total) if total > 0 else 1.0


def _smoothed(counts: Floats, known: Bools) -> Floats:
    """Return the mean of the last watched hours before each one; the mean of all where there is none."""
    hours = counts.shape[1]
    sums = np.cumsum(np.pad(counts * known, ((0, 0), (1, 0))), axis=1)
    many = np.cumsum(np.pad(known.astype(np.float64), ((0, 0), (1, 0))), axis=1)
    first = np.maximum(0, np.arange(hours) - _WINDOW_HOURS)
    window, watched = sums[:, :hours] - sums[:, first], many[:, :hours] - many[:, first]
    overall = sums[:, -1:] / np.maximum(1.0, many[:, -1:])
    found: Floats = np.where(watched > 0, window / np.maximum(1.0, watched), overall)
    return found


@lru_cache(maxsize=65_536)
def _sized(mean: float, spread: float, goal_ratio: float) -> tuple[int, float, float]:
    """Return size, mean idle nodes and hit ratio for one lead time's draws; nothing is kept where nothing comes."""
    if mean <= 0:
        return 0, 0.0, 1.0
    size, below, idle = 0, 0.0, 0.0  # below = P(N <= size - 1), idle = E[(size - N)+]
    probability = _none(mean, spread)
    while below < goal_ratio and size < _MOST_NODES:
        below += probability
        idle += below
        size += 1
        probability *= _step(size, mean, spread)
    return size, idle, min(1.0, below)


def _none(mean: float, spread: float) -> float:
    """Return P(N = 0)."""
    return math.exp(-mean) if spread <= 1.0 else math.exp(-mean / (spread - 1.0) * math.log(spread))


def _step(count: int, mean: float, spread: float) -> float:
    """Return P(N = count) / P(N = count - 1)."""
    if spread <= 1.0:
        return mean / count
    shape = mean / (spread - 1.0)
    return (shape + count - 1) / count * (1.0 - 1.0 / spread)


def _rounded(values: Floats) -> Floats:
    """Return numbers in steps of 3 %, upwards: near ones are worked out once, and never too small."""
    positive = np.maximum(values, 1e-12)
    found: Floats = np.where(values > 0, np.exp(np.ceil(np.log(positive) / _STEP - 1e-9) * _STEP), 0.0)
    return found
