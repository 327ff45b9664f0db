"""AIBrix' KPA strategy, re-made from pkg/controller/podautoscaler at e3e10f9e, with three defects mended.

As read there it divides the mean *per pod* by the target per pod (4 pods at 20 each with target 10 give 2, not 8), its
memory of the largest count in a panic keeps nothing, and a stable value of 0 means panic. A comparison with that would
only show the defects, so here the load is the total, a panic never shrinks (the largest count of 300 s outlasts any
panic, because both of its windows are shorter), and an idle endpoint is calm.
"""

from __future__ import annotations

import math

from bench.scaler.rivals.seen import WindowMaximum, WindowMean, bounded, is_near, replicas_for, requests
from scaler.seen import Fleet, Sample

_STABLE_S = 180.0
_PANIC_S = 60.0
_PANIC_RATIO = 2.0
_RATE = 2.0
_SHRINK_COOLDOWN_S = 300.0


class AiBrix:
    """The largest of 300 s of clamp(count(load), floor(n / 2), 2 n), every 10 s.

    load = mean of 60 s while that is more than twice the mean of 180 s (a panic), else the mean of 180 s.
    count(load) = n while load is within 10 % of target x n, else ceil(load / target). n is all that was ordered
    (vllm-project/aibrix 2670: 2, 4, 8, 16 while the first two load).
    """

    period_s = 10

    def __init__(self, target: float, slots: float, start_s: float, maximum: int) -> None:
        """Take the shared target as the metric's target value."""
        self._target = target
        self._maximum = maximum
        self._stable = WindowMean(_STABLE_S)
        self._panic = WindowMean(_PANIC_S)
        self._load: float | None = None
        self._wanted = WindowMaximum(_SHRINK_COOLDOWN_S)

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Take one second; metrics are read at the next reconciliation."""
        self._load = requests(sample)

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; those there are where nothing is known."""
        self._stable.add(now_s, self._load)
        self._panic.add(now_s, self._load)
        stable, panic = self._stable.at(now_s), self._panic.at(now_s)
        if stable is None or panic is None:
            return bounded(fleet.replicas, self._maximum)
        load = panic if panic > _PANIC_RATIO * stable else stable
        return bounded(self._wanted.add(now_s, self._count(load, fleet.replicas)), self._maximum)

    def _count(self, load: float, replicas: int) -> int:
        if replicas > 0 and is_near(load, self._target, replicas):
            return replicas
        most = max(1, math.ceil(_RATE * replicas))
        return min(max(replicas_for(load, self._target), math.floor(replicas / _RATE)), most)
