"""Latency as a function of concurrency: a straight part, and a capacity that bends it.

R(k) = ((a + b k)^p + (k / C)^p)^(1/p), throughput X(k) = k / R(k) <= C (asymptotes of operational analysis, Denning and
Buzen 1978, joined smoothly). a: time of a lonely request, b: what each neighbour adds (batching), C: capacity, p: how
sharply one passes into the other; places of a batch end sharply, cores shared with other waits softly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.bins import Points
from scaler.vertical.values import Floats

# Every pair of these is tried; capacities are multiples of the highest throughput surely seen. The last is none.
_POWERS = np.array([16.0, 32.0])
_CAPACITIES = np.geomspace(0.6, 1.6, 41)
_TRIED_POWER = np.append(np.repeat(_POWERS, _CAPACITIES.size), 8.0)[:, None]
_TRIED_CAPACITY = np.append(np.tile(_CAPACITIES, _POWERS.size), np.inf)[:, None]
_STRAIGHT_RATIO = 0.82  # a bin tells of a and b while k / C is less than this part of its latency
SATURATED_RATIO = 0.6  # a capacity is believed if it leaves less than this of the error without one
SATURATED_GAIN = 6.0  # and if it explains more than chance: chi-squared with one degree of freedom, p = 0.014
_FARTHEST_RATIO = 1e6  # of fitted to measured latency: farther off is no nearer to the truth
_FREE = 4  # a, b, C and p
_REFUTED_GAIN = 12.0  # twice that refutes a constant
_WALL_RATIO = 1.02
_MODEL_NOISE = 0.03**2  # no curve fits closer than 3 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A fitted curve.

    Attributes:
        a_s: Latency of a lonely request.
        b_s: Latency added per request in progress.
        power: p.
        capacity_rps: C; inf where none is needed to explain what was seen.
        is_saturated: Whether the bend was seen.
        is_straight_seen: Whether any bin lay below the bend; without one a and b are unknown.
        lowest_k: Least concurrency among the bins.
        highest_k: Most.
    """

    a_s: float
    b_s: float
    power: float
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
        return np.asarray(high * (1 + (low / high) ** self.power) ** (1 / self.power), dtype=np.float64)


def fit(points: Points, around_k: float, wall_k: float | None = None) -> Curve | None:
    """Return the curve nearest to the bins in weighted squared log error, or None where fewer than two bins are known.

    For each capacity and power tried, a and b >= 0 are the weighted least squares of the straight part on the bins
    where it is the larger. A bin's weight is 1 / (1 / completions + 0.03^2): exponential service times and the model's
    own error. Where constant throughput explains the bins as well as the best curve does, and constant latency does
    not, all that was seen lies past the bend: the burden of proof is on more.

    Args:
        points: Bins.
        around_k: L: bins count 1 / (1 + log2(k / L)^2) times, so that what is far away cannot bend the curve here.
        wall_k: Concurrency past which requests fail or memory is full; bins there follow another law. None = unknown.
    """
    known = points.k <= (np.inf if wall_k is None else _WALL_RATIO * wall_k)
    k, latency, completions = points.k[known], points.latency_s[known], points.completions[known]
    if k.size < 2:
        return None
    weight = 1 / (1 / completions + _MODEL_NOISE) / (1 + np.log2(k / around_k) ** 2)
    # Two standard errors below each bin's throughput: a thin bin that was lucky must not hide the capacity.
    capacity = _TRIED_CAPACITY * (k / latency * np.exp(-2 / np.sqrt(completions))).max()
    bend = np.minimum(k / capacity / latency, _FARTHEST_RATIO) ** _TRIED_POWER
    is_straight = k / capacity / latency < _STRAIGHT_RATIO
    straight = latency * np.where(is_straight, 1 - bend, 1.0) ** (1 / _TRIED_POWER)
    a, b = _line(k, straight, np.where(is_straight, weight / latency**2, 0.0))
    fitted = np.minimum((a + b * k) / latency, _FARTHEST_RATIO) ** _TRIED_POWER + bend
    error = (weight * (np.log(np.maximum(fitted, 1e-300)) / _TRIED_POWER) ** 2).sum(axis=1)
    flat, level = _scatter(np.log(k / latency), weight), _scatter(np.log(latency), weight)
    noise = max(1.0, float(error.min()) / max(k.size - _FREE, 1))
    if flat < error.min() + SATURATED_GAIN * noise and flat + _REFUTED_GAIN * noise < level:
        throughput = float(np.exp(np.average(np.log(k / latency), weights=weight)))
        return Curve(
            a_s=0.0,
            b_s=0.0,
            power=8.0,
            capacity_rps=throughput,
            is_saturated=True,
            is_straight_seen=False,
            lowest_k=_low(k, completions),
            highest_k=float(k[-1]),
        )
    best = int(np.argmin(error[:-1]))
    is_saturated = bool(error[best] < SATURATED_RATIO * error[-1] and error[-1] - error[best] > SATURATED_GAIN * noise)
    chosen = best if is_saturated else -1
    return Curve(
        a_s=float(a[chosen, 0]),
        b_s=float(b[chosen, 0]),
        power=float(_TRIED_POWER[chosen, 0]),
        capacity_rps=float(capacity[chosen, 0]),
        is_saturated=is_saturated,
        is_straight_seen=bool(is_straight[chosen].any()),
        lowest_k=float(k[0]),
        highest_k=float(k[-1]),
    )


def _scatter(values: Floats, weight: Floats) -> float:
    """Return the weighted squared error of a constant."""
    return float((weight * (values - np.average(values, weights=weight)) ** 2).sum())


def _low(k: Floats, completions: Floats) -> float:
    """Return the concurrency below which a tenth of the requests lived."""
    share = np.cumsum(completions) / completions.sum()
    return float(k[int(np.searchsorted(share, 0.1))])


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
