"""What this minute of the day was like on the last seven days."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from scaler.forecast.codes import Rates
from scaler.forecast.series import DAY_MIN

_DAYS: Final = 7
_HALF_MIN: Final = 5

Floats = NDArray[np.float64]


def profile(rates_rps: Rates, first: int, last: int) -> Floats:
    """Return the mean rate of the same minute, five either side, on the seven days before.

    profile(m) = mean of rates(m - 1440 d + j), d = 1..7, j = -5..5, over those that are known.
    Seven days beat one (a single day's flash crowd would come back the next day) and need no model of the week
    (measured: bench/scaler_forecast, beside AutoETS, Theta, MSTL and Holt-Winters of statsforecast).

    Args:
        rates_rps: Minutes, oldest first; nan is a gap.
        first: Index of the first minute wanted.
        last: Index after the last; may lie beyond the history by up to a day less six minutes.

    Returns:
        Shape (last - first,), requests/s; nan where nothing is known.
    """
    length = last - first + 2 * _HALF_MIN
    total, count = np.zeros(length + 1), np.zeros(length + 1)
    for day in range(1, _DAYS + 1):
        begin = first - _HALF_MIN - day * DAY_MIN
        low, high = max(begin, 0), min(begin + length, len(rates_rps))
        if low < high:
            part = rates_rps[low:high]
            known = np.isfinite(part)
            total[1 + low - begin : 1 + high - begin] += np.where(known, part, 0.0)
            count[1 + low - begin : 1 + high - begin] += known
    total, count = np.cumsum(total), np.cumsum(count)
    width = 2 * _HALF_MIN + 1
    return ratio(total[width:] - total[:-width], count[width:] - count[:-width])


def ratio(above: Floats, below: Floats) -> Floats:
    """Return above / below, nan where there is nothing to divide by; what cumulated sums left below zero is zero."""
    answer = np.full(len(above), np.nan)
    np.divide(np.maximum(above, 0.0), below, out=answer, where=below > 0)
    return answer
