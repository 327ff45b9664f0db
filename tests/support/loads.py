"""Loads and scripted autoscalers for the simulator's tests."""

from __future__ import annotations

import math

import numpy as np

from scaler.simulate.load import Load


def poisson(pieces, service_s: float, *, seed: int = 1) -> Load:
    """(rate in requests/s, seconds) pieces after each other; exponential service times."""
    random = np.random.default_rng(seed)
    arrivals, begin_s = [], 0
    for rate_rps, seconds in pieces:
        arrivals.append(np.sort(random.uniform(begin_s, begin_s + seconds, random.poisson(rate_rps * seconds))))
        begin_s += seconds
    arrival_s = np.concatenate(arrivals)
    return Load(arrival_s=arrival_s, service_s=random.exponential(service_s, arrival_s.size) + 1e-3, duration_s=begin_s)


def requests(*pairs: tuple[float, float], duration_s: int) -> Load:
    """(arrival, service time) pairs."""
    arrival_s, service_s = np.array(pairs, dtype=float).reshape(-1, 2).T
    return Load(arrival_s=arrival_s, service_s=service_s, duration_s=duration_s)


class Script:
    """Wants what is written for the latest second reached; keeps what it saw."""

    def __init__(self, wanted: dict[int, int], *, period_s: int = 1):
        self.wanted, self.period_s = wanted, period_s
        self.samples, self.fleets = [], []

    def see(self, sample, fleet):
        self.samples.append(sample)
        self.fleets.append(fleet)

    def decide(self, now_s, fleet):
        reached = [second for second in self.wanted if second <= now_s]
        return self.wanted[max(reached)] if reached else fleet.replicas


class Follower:
    """The mean of the last 20 s / target: enough of an autoscaler to move a fleet about."""

    period_s = 5

    def __init__(self, target: float = 5.6):
        self.target, self.demand = target, []

    def see(self, sample, fleet):
        self.demand.append(sample.in_flight + sample.queued)

    def decide(self, now_s, fleet):
        return max(1, math.ceil(float(np.mean(self.demand[-20:])) / self.target))
