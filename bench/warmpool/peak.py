"""After a peak: how long until the pool is back at what it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.warmpool.demand import DAY_MIN, Demand
from bench.warmpool.ours import run

_DAYS = 6
_QUIET_RATE, _PEAK_RATE = 6.0, 120.0
_PEAK_MIN = 120
_SPARE = 1.1


def measure(lead_s: float, goal_ratio: float, seed: int) -> dict[str, Any]:
    """Return minutes from the end of two hours at 120 draws/h until the target is back within 10 % of that at 6/h.

    Peaks come at hours that differ from day to day, so that no calendar knows them. The need is the median target of
    the three hours before the peak, and a node is whole: what exceeds it by no more than one is within.
    """
    random = np.random.default_rng([seed, 91])
    rates = np.full(_DAYS * DAY_MIN, _QUIET_RATE / 60.0)
    starts = [day * DAY_MIN + int(random.integers(240, DAY_MIN - 240)) for day in range(2, _DAYS)]
    for start in starts:
        rates[start : start + _PEAK_MIN] = _PEAK_RATE / 60.0
    draws = tuple(
        tuple(sorted(60.0 * minute + 15.0 * float(step) for step in random.integers(0, 4, random.poisson(rate))))
        for minute, rate in enumerate(rates)
    )
    work = Demand(draws_s=draws, freed=np.zeros(len(rates)), in_use=None)
    (outcome,), _, _ = run(work, lead_s, seed, (goal_ratio,))
    targets = outcome.targets
    back = []
    for start in starts:
        end = start + _PEAK_MIN
        need = float(np.median(targets[start - 180 : start]))
        within = targets[end : end + 240] <= max(need + 1.0, math.floor(_SPARE * need))
        back.append(int(within.argmax()) if within.any() else 240)
    return {"goal_ratio": goal_ratio, "lead_s": lead_s, "seed": seed, "minutes": back, "hit_ratio": outcome.hit_ratio}
