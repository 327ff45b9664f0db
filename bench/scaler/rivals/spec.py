"""The greedy rule of the published AutoPilot pod autoscaler (Databricks, 2026-06-10): concurrency over target."""

from __future__ import annotations

from bench.scaler.rivals.seen import WindowMaximum, WindowMean, bounded, replicas_for, requests
from scaler.seen import Fleet, Sample

_LOOK_BACK_UP_S = 20.0
_LOOK_BACK_DOWN_S = 300.0


class Spec:
    """Every 5 s the largest ceil(mean requests of 20 s / target) of the last 300 s, without a cap on growth.

    Requests waiting count as demand, and nothing is said of starting capacity: that is what makes it greedy.
    """

    period_s = 5

    def __init__(self, target: float, slots: float, start_s: float, maximum: int) -> None:
        """Take the shared target."""
        self._target = target
        self._maximum = maximum
        self._mean = WindowMean(_LOOK_BACK_UP_S)
        self._wanted = WindowMaximum(_LOOK_BACK_DOWN_S)

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Record one second."""
        self._mean.add(sample.at_s, requests(sample))

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; those there are where nothing is known."""
        load = self._mean.at(now_s)
        if load is None:
            return bounded(fleet.replicas, self._maximum)
        return bounded(self._wanted.add(now_s, replicas_for(load, self._target)), self._maximum)
