"""Kubernetes' Horizontal Pod Autoscaler (autoscaling/v2), re-made from its documentation and its replica calculator."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from bench.scaler.rivals.seen import WindowMaximum, WindowMean, bounded, is_near, replicas_for, requests
from scaler.seen import Fleet, Sample

_DOWN_WINDOW_S = 300.0
_UP_PERIOD_S = 15.0
_UP_RATIO = 2.0
_UP_PODS = 4


class Metric(Protocol):
    """How the load reaches the autoscaler."""

    def add(self, at_s: float, value: float | None) -> None:
        """Take one second's load; None = unknown."""
        ...

    def at(self, now_s: float) -> float | None:
        """Return what is answered at a moment; None = no metric."""
        ...


class Fresh:
    """The load of the last second, as a source that is asked directly answers."""

    def __init__(self) -> None:
        self._value: float | None = None

    def add(self, at_s: float, value: float | None) -> None:
        """Take one second's load."""
        self._value = value

    def at(self, now_s: float) -> float | None:
        """Return the last second's."""
        return self._value


class Pipeline:
    """The load behind a metric pipeline: scraped, averaged over a window, published every so often."""

    def __init__(self, *, window_s: float, publish_s: float) -> None:
        self._mean = WindowMean(window_s)
        self._publish_s = publish_s
        self._due_s: float | None = None
        self._published: float | None = None

    def add(self, at_s: float, value: float | None) -> None:
        """Take one second's load; publish the mean if it is time."""
        self._mean.add(at_s, value)
        if self._due_s is None:
            self._due_s = at_s + self._publish_s
        if at_s >= self._due_s:
            self._published = self._mean.at(at_s)
            self._due_s += self._publish_s

    def at(self, now_s: float) -> float | None:
        """Return what was published last."""
        return self._published


class Hpa:
    """One load metric with a target average value, default behaviour.

    n' = n if 0.9 <= load / (target x n) <= 1.1, else ceil(load / target); down to the largest n' of 300 s; up to
    max(2 n, n + 4) per 15 s. n is all that was ordered. With a target *average* value a starting pod therefore counts
    once; a target *value* multiplies the ready pods instead and is worse (kubernetes/kubernetes 59975).
    """

    period_s = 15

    def __init__(
        self, target: float, slots: float, start_s: float, maximum: int, *, metric: Metric | None = None
    ) -> None:
        """Take the shared target; without a metric the load is a mean of 15 s, published every 15 s."""
        self._target = target
        self._maximum = maximum
        self._metric = metric or Pipeline(window_s=15.0, publish_s=15.0)
        self._proposals = WindowMaximum(_DOWN_WINDOW_S)
        self._has_begun = False
        self._grown: deque[tuple[float, int]] = deque()

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Pass one second to the pipeline."""
        self._metric.add(sample.at_s, requests(sample))

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; those there are without a metric."""
        replicas = max(1, fleet.replicas)
        if not self._has_begun:
            self._has_begun = True
            self._proposals.add(now_s, replicas)  # the count it finds is its first recommendation
        load = self._metric.at(now_s)
        if load is None:
            return bounded(replicas, self._maximum)
        proposal = bounded(self._proposal(load, replicas), self._maximum)
        held = self._proposals.add(now_s, proposal)
        wanted = max(proposal, min(replicas, held))
        if wanted > replicas:
            wanted = min(wanted, max(replicas, self._most(replicas, now_s)))
            self._grown.append((now_s, wanted - replicas))
        return bounded(wanted, self._maximum)

    def _proposal(self, load: float, replicas: int) -> int:
        return replicas if is_near(load, self._target, replicas) else replicas_for(load, self._target)

    def _most(self, replicas: int, now_s: float) -> int:
        """Return the limit of growth, counted from the replicas at the start of the period."""
        while self._grown and self._grown[0][0] <= now_s - _UP_PERIOD_S:
            self._grown.popleft()
        at_start = replicas - sum(count for _, count in self._grown)
        return max(int(_UP_RATIO * at_start), at_start + _UP_PODS)
