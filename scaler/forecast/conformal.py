"""How far above the forecast the rate must be expected, by the forecast's own recent errors."""

from __future__ import annotations

import math

from scaler.forecast.profile import Floats


def quantile(errors: Floats, confidence_ratio: float) -> float | None:
    """Return the factor that actual / forecast did not exceed with this confidence.

    The k-th smallest of n errors, k = ceil((n + 1) x confidence): split conformal prediction (Vovk, Gammerman and
    Shafer, Algorithmic Learning in a Random World, 2005), here over the newest two days. No distribution is assumed; it
    covers what it says while errors go on as they were. Ratios, because errors grow with the traffic.

    Args:
        errors: Actual / forecast, sorted, shape (n,).
        confidence_ratio: Above 0, below 1.

    Returns:
        None where n is too small for this confidence.
    """
    rank = math.ceil((len(errors) + 1) * confidence_ratio)
    return float(errors[rank - 1]) if 1 <= rank <= len(errors) else None
