"""Rates in two bytes: a week of minutes must be small, for a thousand endpoints live in one process.

code = round(ln(1 + x) * 65534 / ln(1 + 1e11)), x in requests per minute; 65535 is a gap. The error is at
most 0.02 % of x + 1, far below what a forecast can know, and zero stays exactly zero.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint16]
Rates = NDArray[np.float32]

GAP: Final = 65535
_LARGEST_PER_MINUTE: Final = 1e11
_SCALE: Final = (GAP - 1) / float(np.log1p(_LARGEST_PER_MINUTE))


def _table() -> Rates:
    rates = (np.expm1(np.arange(GAP + 1) / _SCALE) / 60.0).astype(np.float32)
    rates[GAP] = np.nan
    return rates


_RATES: Final = _table()


def encode(rate_rps: float) -> int:
    """Return the code of a rate; what is not finite or negative is a gap, what is huge the largest code."""
    if not 0 <= rate_rps < float("inf"):
        return GAP
    return min(GAP - 1, round(float(np.log1p(rate_rps * 60.0)) * _SCALE))


def encode_all(rates_rps: Rates) -> Codes:
    """Return the codes of rates, shape as given; nan is a gap."""
    known = np.isfinite(rates_rps) & (rates_rps >= 0)
    codes = np.rint(np.log1p(np.where(known, rates_rps, 0.0).astype(np.float64) * 60.0) * _SCALE)
    return np.where(known, np.minimum(codes, GAP - 1), GAP).astype(np.uint16)


def decode(codes: Codes) -> Rates:
    """Return rates in requests/s, shape as given; nan where there is a gap."""
    return _RATES[codes]
