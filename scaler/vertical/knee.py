"""Where more requests in progress stop to pay.

Knee = the smallest k whose throughput reaches 95 % of the largest among all k whose 95th percentile is within the
limit (measured: bench/scaler). Failing and overfull levels are limits of their own: see `errors` and `memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.bins import Points
from scaler.vertical.curve import Curve
from scaler.vertical.values import Floats

ENOUGH_RATIO = 0.95
LOOK_AHEAD_RATIO = 4.0  # a rising curve is read this far past what was seen; how far to go is for `moves` to say
BURST_RATIO = 1.25
_PRIOR_COMPLETIONS = 50.0  # a thin bin leans on the others
_STEP_RATIO = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """What the curve says.

    Attributes:
        k: The knee under the latency limit; None = no concurrency meets the limit.
        throughput_k: The knee with no limit.
        latency_k: Largest concurrency within the latency limit; None = none is, inf = there is no limit or it was not
            met as far as the curve is read.
    """

    k: float | None
    throughput_k: float
    latency_k: float | None


def knee(curve: Curve, points: Points, limit_s: float | None) -> Knee:
    """Return the knee of a curve.

    Args:
        curve: As fitted.
        points: Bins behind it, for the ratio of p95 to mean at each level.
        limit_s: 95th percentile promised; None = no limit.
    """
    if not curve.is_straight_seen:
        # All that was seen lies past the bend: the knee is below it, how far is not known.
        lowest = curve.lowest_k
        return Knee(k=lowest, throughput_k=lowest, latency_k=np.inf)
    k = _levels(_read_up_to(curve))
    latency = curve.latency_s(k)
    throughput = k / latency
    plain = _first(k, throughput)
    if limit_s is None:
        return Knee(k=plain, throughput_k=plain, latency_k=np.inf)
    within = latency * p95_ratio(points, k) <= limit_s
    if not within.any():
        return Knee(k=None, throughput_k=plain, latency_k=None)
    largest = np.inf if within[-1] else float(k[within][-1])
    return Knee(k=_first(k[within], throughput[within]), throughput_k=plain, latency_k=largest)


def _read_up_to(curve: Curve) -> float:
    """Return the highest k that counts: what was seen, or beyond where the last quarter still brought 5 %.

    A curve that is flat where it was seen says nothing of more, and reading it further would turn the noise of its
    start into a knee.
    """
    top = np.array([curve.highest_k / BURST_RATIO, curve.highest_k])
    before, after = top / curve.latency_s(top)
    return curve.highest_k * (LOOK_AHEAD_RATIO if after * ENOUGH_RATIO > before else 1.0)


def p95_ratio(points: Points, k: Floats) -> Floats:
    """Return p95 / mean latency at each level, between the bins straight over ln k; 1 where none was measured."""
    known = np.isfinite(points.p95_s)
    if not known.any():
        return np.ones_like(k)
    ratio = points.p95_s[known] / points.latency_s[known]
    weight = points.completions[known]
    usual = float(np.average(ratio, weights=weight))
    steady = (ratio * weight + usual * _PRIOR_COMPLETIONS) / (weight + _PRIOR_COMPLETIONS)
    return np.interp(np.log(k), np.log(points.k[known]), steady)


def _levels(highest: float) -> Floats:
    """Return 1 to the highest in steps of 1 %: averages of requests in progress need not be whole."""
    count = int(np.ceil(np.log(max(highest, 1.0)) / np.log(_STEP_RATIO)))
    return np.asarray(_STEP_RATIO ** np.arange(count + 1.0))


def _first(k: Floats, throughput: Floats) -> float:
    return float(k[int(np.argmax(throughput >= ENOUGH_RATIO * throughput.max()))])
