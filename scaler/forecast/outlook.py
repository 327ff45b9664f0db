"""The forecast of one endpoint now, with its weight and the reason for it: pure, at most once a minute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from scaler.forecast.conformal import quantile
from scaler.forecast.points import Points, points
from scaler.forecast.series import History
from scaler.forecast.skill import Skill, skill, weight
from scaler.horizontal.floor import Floor

# Replicas are wanted for nine minutes of ten that are like this one; the tenth is the reactive rules' to catch.
CONFIDENCE_RATIO: Final = 0.9
# The skill of two days does not turn within minutes, and scoring is the dear part.
_SCORE_EVERY_MIN: Final = 10
# Samples that stopped so long ago leave nothing to look ahead from.
_STALE_MIN: Final = 5


class Standing(StrEnum):
    """Why the forecast counts or does not."""

    EARNED = "Earned"
    NO_SKILL = "NoSkill"  # no better than the last minute or the ten-minute mean
    TOO_YOUNG = "TooLittleHistory"
    NO_DATA = "NoData"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is expected once a replica ordered now is Ready.

    Attributes:
        at_s: When it was made, seconds since the epoch.
        horizon_s: How far it looks ahead: the start time, rounded up to whole minutes.
        standing: Why it counts or does not.
        present_rps: Mean rate of the last ten minutes; None = cannot be told.
        expected_rps: Middle expectation; None = cannot be told.
        rate_rps: Rate that is not exceeded with the confidence; None = cannot be told.
        weight_ratio: What the forecast has earned, 0..1.
        confidence_ratio: Of `rate_rps`.
        gain_ratio: Part of the simpler rule's error that the forecast saved over two days; None = unknown.
        wape_ratio: Its error over two days as part of what came; None = unknown.
        hours: Hours that were scored.
    """

    at_s: float
    horizon_s: float
    standing: Standing
    present_rps: float | None
    expected_rps: float | None
    rate_rps: float | None
    weight_ratio: float
    confidence_ratio: float
    gain_ratio: float | None
    wape_ratio: float | None
    hours: int

    @property
    def floor(self) -> Floor | None:
        """Return what the horizontal axis may add to its need; None while nothing was earned."""
        if self.rate_rps is None or self.weight_ratio <= 0:
            return None
        return Floor(
            rate_rps=self.rate_rps,
            weight_ratio=self.weight_ratio,
            horizon_s=self.horizon_s,
            confidence_ratio=self.confidence_ratio,
        )

    @property
    def text(self) -> str:
        """Return one line for people."""
        if self.standing is Standing.NO_DATA:
            return "no forecast: nothing was seen in the last minutes"
        if self.standing is Standing.TOO_YOUNG:
            return f"no forecast yet: {self.hours} hours could be scored, at least 24 are needed after a day of history"
        gain = 0.0 if self.gain_ratio is None else self.gain_ratio
        rule = "the last minute or the ten-minute mean"
        compared = f"{gain:.0%} better than {rule}" if gain >= 0 else f"{-gain:.0%} worse than {rule}"
        told = f"over {self.hours} hours {compared} at {self.horizon_s:g} s ahead: weight {self.weight_ratio:.2f}"
        if self.rate_rps is None:
            return told
        return f"{told}; {self.rate_rps:.3g} requests/s are not exceeded with {self.confidence_ratio:.0%} confidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookState:
    """What is remembered between two looks; a fresh one costs the hysteresis only."""

    minute: int = -1
    outlook: Outlook | None = None
    scored_minute: int = -1
    scored: Skill | None = None


def look(history: History, state: OutlookState, now_s: float, start_time_s: float) -> tuple[Outlook, OutlookState]:
    """Return the outlook; the same one again until the next minute or another horizon.

    Args:
        history: The endpoint's minutes.
        state: From the last look.
        now_s: Seconds since the epoch, on the clock that fed the history.
        start_time_s: From order to Ready, as planned with: a replica ordered now helps no sooner.
    """
    ahead_min = max(1, math.ceil(start_time_s / 60.0))
    horizon_s = 60.0 * ahead_min
    minute = int(now_s // 60.0)
    earlier = state.outlook
    if earlier is not None and state.minute == minute and earlier.horizon_s == horizon_s:
        return earlier, state
    if history.minute is None or not 0 <= minute - history.minute <= _STALE_MIN:
        outlook = _nothing(now_s, horizon_s, Standing.NO_DATA, None)
        return outlook, OutlookState(minute=minute, outlook=outlook)
    rates_rps = history.rates_rps()
    # The newest closed minute is one behind the open one, and so far behind the target as samples are late.
    steps = ahead_min + 1 + minute - history.minute
    scored, scored_minute = state.scored, state.scored_minute
    if (
        scored is None
        or earlier is None
        or earlier.horizon_s != horizon_s
        or not 0 <= minute - scored_minute < _SCORE_EVERY_MIN
    ):
        scored, scored_minute = skill(rates_rps, steps), minute
    here = points(rates_rps, len(rates_rps), len(rates_rps) + 1, steps)
    outlook = _outlook(now_s, horizon_s, scored, here, 0.0 if earlier is None else earlier.weight_ratio)
    return outlook, OutlookState(minute=minute, outlook=outlook, scored_minute=scored_minute, scored=scored)


def _outlook(now_s: float, horizon_s: float, scored: Skill, here: Points, earlier_ratio: float) -> Outlook:
    present_rps, expected_rps = float(here.mean10[0]), float(here.combined[0])
    if scored.low_ratio is None or not np.isfinite(expected_rps):
        return _nothing(now_s, horizon_s, Standing.TOO_YOUNG, scored)
    factor = quantile(scored.errors, CONFIDENCE_RATIO)
    earned = weight(scored, earlier_ratio)
    return Outlook(
        at_s=now_s,
        horizon_s=horizon_s,
        standing=Standing.EARNED if earned > 0 else Standing.NO_SKILL,
        present_rps=present_rps,
        expected_rps=expected_rps,
        rate_rps=None if factor is None else expected_rps * factor,
        weight_ratio=earned,
        confidence_ratio=CONFIDENCE_RATIO,
        gain_ratio=scored.gain_ratio,
        wape_ratio=scored.wape_ratio,
        hours=scored.hours,
    )


def _nothing(now_s: float, horizon_s: float, standing: Standing, scored: Skill | None) -> Outlook:
    return Outlook(
        at_s=now_s,
        horizon_s=horizon_s,
        standing=standing,
        present_rps=None,
        expected_rps=None,
        rate_rps=None,
        weight_ratio=0.0,
        confidence_ratio=CONFIDENCE_RATIO,
        gain_ratio=None if scored is None else scored.gain_ratio,
        wape_ratio=None if scored is None else scored.wape_ratio,
        hours=0 if scored is None else scored.hours,
    )


def as_status(outlook: Outlook, report_text: str) -> dict[str, object]:
    """Return `status.forecast` of the autoscaler.

    Args:
        outlook: The newest.
        report_text: What it would have changed so far; "" where no account is kept.
    """
    told: dict[str, object] = {
        "standing": outlook.standing.value,
        "weight": round(outlook.weight_ratio, 2),
        "horizonSeconds": outlook.horizon_s,
        "confidence": outlook.confidence_ratio,
        "message": outlook.text,
    }
    if outlook.rate_rps is not None:
        told["rate"] = float(f"{outlook.rate_rps:.3g}")
    return told | ({"report": report_text} if report_text else {})
