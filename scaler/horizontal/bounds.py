"""Limits that hold on every path: the person's bounds, and how far one decision may go."""

from __future__ import annotations

import math
from typing import Final

from scaler.policy import MOST_REPLICAS, Behavior, Policy

_FLOAT_NOISE: Final = 1e-9
_USUAL_TARGET_RATIO: Final = 0.7  # of the slots: Knative's utilisation, and what the learner aims at


def whole(replicas: float) -> int:
    """Return the replicas that a real need takes: ceil(x - 1e-9); 3 x 0.7 must not cost an eleventh replica.

    A need that no float can hold is as good as the most that the API can count.
    """
    return math.ceil(min(replicas, MOST_REPLICAS) - _FLOAT_NOISE)


def room(target: float, slots: float | None) -> float:
    """Return how many requests a replica works on at a time: its limit, or target / 0.7 where none is known."""
    return slots or target / _USUAL_TARGET_RATIO


def within(policy: Policy, replicas: int) -> int:
    """Return the count within minimum and maximum."""
    return min(max(replicas, policy.min_replicas), policy.max_replicas)


def most_after_growth(behavior: Behavior, current: int) -> int:
    """Return the most after one decision: max(floor(ratio n), n + replicas); a share of few still allows one."""
    grown = math.floor(current * behavior.growth_ratio + _FLOAT_NOISE)
    return max(grown, current + behavior.growth_replicas)


def fewest_after_shrink(behavior: Behavior, current: int) -> int:
    """Return the fewest after one decision: n - max(1, floor(ratio n)); a share of few still allows one."""
    return current - max(1, math.floor(current * behavior.shrink_ratio + _FLOAT_NOISE))


def band_ratio(target: float, slots: float | None, current: int, start_time_s: float = 60.0) -> float:
    """Return b, the share by which need may exceed n before the base rule grows.

    b(n) = 0.5 (slots / target - 1)(1 - 1/n)

    Half of the real headroom. 0 for one replica, for target = limit and where no limit is known, so that it cannot hide
    the 41st task on 10 full pods (kubernetes/kubernetes#116984). 0.35 instead of 0.5 cost 1 to 6 % for 0.1 points.
    Measured: bench/scaler.
    """
    if slots is None or current <= 1:
        return 0.0
    return 0.5 * 300 / (300 + start_time_s) * max(0.0, slots / target - 1.0) * (1.0 - 1.0 / current)
