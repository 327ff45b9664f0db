"""Latency as a function of concurrency: a straight part, and a capacity that bends it.

R(k) = ((a + b k)^8 + (k / C)^8)^(1/8), throughput X(k) = k / R(k) <= C (asymptotes of operational analysis, Denning and
Buzen 1978, joined smoothly). a: time of a lonely request, b: what each neighbour adds (batching), C: capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.bins import Points
from scaler.vertical.values import Floats

POWER = 8.0
# Capacities tried, as multiples of the highest throughput seen; the last is none.
_TRIED = np.append(np.geomspace(0.6, 1.6, 41), np.inf)
_STRAIGHT_SHARE = 0.5  # a bin tells of a and b while (k / C)^8 is the smaller part
SATURATED_RATIO = 0.6  # a capacity is believed if it leaves less than this of the error without one
SATURATED_GAIN = 6.0  # and if it explains more than chance: chi-squared with one degree of freedom, p = 0.014
_MODEL_NOISE = 0.03**2  # no curve fits closer than 3 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A fitted curve.

    Attributes:
        a_s: Latency of a lonely request.
        b_s: Latency added per request in progress.
        capacity_rps: C; inf where none is needed to explain what was seen.
        is_saturated: Whether the bend was seen.
        is_straight_seen: Whether any bin lay below the bend; without one a and b are unknown.
        lowest_k: Least concurrency among the bins.
        highest_k: Most.
    """

    a_s: float
    b_s: float
    capacity_rps: float
    is_saturated: bool
    is_straight_seen: bool
    lowest_k: float
    highest_k: float

    def latency_s(self, k: Floats) -> Floats:
        """Return R(k), seconds, shape as k."""
        straight = self.a_s + self.b_s * k
        bent = k / self.capacity_rps
        high = np.maximum(straight, bent)
        low = np.minimum(straight, bent)
        return np.asarray(high * (1 + (low / high) ** POWER) ** (1 / POWER), dtype=np.float64)


def fit(points: Points) -> Curve | None:
    """Return the curve nearest to the bins in weighted squared log error, or None where fewer than two bins are known.

    For each capacity tried, a and b >= 0 are the weighted least squares of the straight part on the bins where it is
    the larger. A bin's weight is 1 / (1 / completions + 0.03^2): exponential service times and the model's own error.
    """
    k, latency = points.k, points.latency_s
    if k.size < 2:
        return None
    weight = 1 / (1 / points.completions + _MODEL_NOISE)
    capacity = (_TRIED * (k / latency).max())[:, None]
    bend = (k / capacity / latency) ** POWER
    is_straight = bend < _STRAIGHT_SHARE
    straight = latency * np.where(is_straight, 1 - bend, 1.0) ** (1 / POWER)
    a, b = _line(k, straight, np.where(is_straight, weight / latency**2, 0.0))
    fitted = ((a + b * k) / latency) ** POWER + bend
    error = (weight * (np.log(np.maximum(fitted, 1e-300)) / POWER) ** 2).sum(axis=1)
    best = int(np.argmin(error[:-1]))
    is_saturated = bool(error[best] < SATURATED_RATIO * error[-1] and error[-1] - error[best] > SATURATED_GAIN)
    chosen = best if is_saturated else -1
    return Curve(
        a_s=float(a[chosen, 0]),
        b_s=float(b[chosen, 0]),
        capacity_rps=float(capacity[chosen, 0]),
        is_saturated=is_saturated,
        is_straight_seen=bool(is_straight[chosen].any()),
        lowest_k=float(k[0]),
        highest_k=float(k[-1]),
    )


def _line(k: Floats, straight: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return a and b >= 0 of a weighted line per capacity, shapes (capacities, 1); zeros where no bin has weight."""
    n, sk, skk = weight.sum(axis=1), weight @ k, weight @ (k * k)
    sy, sky = (weight * straight).sum(axis=1), (weight * straight) @ k
    spread = n * skk - sk * sk
    is_line = spread > 1e-9 * n * skk
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = np.where(is_line, (n * sky - sk * sy) / spread, 0.0)
        start = np.where(n > 0, (sy - slope * sk) / n, 0.0)
        level = np.where(n > 0, sy / n, 0.0)
        through_zero = np.where(skk > 0, sky / skk, 0.0)
    is_falling, is_early = slope < 0, start < 0
    a = np.where(is_falling, level, np.where(is_early, 0.0, start))
    b = np.where(is_falling, 0.0, np.where(is_early, through_zero, slope))
    return a[:, None], b[:, None]
