"""The size of one pool now, with the reason and its numbers: reads what was learnt, changes nothing."""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np

from warmpool.size.contest import Candidate
from warmpool.size.evidence import Evidence
from warmpool.size.ladder import PRICES
from warmpool.sizing import Size
from warmpool.values import Costs, HitRate

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
# Fewer misses than these, bunches counted once, were to be allowed so far: the rate that came out is luck as well.
_ENOUGH_MISSES: Final = 10.0
_ENOUGH_HOURS: Final = 48.0


class Reason(StrEnum):
    """Why the size is what it is."""

    LEARNT = "Learnt"
    FIRST_DAY = "FirstDay"  # no history: the largest window lately and one more
    HELD = "HeldForReprovisioning"  # what goes must be ordered anew, and was wanted within one lead time
    RECENT_MAXIMUM = "RecentMaximum"  # the forecast's error jumped
    ANNOUNCED = "Announced"  # an autoscaler says that they will be drawn
    NO_DATA = "NoData"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"


def decide(
    evidence: Evidence,
    candidate: Candidate,
    objective: HitRate | Costs,
    *,
    least: int,
    most: int,
    coming: int = 0,
    held: int | None = None,
    saves: tuple[float, float] | None = None,
) -> Size:
    """Return how many nodes to keep warm or ordered.

    Args:
        evidence: What is known of the demand.
        candidate: The rule that acts.
        objective: What for.
        least: Never fewer.
        most: Never more.
        coming: Nodes that will be drawn within one lead time, as autoscalers say.
        held: The last target, where draws are not known now; None = they are.
        saves: Misses that one node more would have saved last week, and idle node-hours it would have cost.
    """
    target, reason = _wanted(evidence, candidate)
    if held is not None:
        target, reason = held, Reason.NO_DATA
    if coming > target:
        target, reason = coming, Reason.ANNOUNCED
    if target < least:
        target, reason = least, Reason.MINIMUM
    if target > most:
        target, reason = most, Reason.MAXIMUM
    enough = is_enough(evidence, objective)
    numbers = {
        "forecast_draws": evidence.forecast,
        "window_s": 60.0 * evidence.window_min,
        "draws_seen": float(evidence.total),
        "hours_seen": evidence.features.seen_min / 60.0,
        "burst_draws": evidence.burst,
        "miss_price_idle_hours": float(PRICES[candidate.price_rung]),
        "debt_misses": candidate.debt,
    }
    quantiles = draws_quantiles(evidence)
    return Size(
        target=target,
        reason=reason.value,
        text=_text(evidence, candidate, objective, target, reason, enough),
        numbers={name: value for name, value in numbers.items() if math.isfinite(value)},
        horizon_s=60.0 * evidence.window_min,
        quantiles=quantiles,
        saves=saves,
        is_informed=enough,
    )


def is_enough(evidence: Evidence, objective: HitRate | Costs) -> bool:
    """Return whether ten misses would have been allowed, bunches counted once: fewer do not tell the goal from luck."""
    if evidence.features.seen_min < 60.0 * _ENOUGH_HOURS:
        return False
    if isinstance(objective, Costs):
        return evidence.total / evidence.bunch >= _ENOUGH_MISSES
    return (1.0 - objective.goal_ratio) * evidence.total / evidence.bunch >= _ENOUGH_MISSES


def draws_quantiles(evidence: Evidence) -> tuple[tuple[float, float], ...]:
    """Return (probability, draws within the window that are not exceeded with it), rising in both; empty = unknown.

    P(W > S) = missed[S] - missed[S + 1] per window: what one node more would have caught.
    """
    tables = evidence.tables()
    if tables is None:
        return ()
    _, missed, windows = tables
    row = missed[evidence.bin] / windows[evidence.bin]
    above = np.minimum.accumulate(np.clip(row[:-1] - row[1:], 0.0, 1.0))
    found = []
    for part in QUANTILES:
        fits = above <= 1.0 - part
        found.append((part, float(fits.argmax()) if fits.any() else float(len(above))))
    return tuple(found)


def is_ordered(quantiles: tuple[tuple[float, float], ...]) -> bool:
    """Return whether no quantile lies below one of a smaller probability."""
    return all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(quantiles))


def _wanted(evidence: Evidence, candidate: Candidate) -> tuple[int, Reason]:
    if evidence.is_first_day or candidate.sizes is None:
        return candidate.target, Reason.FIRST_DAY
    if evidence.is_off and evidence.recent_largest > candidate.target:
        return math.ceil(evidence.recent_largest), Reason.RECENT_MAXIMUM
    now = min(int(candidate.sizes[evidence.bin]), evidence.supported)
    return candidate.target, Reason.LEARNT if candidate.target <= now else Reason.HELD


def _text(
    evidence: Evidence, candidate: Candidate, objective: HitRate | Costs, target: int, reason: Reason, enough: bool
) -> str:
    window = f"{60 * evidence.window_min} s"
    aim = (
        f"{objective.goal_ratio:.3g} of the draws to hit"
        if isinstance(objective, HitRate)
        else f"a miss costs {objective.per_miss:g}, an idle hour {objective.per_idle_hour:g}"
    )
    seen = f"{evidence.forecast:.2g} draws expected within {window}, {aim}"
    short = "" if enough else "; too little history to promise the goal"
    words = {
        Reason.LEARNT: f"{target} wanted by {candidate.rule.value}: {seen}",
        Reason.FIRST_DAY: f"{target} wanted: the largest {window} lately drew {evidence.largest:.0f}, one more is kept",
        Reason.HELD: f"{target} held for {window}, the time in which a node would come back: {seen}",
        Reason.RECENT_MAXIMUM: f"{target} wanted: the forecast errs, so much came within {window} of the last hour",
        Reason.ANNOUNCED: f"{target} wanted: autoscalers say that they will be drawn within {window}",
        Reason.NO_DATA: f"{target} kept: draws are not known now, and unknown is not none",
        Reason.MINIMUM: f"{target} wanted, the least allowed: {seen}",
        Reason.MAXIMUM: f"{target} wanted, the most allowed: {seen}",
    }
    return words[reason] + short
