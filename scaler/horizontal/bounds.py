"""Limits that hold on every path: the person's bounds, and how far one decision may go."""

from __future__ import annotations

import math
from typing import Final

from scaler.policy import MOST_REPLICAS, Behavior, Policy

_FLOAT_NOISE: Final = 1e-9
_BAND_HALVED_S: Final = 300.0
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


def band_ratio(target: float, slots: float | None, current: int, start_time_s: float) -> float:
    """Return b, the share by which need may exceed n before the base rule grows.

    b(n) = 0.5 (slots / target - 1)(1 - 1/n) 300 s / (300 s + D)

    Half of the real headroom, and the less the longer an order takes: with half at a start of 180 s the World Cup's
    10 June had 0.48 % late, now none, at the same cost. 0 for one replica, for target = limit and where no limit is
    known, so that it cannot hide the 41st task on 10 full pods (kubernetes/kubernetes#116984). 0.35 instead of 0.5 at
    all start times cost 1 to 6 %. Measured: bench/scaler.
    """
    if slots is None or current <= 1:
        return 0.0
    headroom = max(0.0, slots / target - 1.0)
    return 0.5 * headroom * (1.0 - 1.0 / current) * _BAND_HALVED_S / (_BAND_HALVED_S + start_time_s)
