"""True lead times: lognormal, CV 0.3, in steps of 15 s; what sizes a pool has to learn them."""

from __future__ import annotations

import math

import numpy as np

_CV = 0.3
_STEP_S = 15.0
_BLOCK = 4096


class Leads:
    """One after the other; the same seed gives the same."""

    def __init__(self, mean_s: float, *seed: int) -> None:
        self._sigma = math.sqrt(math.log1p(_CV**2))
        self._mu = math.log(mean_s) - self._sigma**2 / 2
        self._random = np.random.default_rng(seed)
        self._drawn: list[float] = []

    def next(self) -> float:
        """Return the next, seconds."""
        if not self._drawn:
            drawn = np.exp(self._mu + self._sigma * self._random.standard_normal(_BLOCK))
            self._drawn = np.maximum(_STEP_S, np.rint(drawn / _STEP_S) * _STEP_S).tolist()
        return self._drawn.pop()
