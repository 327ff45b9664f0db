"""How memory, or another resource, grows with the requests in progress: a running straight line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.values import Floats

CENSORED_RATIO = 0.97  # a full memory says "at least", so it does not count for the line
FADE_RATIO = 0.5 ** (1 / 23)
_FEWEST = 20.0  # readings behind a line
_SIGNIFICANT = 4.0  # slope / standard error


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Faded sums of a regression of a resource y on concurrency k.

    Attributes:
        n: Readings.
        k: Their sum of k.
        y: Of the resource.
        kk: Of k squared.
        ky: Of the products.
        yy: Of the resource squared.
    """

    n: float = 0.0
    k: float = 0.0
    y: float = 0.0
    kk: float = 0.0
    ky: float = 0.0
    yy: float = 0.0

    def with_readings(self, k: Floats, y: Floats) -> Line:
        """Return the line one cycle later; NaN and full readings are left out."""
        known = np.isfinite(y) & (np.nan_to_num(y) < CENSORED_RATIO)
        if not known.any():
            return self
        k, y = k[known], y[known]
        return Line(
            n=self.n * FADE_RATIO + k.size,
            k=self.k * FADE_RATIO + float(k.sum()),
            y=self.y * FADE_RATIO + float(y.sum()),
            kk=self.kk * FADE_RATIO + float(k @ k),
            ky=self.ky * FADE_RATIO + float(k @ y),
            yy=self.yy * FADE_RATIO + float(y @ y),
        )

    def reaches(self, level_ratio: float) -> float | None:
        """Return the concurrency at which the resource reaches a level.

        k = (level - intercept) / slope. None where too little was seen, where the slope is not four standard errors
        above 0 (the resource does not follow the load), or where the level is passed without any request.
        """
        if self.n < _FEWEST:
            return None
        mean_k, mean_y = self.k / self.n, self.y / self.n
        var_k = self.kk / self.n - mean_k**2
        if var_k <= 1e-9 * max(mean_k**2, 1e-9):
            return None
        slope = (self.ky / self.n - mean_k * mean_y) / var_k
        rest = max(self.yy / self.n - mean_y**2 - slope**2 * var_k, 0.0)
        if slope <= 1e-9 or slope < _SIGNIFICANT * (rest / var_k / self.n) ** 0.5:
            return None
        at = mean_k + (level_ratio - mean_y) / slope
        return at if at > 0 else None
