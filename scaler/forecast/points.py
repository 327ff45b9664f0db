"""The forecast of one horizon at any row of past moments at once, beside the two that know nothing of days."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scaler.forecast.codes import Rates
from scaler.forecast.profile import Floats, profile, ratio

_MEAN_MIN: Final = 10
_LEVEL_MIN: Final = 30
_LEVEL_MOST: Final = 4.0
# Fewer known minutes than a third are too few for a mean.
_KNOWN_SHARE: Final = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """One row per origin, requests/s; nan where it cannot be told.

    Attributes:
        last: The last minute before the origin.
        mean10: Mean of the ten minutes before it.
        profiled: Profile x level.
        combined: Mean of the two before: the forecast.
        actual: What came.
    """

    last: Floats
    mean10: Floats
    profiled: Floats
    combined: Floats
    actual: Floats


def points(rates_rps: Rates, first: int, last: int, horizon_min: int) -> Points:
    """Return what was forecast at each origin o of first..last - 1 for the minute o - 1 + horizon.

    mean10(o) = mean of rates(o - 10 .. o - 1)
    level(o) = clip(sum of rates(o - 30 .. o - 1) / sum of profile over the same known minutes, 1/4, 4)
    combined = (mean10 + profile(o - 1 + horizon) x level) / 2

    The level carries today's size over to the day's shape. The average with the ten-minute mean is the robust one of
    the two: never far behind either on any trace measured (bench/scaler_forecast).

    Args:
        rates_rps: Minutes, oldest first; nan is a gap.
        first: First origin: the index of the first minute that is not known yet; >= 30.
        last: After the last origin; at most len(rates_rps) + 1.
        horizon_min: 1 is the minute at the origin itself.
    """
    size = last - first
    early = first - _LEVEL_MIN
    shape = profile(rates_rps, early, last - 1 + horizon_min)
    seen = rates_rps[early : last - 1].astype(np.float64)
    mean10 = _mean(seen, _LEVEL_MIN, size, _MEAN_MIN)
    both = np.isfinite(seen) & np.isfinite(shape[: len(seen)])
    level = _level(np.where(both, seen, np.nan), np.where(both, shape[: len(seen)], np.nan), size)
    ahead = _LEVEL_MIN - 1 + horizon_min
    profiled = shape[ahead : ahead + size] * level
    actual = np.full(size, np.nan)
    target = first - 1 + horizon_min
    known = rates_rps[target : target + size]
    actual[: len(known)] = known
    return Points(
        last=seen[_LEVEL_MIN - 1 :],
        mean10=mean10,
        profiled=profiled,
        combined=(mean10 + profiled) / 2,
        actual=actual,
    )


def _level(seen: Floats, shape: Floats, size: int) -> Floats:
    now, usual = _mean(seen, _LEVEL_MIN, size, _LEVEL_MIN), _mean(shape, _LEVEL_MIN, size, _LEVEL_MIN)
    # Nothing usual at this hour: any traffic is the most above it that a level may say; none at all is as usual.
    without = np.where(now > 0, _LEVEL_MOST, np.where(np.isfinite(now), 1.0, np.nan))
    level = np.where(usual > 0, ratio(np.nan_to_num(now), np.nan_to_num(usual)), without)
    return np.clip(np.where(np.isfinite(now), level, np.nan), 1 / _LEVEL_MOST, _LEVEL_MOST)


def _mean(values: Floats, first: int, size: int, width: int) -> Floats:
    """Return the means of the known among the `width` values before each of `size` positions from `first` on."""
    known = np.isfinite(values)
    total = np.concatenate(([0.0], np.cumsum(np.where(known, values, 0.0))))
    count = np.concatenate(([0.0], np.cumsum(known)))
    ends = np.arange(first, first + size)
    counted = count[ends] - count[ends - width]
    return ratio(total[ends] - total[ends - width], np.where(counted >= width * _KNOWN_SHARE, counted, 0.0))
