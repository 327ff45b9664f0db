"""What else could size the pool: their targets minute by minute, one column a setting."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bench.warmpool.columns import Columns
from bench.warmpool.demand import DAY_MIN, Demand
from bench.warmpool.ours import MOST
from warmpool.size.closed import poisson_size

Floats = NDArray[np.float64]

KNOBS = (
    0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-7, 1e-8,
    1e-9, 1e-10, 1e-11, 1e-12,
)  # fmt: skip
_WEEK_H = 168
_PRICES = np.geomspace(0.01, 1e4, 40)
_FINE = 0.03  # forecasts are told apart to 3 %


def buffers(work: Demand, ratios: tuple[float, ...]) -> Floats:
    """Return a share of the nodes in use, rounded up, shape (minutes, ratios); a gap keeps the last."""
    assert work.in_use is not None
    in_use = np.maximum.accumulate(np.where(np.isfinite(work.in_use), np.arange(work.minutes), 0))
    known = np.nan_to_num(work.in_use[in_use])
    before = np.concatenate((known[:1], known[:-1]))
    return np.stack([np.ceil(ratio * before) for ratio in ratios], axis=1)


def poisson(work: Demand, lead_s: float, goals: tuple[float, ...]) -> Floats:
    """Return the Poisson quantile of the mean rate of the last day, shape (minutes, goals)."""
    counts = np.array([len(draws or ()) for draws in work.draws_s], np.float64)
    total = np.concatenate(([0.0], np.cumsum(counts)))
    first = np.maximum(0, np.arange(work.minutes) - DAY_MIN)
    span = np.maximum(60, np.arange(work.minutes) - first)
    mean = (total[:-1] - total[first]) / span * lead_s / 60.0
    hourly = mean[::60]
    sizes = np.array([[poisson_size(float(one), goal) for goal in goals] for one in hourly], np.float64)
    return np.repeat(sizes, 60, axis=0)[: work.minutes]


def forecast_poisson(forecasts: Floats, window_min: int) -> Floats:
    """Return the Poisson quantile of our own forecast at every knob, held for a lead time, shape (minutes, knobs)."""
    levels = np.rint(np.log(np.maximum(forecasts, 0.01)) / _FINE).astype(np.int64)
    found, place = np.unique(levels, return_inverse=True)
    means = np.exp(found * _FINE)
    sizes = np.arange(MOST + 1)
    logs = np.array([math.lgamma(size + 1) for size in sizes])
    chances = np.exp(sizes[None, :] * np.log(means)[:, None] - means[:, None] - logs[None, :])
    above = np.cumsum(chances[:, ::-1], axis=1)[:, ::-1] - chances
    wanted = np.stack([(above > knob).sum(axis=1) for knob in KNOBS], axis=1).astype(np.float64)[place]
    padded = np.concatenate((np.repeat(wanted[:1], window_min, axis=0), wanted))
    held: Floats = np.lib.stride_tricks.sliding_window_view(padded, window_min + 1, axis=0).max(axis=-1)
    return held


def schedule(fixed: Columns, minutes: int) -> Floats | None:
    """Return a size per hour of the week that the other weeks would have wanted, shape (minutes, prices).

    For each hour S = argmin of idle + p missed over the same hour of the other weeks, by the pools of fixed size. One
    that is fitted on the weeks it is judged by fits their noise: 168 sizes to two to five weeks.
    """
    hours = len(fixed.hourly_draws)
    weeks = -(-hours // _WEEK_H)
    if hours < 2 * _WEEK_H:
        return None
    shape = (weeks, _WEEK_H, fixed.hourly_missed.shape[1])
    idle_h, missed = np.zeros(shape), np.zeros(shape)
    flat = (shape[0] * shape[1], shape[2])
    idle_h.reshape(flat)[:hours] = fixed.hourly_idle_h
    missed.reshape(flat)[:hours] = fixed.hourly_missed
    wanted = np.zeros((weeks * _WEEK_H, len(_PRICES)))
    for week in range(weeks):
        other_idle, other_missed = idle_h.sum(axis=0) - idle_h[week], missed.sum(axis=0) - missed[week]
        for place, price in enumerate(_PRICES):
            wanted[week * _WEEK_H : (week + 1) * _WEEK_H, place] = (other_idle + price * other_missed).argmin(axis=1)
    return np.repeat(wanted, 60, axis=0)[:minutes]
