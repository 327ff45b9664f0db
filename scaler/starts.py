"""How long a replica takes from order to Ready, learnt as a distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from scaler.policy import LONGEST_S

_KEPT: Final = 64
_PRIOR_WEIGHT: Final = 3  # starts that the stated start time counts as, until real ones outvote it
_PLANNING_QUANTILE: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """The last starts of one model, and what was said before any was seen.

    Attributes:
        prior_s: `behavior.startTimeSeconds`; counts as 3 starts.
        ready_s: From order to Ready, newest last, at most 64.
        scheduled_s: From order to a node, newest last, at most 64.
        rejected: Durations that were not a number, infinite or negative.
    """

    prior_s: float
    ready_s: tuple[float, ...] = ()
    scheduled_s: tuple[float, ...] = ()
    rejected: int = 0

    def seen(self, duration_s: float, scheduled_s: float | None = None) -> StartTimes:
        """Return the distribution with one more start.

        Args:
            duration_s: From order to Ready.
            scheduled_s: From order to a node; None = not known.
        """
        if not (math.isfinite(duration_s) and duration_s >= 0):
            return replace(self, rejected=self.rejected + 1)
        scheduled = self.scheduled_s
        if scheduled_s is not None and math.isfinite(scheduled_s) and 0 <= scheduled_s <= duration_s:
            scheduled = (*scheduled, scheduled_s)[-_KEPT:]
        return replace(self, ready_s=(*self.ready_s, duration_s)[-_KEPT:], scheduled_s=scheduled)

    def quantile_s(self, ratio: float) -> float:
        """Return the smallest duration that at least `ratio` of the starts did not exceed, the prior among them."""
        known = sorted((*self.ready_s, *(self.prior_s,) * _PRIOR_WEIGHT))
        return known[min(len(known) - 1, max(0, math.ceil(ratio * len(known)) - 1))]

    @property
    def planning_s(self) -> float:
        """Return D as decisions plan with it: three of four starts take no longer; 1 s to a day."""
        return min(max(1.0, self.quantile_s(_PLANNING_QUANTILE)), LONGEST_S)

    @property
    def scheduling_s(self) -> float | None:
        """Return the median from order to a node; None = never seen."""
        known = sorted(self.scheduled_s)
        return known[len(known) // 2] if known else None
