"""What the forecast may add to the need: a lower bound of the arrival rate, weighted by what it has earned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A forecast rate at the moment a replica ordered now would be Ready.

    Attributes:
        rate_rps: Arrival rate that is not exceeded with the confidence.
        weight_ratio: 0 = the forecast has earned nothing, 1 = it counts whole.
        horizon_s: How far ahead; never below the start time.
        confidence_ratio: Probability that no more comes, 0..1.
    """

    rate_rps: float
    weight_ratio: float
    horizon_s: float
    confidence_ratio: float

    def raised(self, rate_rps: float) -> float:
        """Return rate + weight max(0, foreseen - rate): a forecast raises, never lowers."""
        return rate_rps + self.weight_ratio * max(0.0, self.rate_rps - rate_rps)
