"""What comes: every request with the time it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of an open loop: they come whether or not earlier ones were answered.

    Attributes:
        arrival_s: When each comes, shape (requests,), ascending, within [0, duration_s).
        service_s: How long each holds a slot, shape (requests,), above 0.
        duration_s: Whole seconds from the first to the end.
    """

    arrival_s: Floats
    service_s: Floats
    duration_s: int

    def __post_init__(self) -> None:
        """Refuse what no plant can serve.

        Raises:
            ValueError: Shapes differ, times descend or leave the duration, or a service time is not above 0.
        """
        arrival_s, service_s = self.arrival_s, self.service_s
        if arrival_s.ndim != 1 or arrival_s.shape != service_s.shape:
            raise ValueError(f"arrival_s {arrival_s.shape} and service_s {service_s.shape} must be equal and flat")
        if self.duration_s < 1:
            raise ValueError(f"duration_s must be at least 1, got {self.duration_s}")
        if not arrival_s.size:
            return
        if not (np.isfinite(service_s).all() and service_s.min() > 0):
            raise ValueError("every service time must be finite and above 0")
        if not (np.diff(arrival_s) >= 0).all():
            raise ValueError("arrival_s must ascend")
        if not (arrival_s[0] >= 0 and arrival_s[-1] < self.duration_s):
            raise ValueError(f"arrivals must lie within [0, {self.duration_s}) s")
