"""How long an ordered node takes to be warm, as it was seen: a distribution, not a constant."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

# 284 s for the node, 126 s for its init, 101 s for a 5.6 GB image: kaito-project/kaito#2325.
PRIOR_MEAN_S: Final = 511.0
_PRIOR_CV: Final = 0.3
# The prior counts as three nodes; the newest 200 seen are kept, so that a change of cloud or image is forgotten.
_PRIOR_POINTS: Final = (1 / 6, 3 / 6, 5 / 6)
_KEPT: Final = 200
_LONGEST_S: Final = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadTimes:
    """From the order to proven warm.

    Attributes:
        prior_mean_s: Assumed before anything was seen.
        seen_s: Newest last.
    """

    prior_mean_s: float = PRIOR_MEAN_S
    seen_s: tuple[float, ...] = ()
    _sorted_s: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sigma = math.sqrt(math.log1p(_PRIOR_CV**2))
        law = NormalDist(math.log(self.prior_mean_s) - sigma**2 / 2, sigma)
        prior = [math.exp(law.inv_cdf(q)) for q in _PRIOR_POINTS]
        object.__setattr__(self, "_sorted_s", tuple(sorted([*self.seen_s, *prior])))

    def seen(self, lead_s: float) -> LeadTimes:
        """Return the distribution with one more; what is not a duration is ignored, what is endless is cut at 4 h."""
        if not lead_s > 0:
            return self
        kept = (*self.seen_s, min(lead_s, _LONGEST_S))[-_KEPT:]
        return LeadTimes(prior_mean_s=self.prior_mean_s, seen_s=kept)

    @property
    def mean_s(self) -> float:
        """Return the mean; the hit rate of a pool refilled one for one depends on nothing else (Palm's theorem)."""
        return sum(self._sorted_s) / len(self._sorted_s)

    def quantile_s(self, part: float) -> float:
        """Return the lead time that a `part` (0..1) of the orders do not exceed, between the points linear."""
        ordered = self._sorted_s
        place = min(max(part, 0.0), 1.0) * len(ordered) - 0.5
        low = min(max(math.floor(place), 0), len(ordered) - 1)
        high = min(low + 1, len(ordered) - 1)
        rest = min(max(place - low, 0.0), 1.0)
        return ordered[low] + rest * (ordered[high] - ordered[low])
