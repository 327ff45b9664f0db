"""When requests come: a rate that changes over time, as a schedule that repeats for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable


def poisson(rate_rps: Callable[[float], float], *, until_s: float, most_rps: float, seed: int) -> tuple[float, ...]:
    """Return arrival times of an inhomogeneous Poisson process, by thinning (Lewis and Shedler, 1979).

    Args:
        rate_rps: Requests per second at a time from 0.
        until_s: End of the schedule.
        most_rps: At least the highest rate.
        seed: Of the draws.

    Raises:
        ValueError: A rate is above `most_rps`.
    """
    draw = random.Random(seed)
    times: list[float] = []
    at_s = 0.0
    while (at_s := at_s + draw.expovariate(most_rps)) < until_s:
        rate = rate_rps(at_s)
        if rate > most_rps:
            raise ValueError(f"the rate {rate:g} at {at_s:g} s is above {most_rps:g}")
        if draw.random() * most_rps < rate:
            times.append(at_s)
    return tuple(times)


def steps(*levels: tuple[float, float]) -> Callable[[float], float]:
    """Return a rate that jumps: (from_s, rps) in the order of time; 0 before the first."""

    def rate_rps(at_s: float) -> float:
        level = 0.0
        for from_s, rps in levels:
            if at_s >= from_s:
                level = rps
        return level

    return rate_rps
