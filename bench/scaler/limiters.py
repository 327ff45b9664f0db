"""Adaptive concurrency limits of others, re-made from their published formulas, one update a second at most.

Each takes a window of one replica as (in progress, mean round-trip time, requests ended, failures) and holds
`limit`. Defaults are theirs except the floor: 1 instead of Netflix's 20, which alone would be twice some of the knees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

FLOOR, ROOF = 1.0, 400.0
FEWEST_SAMPLES = 10  # Netflix's window wrapper: a second with at least ten; here a window lasts until it has them


class Limiter(Protocol):
    """A limit that follows what it is shown."""

    limit: float

    def update(self, in_flight: float, rtt_s: float, samples: float, failures: float) -> None:
        """Take one window."""


@dataclass
class Aimd:
    """Netflix/concurrency-limits AIMD: +1 while at least half used, x 0.9 on a drop or past the time-out (5 s)."""

    limit: float

    def update(self, in_flight: float, rtt_s: float, samples: float, failures: float) -> None:
        """Take one window."""
        if failures > 0 or rtt_s > 5.0:
            self.limit *= 0.9
        elif in_flight * 2 >= self.limit:
            self.limit += 1
        self.limit = min(max(self.limit, FLOOR), ROOF)


@dataclass
class Vegas:
    """Netflix/concurrency-limits Vegas: queue = ceil(L (1 - rtt0 / rtt)) held between 3 and 6 log10 L."""

    limit: float
    rng: np.random.Generator
    best_s: float = math.inf
    since_probe: int = 0
    probe_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._plan_probe()

    def _plan_probe(self) -> None:
        self.since_probe, self.probe_at = 0, 30 * self.limit * self.rng.uniform(0.5, 1.0)

    def update(self, in_flight: float, rtt_s: float, samples: float, failures: float) -> None:
        """Take one window."""
        self.since_probe += 1
        if self.since_probe >= self.probe_at:
            self._plan_probe()
            self.best_s = rtt_s
            return
        self.best_s = min(self.best_s, rtt_s)
        step = max(1.0, math.log10(self.limit))
        queue = math.ceil(self.limit * (1 - self.best_s / rtt_s))
        if failures > 0:
            self.limit -= step
        elif in_flight * 2 < self.limit:
            return
        elif queue <= step:
            self.limit += 6 * step
        elif queue < 3 * step:
            self.limit += step
        elif queue > 6 * step:
            self.limit -= step
        self.limit = min(max(self.limit, FLOOR), ROOF)


@dataclass
class Gradient2:
    """Netflix/concurrency-limits Gradient2: L' = 0.8 L + 0.2 (L clamp(1.5 long / short, 0.5, 1) + 4)."""

    limit: float
    long_s: float = 0.0
    seen: int = 0

    def update(self, in_flight: float, rtt_s: float, samples: float, failures: float) -> None:
        """Take one window."""
        self.seen += 1
        share = 1 / self.seen if self.seen <= 10 else 2 / (600 + 1)
        self.long_s += share * (rtt_s - self.long_s)
        if self.long_s > 2 * rtt_s:
            self.long_s *= 0.95
        if in_flight < self.limit / 2:
            return
        gradient = min(max(1.5 * self.long_s / rtt_s, 0.5), 1.0)
        self.limit = min(max(0.8 * self.limit + 0.2 * (self.limit * gradient + 4), FLOOR), ROOF)


@dataclass
class Envoy:
    """Envoy's gradient controller: L' = L g + sqrt(L g), g = clamp(1.25 minRTT / sampleRTT, 0.5, 2).

    minRTT comes from 50 requests at a concurrency of 3, every 60 s (jitter 15 %) and after 5 windows at the floor.
    """

    limit: float
    rng: np.random.Generator
    min_s: float | None = None
    kept: float = 0.0
    probed: float = 0.0
    probed_s: float = 0.0
    next_probe_s: float = 0.0
    now_s: float = 0.0
    at_floor: int = 0

    def __post_init__(self) -> None:
        self._probe()

    def _probe(self) -> None:
        self.kept, self.limit = self.limit, 3.0
        self.probed, self.probed_s, self.min_s, self.at_floor = 0.0, 0.0, None, 0

    def update(self, in_flight: float, rtt_s: float, samples: float, failures: float) -> None:
        """Take one window."""
        self.now_s += 1
        if samples < 1:
            return
        if self.min_s is None:
            self.probed += samples
            self.probed_s += samples * rtt_s
            if self.probed >= 50:
                self.min_s = self.probed_s / self.probed
                self.limit = self.kept
                self.next_probe_s = self.now_s + 60 * (1 + 0.15 * self.rng.random())
            return
        gradient = min(max(1.25 * self.min_s / rtt_s, 0.5), 2.0)
        self.limit = min(max(self.limit * gradient + math.sqrt(self.limit * gradient), FLOOR), ROOF)
        self.at_floor = self.at_floor + 1 if self.limit <= 3.0 else 0
        if self.now_s >= self.next_probe_s or self.at_floor >= 5:
            self._probe()


def make(name: str, limit: float, rng: np.random.Generator) -> Limiter:
    """Return a limiter of the table by name."""
    match name:
        case "AIMD":
            return Aimd(limit)
        case "Vegas":
            return Vegas(limit, rng)
        case "Gradient2":
            return Gradient2(limit)
        case "Envoy":
            return Envoy(limit, rng)
    raise ValueError(f"no limiter is called {name}")


NAMES = ("Gradient2", "Vegas", "AIMD", "Envoy")
