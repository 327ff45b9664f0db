"""Whether the workload became another one: what was learnt of the old must not judge the new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.curve import Curve
from scaler.vertical.rows import Rows

SHIFTED_RATIO = 1.25  # latency / curve outside 0.8..1.25
FORGET_AFTER_CYCLES = 2
HOLD_CYCLES = 2  # after forgetting
_SIGNIFICANT = 3.0
_RANGE_RATIO = 1.1  # the curve judges only where it was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How long latency has been off the curve.

    Attributes:
        cycles: In a row.
        hold_cycles: Still to hold after the bins were forgotten.
    """

    cycles: int = 0
    hold_cycles: int = 0


def latency_to_curve_ratio(rows: Rows, curve: Curve | None, behind: float) -> float:
    """Return measured / fitted latency where it is significantly outside 0.8..1.25, else 1.

    ratio = sum(completions x latency) / sum(completions x R(k)): sums, because the median of skewed sizes is far below
    their mean. Significant: three standard errors of the rows' own spread and of the curve's, which the same spread
    over the requests behind it gives.

    Args:
        rows: This cycle.
        curve: Of the cycles before; None = there is none yet.
        behind: Requests that the curve was fitted to.
    """
    if curve is None:
        return 1.0
    seen = (rows.k >= curve.lowest_k / _RANGE_RATIO) & (rows.k <= curve.highest_k * _RANGE_RATIO)
    if not seen.any():
        return 1.0
    weight = rows.completions[seen] * curve.latency_s(rows.k[seen])
    each = rows.latency_s[seen] * rows.completions[seen] / weight
    ratio = float(np.average(each, weights=weight))
    error = float(np.sqrt((weight**2 * (each - ratio) ** 2).sum()) / weight.sum())
    error *= float(np.sqrt(1 + rows.completions[seen].sum() / max(behind, 1.0)))
    is_off = not 1 / SHIFTED_RATIO <= ratio <= SHIFTED_RATIO and abs(ratio - 1) > _SIGNIFICANT * error
    return ratio if is_off else 1.0


def after(shift: Shift, *, is_off: bool) -> Shift:
    """Return the state one cycle later; at FORGET_AFTER_CYCLES the caller forgets its bins."""
    if not is_off:
        return Shift(hold_cycles=max(shift.hold_cycles - 1, 0))
    if shift.cycles + 1 >= FORGET_AFTER_CYCLES:
        return Shift(hold_cycles=HOLD_CYCLES)
    return Shift(cycles=shift.cycles + 1, hold_cycles=shift.hold_cycles)
