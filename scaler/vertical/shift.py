"""Whether the workload became another one: the old must not judge the new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.bins import Points
from scaler.vertical.curve import Curve
from scaler.vertical.rows import Rows
from scaler.vertical.values import Booleans, Floats

SHIFTED_RATIO = 1.25  # latency / curve outside 0.8..1.25
FORGET_AFTER_CYCLES = 2
HOLD_CYCLES = 2  # after it
DRIFT_SHARE = 0.5  # of a significant difference that old bins take on: half each cycle, so that chance cannot add up
KEPT_REQUESTS = 20.0  # most that an old bin, brought to the new level, counts for when the workload is another one
_SIGNIFICANT = 3.0
_RANGE_RATIO = 1.1  # the curve judges only where it was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How long latency has been off the curve.

    Attributes:
        cycles: In a row.
        hold_cycles: Still to hold after the old bins were set back.
    """

    cycles: int = 0
    hold_cycles: int = 0


def latency_to_curve_ratio(rows: Rows, curve: Curve | None, behind: float) -> float:
    """Return measured / fitted latency where it is significantly outside 0.8..1.25, else 1.

    Args:
        rows: This cycle.
        curve: Of the cycles before; None = there is none yet.
        behind: Requests that the curve was fitted to.
    """
    if curve is None:
        return 1.0
    seen = (rows.k >= curve.lowest_k / _RANGE_RATIO) & (rows.k <= curve.highest_k * _RANGE_RATIO)
    ratio = _significant_ratio(rows, seen, curve.latency_s(rows.k), behind)
    return 1.0 if 1 / SHIFTED_RATIO <= ratio <= SHIFTED_RATIO else ratio


def drift_ratio(rows: Rows, points: Points) -> float:
    """Return measured latency / that of the bins at the same concurrency where the difference is significant, else 1.

    Against the bins, not the curve: where the curve fits badly its error would be taken for a drift, cycle after cycle.
    """
    if points.k.size < 2:
        return 1.0
    seen = (rows.k >= points.k[0]) & (rows.k <= points.k[-1])
    expected = np.exp(np.interp(np.log(np.maximum(rows.k, points.k[0])), np.log(points.k), np.log(points.latency_s)))
    return _significant_ratio(rows, seen, expected, float(points.completions.sum()))


def _significant_ratio(rows: Rows, seen: Booleans, expected_s: Floats, behind: float) -> float:
    """Return sum(completions x latency) / sum(completions x expected), or 1 within three standard errors.

    Sums, because the median of skewed sizes is far below their mean. The error is that of the rows' own spread and of
    what is expected, which the same spread over the requests behind it gives.
    """
    if not seen.any():
        return 1.0
    weight = rows.completions[seen] * expected_s[seen]
    each = rows.latency_s[seen] / expected_s[seen]
    ratio = float(np.average(each, weights=weight))
    error = float(np.sqrt((weight**2 * (each - ratio) ** 2).sum()) / weight.sum())
    error *= float(np.sqrt(1 + rows.completions[seen].sum() / max(behind, 1.0)))
    return ratio if abs(ratio - 1) > _SIGNIFICANT * error else 1.0


def after(shift: Shift, *, is_off: bool) -> Shift:
    """Return the state one cycle later; at FORGET_AFTER_CYCLES the caller sets its bins back."""
    if not is_off:
        return Shift(hold_cycles=max(shift.hold_cycles - 1, 0))
    if shift.cycles + 1 >= FORGET_AFTER_CYCLES:
        return Shift(hold_cycles=HOLD_CYCLES)
    return Shift(cycles=shift.cycles + 1, hold_cycles=shift.hold_cycles)
