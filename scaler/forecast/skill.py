"""How much better the forecast was lately than no forecast, and what weight that earns.

skill = (sum of the simpler rule's absolute errors - sum of ours) / sum of the simpler rule's
low   = (sum of gains - 1 standard error of that sum) / sum of the simpler rule's errors, gains summed per hour

The simpler rule is whichever of the last minute and the ten-minute mean erred less over the same moments. Neighbouring
minutes err alike, so the standard error is that of hours, not of minutes. Dropping a forecast by its own trailing error
is known from KEDA's PredictKube scaler (a threshold set by hand); here it is compared with what costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scaler.forecast.codes import Rates
from scaler.forecast.points import Points, points
from scaler.forecast.profile import Floats
from scaler.forecast.series import DAY_MIN

# Two days, so that one day's flash crowd is not the whole of the evidence.
SCORED_MIN: Final = 2 * DAY_MIN
# One day of profile and a day of scored hours: a shape that was never seen to repeat earns nothing.
LEAST_HOURS: Final = 24
_HOUR_MIN: Final = 60
_STANDARD_ERRORS: Final = 1.0
# Hysteresis: what is in keeps its place down to half of what it took to get in.
_ENTER: Final = 0.10
_LEAVE: Final = 0.05
_FULL: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """What the last two days say of the forecast at one horizon.

    Attributes:
        hours: Scored, up to 48.
        gain_ratio: Part of the simpler rule's error that the forecast saved; negative = it was worse; None = unknown.
        low_ratio: The same less one standard error; None = unknown.
        wape_ratio: Sum of the forecast's absolute errors / sum of what came; None = unknown or nothing came.
        errors: Actual / forecast of each scored minute, sorted.
    """

    hours: int
    gain_ratio: float | None
    low_ratio: float | None
    wape_ratio: float | None
    errors: Floats


def skill(rates_rps: Rates, horizon_min: int) -> Skill:
    """Return the skill over the newest two days.

    Args:
        rates_rps: Minutes, oldest first; nan is a gap.
        horizon_min: Minutes ahead, at least 1.
    """
    end = len(rates_rps) - horizon_min + 1
    scored = points(rates_rps, max(2 * _HOUR_MIN, end - SCORED_MIN), end, horizon_min)
    known = (
        np.isfinite(scored.actual)
        & np.isfinite(scored.combined)
        & np.isfinite(scored.mean10)
        & np.isfinite(scored.last)
    )
    ours, simple = _errors(scored, known)
    hours, gains = _hourly(simple - ours, known)
    total = float(simple.sum())
    actual = float(np.where(known, scored.actual, 0.0).sum())
    is_known = hours >= LEAST_HOURS and total > 0
    spread = float(np.sqrt(hours * np.var(gains, ddof=1))) if is_known else 0.0
    usable = known & (scored.combined > 0)
    return Skill(
        hours=hours,
        gain_ratio=float(gains.sum()) / total if is_known else None,
        low_ratio=(float(gains.sum()) - _STANDARD_ERRORS * spread) / total if is_known else None,
        wape_ratio=float(ours.sum()) / actual if actual > 0 else None,
        errors=np.sort(scored.actual[usable] / scored.combined[usable]),
    )


def weight(found: Skill, earlier_ratio: float) -> float:
    """Return the weight of the forecast, 0..1.

    clip((low - 0.05) / (0.25 - 0.05), 0, 1) once low has reached 0.10 and until it falls below 0.05; else 0.

    Args:
        found: The skill at the horizon in use.
        earlier_ratio: The weight so far; above 0 = it is in.
    """
    if found.low_ratio is None or found.low_ratio < (_LEAVE if earlier_ratio > 0 else _ENTER):
        return 0.0
    return min(1.0, max(0.01, (found.low_ratio - _LEAVE) / (_FULL - _LEAVE)))


def _errors(scored: Points, known: np.ndarray) -> tuple[Floats, Floats]:
    ours, last, mean10 = (
        np.where(known, np.abs(told - scored.actual), 0.0) for told in (scored.combined, scored.last, scored.mean10)
    )
    return ours, last if last.sum() < mean10.sum() else mean10


def _hourly(gains: Floats, known: np.ndarray) -> tuple[int, Floats]:
    """Return how many hours have at least half their minutes known, and the sum of gains of each."""
    whole = len(gains) // _HOUR_MIN * _HOUR_MIN
    if not whole:
        return 0, np.zeros(0)
    by_hour = known[-whole:].reshape(-1, _HOUR_MIN).sum(axis=1) >= _HOUR_MIN // 2
    sums = gains[-whole:].reshape(-1, _HOUR_MIN).sum(axis=1)
    return int(by_hour.sum()), sums[by_hour]
