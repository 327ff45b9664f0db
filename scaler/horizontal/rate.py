"""The request rate: each window earns its vote by its own noise."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from scaler.horizontal.arrivals import BIN_S, Arrivals, Floats

# Window in seconds and how many standard errors it is distrusted by. The longest is the mean that all must at least
# reach; the short ones see a step within 10 s, if the traffic is smooth enough for them to be believed.
_VOTES: Final = ((10, 2.0), (20, 2.0), (60, 1.0), (180, 0.0))


def dispersion(counts: Floats, bins_per_window: int) -> float:
    """Return I, how many times noisier than Poisson the arrivals of a window are; at least 1.

    I_w = mean((c_i - c_{i-1})^2) / (2 mean(c)), c the counts of neighbouring windows of w seconds.

    Differences of neighbours, so that slow trends are not taken for noise. Measured: bench/scaler.

    Args:
        counts: 10 s counts, oldest first; nan = unknown.
        bins_per_window: w / 10 s.
    """
    windows = len(counts) // bins_per_window
    if windows < 2:
        return 1.0
    summed = counts[len(counts) - windows * bins_per_window :]
    if bins_per_window > 1:
        summed = summed.reshape(windows, bins_per_window).sum(axis=1)
    steps = summed[1:] - summed[:-1]
    mean = float(summed.mean())
    if math.isnan(mean):
        steps, known = steps[~np.isnan(steps)], summed[~np.isnan(summed)]
        if not len(steps):
            return 1.0
        mean = float(known.mean())
    if mean <= 0:
        return 1.0
    return max(1.0, float(steps @ steps) / len(steps) / (2 * mean))


def rate_rps(arrivals: Arrivals) -> float | None:
    """Return the rate that counts; None = no window is half known.

    rate = max over w of  l_w - z_w sqrt(I_w l_w / w),  l_w = arrivals of the last w seconds / w,
    w = 10, 20, 60, 180 s with z = 2, 2, 1, 0.

    I_w is taken from before the window: a step must not count as noise against itself. In smooth traffic a step wins
    its vote within 10 s; in bursty traffic a burst does not. Measured: bench/scaler.
    """
    counts = arrivals.bins()
    best: float | None = None
    for window_s, distrust in _VOTES:
        count, known_s = arrivals.over(window_s)
        if 2 * known_s < window_s:
            continue
        level = count / known_s
        vote = level
        if distrust and level > 0:
            vote -= distrust * math.sqrt(
                dispersion(counts[: -(window_s // BIN_S)], window_s // BIN_S) * level / known_s
            )
        best = vote if best is None else max(best, vote)
    return None if best is None else max(best, 0.0)
