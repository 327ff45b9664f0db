"""Replicas behind a balancer, many independent fleets at once: a Markov chain in steps of 0.1 s.

Every fleet ("lane") has its own profile, random stream, limits and load. Requests leave a replica with k in progress
at rate k / R(k); those that come go to the replica with the fewest per weight below its limit, else they queue. What a
request experienced is R averaged over the time it ran, with the scatter of its size; what a second shows is what an
exporter would: averages, a percentile of few, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.scaler.profiles import MOST, Profile
from scaler.vertical.values import Cycle

STEP_S = 0.1
STEPS = 10  # a second
CYCLE_S = 30
LOAD_SPREAD, LOAD_MEMORY_S = 0.2, 20.0  # of the offered load around its mean
LONGEST_QUEUE_S = 5.0  # what would wait longer goes to replicas that the horizontal axis adds
LATE_AFTER_S = 1.0
MEMORY_NOISE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Seconds:
    """What S seconds showed; arrays (S, lanes, replicas) or (S, lanes)."""

    in_flight: np.ndarray
    latency_s: np.ndarray
    p95_s: np.ndarray
    completions: np.ndarray
    errors: np.ndarray
    memory_ratio: np.ndarray
    size: np.ndarray
    queue_s: np.ndarray


class Plant:
    """Lanes of equal replica count; limits, weights and factors are set between cycles by whoever drives it."""

    def __init__(self, profiles: Sequence[Profile], replicas: int, seed: int) -> None:
        lanes = len(profiles)
        self.profiles = tuple(profiles)
        self.replicas = replicas
        self.rng = np.random.default_rng(seed)
        self.table_s = np.stack([profile.latency_s for profile in profiles])
        self.error_ratio = np.stack([profile.error_ratio for profile in profiles])
        self.memory_ratio = np.stack([profile.memory_ratio for profile in profiles])
        self.large = np.array([profile.size_large for profile in profiles])[:, None]
        self.large_share = np.array([profile.large_share for profile in profiles])[:, None]
        self.spread = np.array([profile.spread_ratio for profile in profiles])[:, None]
        self.limit = np.full((lanes, replicas), 1.0)
        self.weight = np.full((lanes, replicas), 1.0)
        self.level = np.full(lanes, 1.0)  # in progress per replica that the offered load would keep, were there room
        self.relief = np.full(lanes, 1.0)  # of it that replicas added meanwhile leave here
        self.demand = np.full(lanes, 1.0)  # times that load
        self.slowness = np.full(lanes, 1.0)  # times the profile's latency
        self.unrelated_error_ratio = np.zeros(lanes)
        self.size = np.full(lanes, np.nan)  # as the signals tell it
        self._k = np.zeros((lanes, replicas), dtype=np.int64)
        self._felt_s = np.repeat(self.table_s[:, 1][:, None], replicas, axis=1)
        self._queue = np.zeros(lanes, dtype=np.int64)
        self._load = np.zeros(lanes)
        self._rows = np.arange(lanes)
        self._reset()

    def _reset(self) -> None:
        shape = self._k.shape
        self._sum_k, self._ended, self._failed, self._sum_s, self._memory = (np.zeros(shape) for _ in range(5))

    def run(self, seconds: int) -> Seconds:
        """Return what the next seconds showed."""
        shown: list[tuple[np.ndarray, ...]] = []
        for _ in range(seconds):
            fade = np.exp(-1 / LOAD_MEMORY_S)
            self._load = fade * self._load + LOAD_SPREAD * np.sqrt(1 - fade**2) * self.rng.normal(size=self._rows.size)
            rate = self._offered_rps() * np.clip(1 + self._load, 0.2, 2.0) * self.demand * self.relief
            for _ in range(STEPS):
                self._step(rate)
            shown.append(self._second(rate))
            self._reset()
        return Seconds(**dict(zip(Seconds.__dataclass_fields__, map(np.stack, zip(*shown, strict=True)), strict=True)))

    def _offered_rps(self) -> np.ndarray:
        """Throughput of the fleet with `level` in progress on each replica, at most what it can do."""
        low = np.minimum(self.level.astype(np.int64), MOST - 1)
        share = np.minimum(self.level - low, 1.0)
        throughput = np.arange(MOST + 1) / self.table_s
        at = throughput[self._rows, low] * (1 - share) + throughput[self._rows, low + 1] * share
        return self.replicas * at / self.slowness

    def _step(self, rate: np.ndarray) -> None:
        k = self._k
        now_s = self.table_s[self._rows[:, None], k] * self.slowness[:, None]
        # A fading mean as old as the middle of a request's life, which is R / 2 ago.
        self._felt_s += np.minimum(2 * STEP_S / self._felt_s, 1.0) * (now_s - self._felt_s)
        ended = self.rng.binomial(k, 1 - np.exp(-STEP_S / now_s))
        failing = self.error_ratio[self._rows[:, None], k] + self.unrelated_error_ratio[:, None]
        self._failed += self.rng.binomial(ended, np.minimum(failing, 1.0))
        self._ended += ended
        self._sum_s += ended * self._felt_s
        self._sum_k += k
        self._memory += self.memory_ratio[self._rows[:, None], k]
        self._k = k - ended
        self._queue += self.rng.poisson(rate * STEP_S)
        self._dispatch()
        room = np.maximum(rate, 0.1) * LONGEST_QUEUE_S
        self._queue = np.minimum(self._queue, np.ceil(room).astype(np.int64))

    def _dispatch(self) -> None:
        limit = np.minimum(np.maximum(np.floor(self.limit), 1), MOST)
        while True:
            open_ = (self._k < limit) & (self._queue > 0)[:, None]
            lanes = np.flatnonzero(open_.any(axis=1))
            if not lanes.size:
                return
            # Ties go to a random replica, as balancers that rotate do.
            key = (self._k[lanes] + self.rng.random((lanes.size, self.replicas))) / self.weight[lanes]
            chosen = np.where(open_[lanes], key, np.inf).argmin(axis=1)
            self._k[lanes, chosen] += 1
            self._queue[lanes] -= 1

    def _second(self, rate: np.ndarray) -> tuple[np.ndarray, ...]:
        n = self._ended
        some = np.maximum(n, 1)
        large = self.rng.binomial(n.astype(np.int64), np.broadcast_to(self.large_share, n.shape)) / some
        usual = 1 + self.large_share * (self.large - 1)
        scatter = np.maximum(1 + self.spread / np.sqrt(some) * self.rng.normal(size=n.shape), 0.2)
        mean_s = np.where(n > 0, self._sum_s / some * (1 + large * (self.large - 1)) / usual * scatter, np.nan)
        tail = np.where(self.large_share > 0.05, self.large / usual, 1.0) * (1 + 1.65 * self.spread)
        p95_s = np.where(
            n > 0, self._sum_s / some * tail * np.exp(0.25 / np.sqrt(some) * self.rng.normal(size=n.shape)), np.nan
        )
        memory = np.minimum(self._memory / STEPS + MEMORY_NOISE * self.rng.normal(size=n.shape), 1.0)
        size = np.repeat(self.size[:, None], self.replicas, axis=1)
        queue_s = self._queue / np.maximum(rate, 0.1)
        return self._sum_k / STEPS, mean_s, p95_s, n.copy(), self._failed.copy(), memory, size, queue_s


def cycle_of(plant: Plant, seen: Seconds, lane: int) -> Cycle:
    """Return a lane's seconds as the learner takes them."""
    seconds, _, replicas = seen.in_flight.shape

    def flat(values: np.ndarray) -> np.ndarray:
        return values[:, lane, :].reshape(-1)

    k = flat(seen.in_flight)
    busy = np.minimum(np.rint(k), MOST).astype(int)
    return Cycle(
        replica=np.tile(np.arange(replicas), seconds),
        second=np.repeat(np.arange(seconds, dtype=float), replicas),
        in_flight=k,
        latency_s=flat(seen.latency_s),
        p95_s=flat(seen.p95_s),
        completions=flat(seen.completions),
        errors=flat(seen.errors),
        memory_ratio=flat(seen.memory_ratio),
        size=flat(seen.size),
        resources={
            name: np.clip(table[busy] + 0.01 * plant.rng.normal(size=k.size), 0, 1)
            for name, table in plant.profiles[lane].resources.items()
        },
        names=tuple(f"replica-{index}" for index in range(replicas)),
        replicas=replicas,
        is_late=is_late(seen, lane),
    )


def is_late(seen: Seconds, lane: int) -> bool:
    """Return whether more than one second in twenty ended with a queue that takes too long."""
    return bool((seen.queue_s[:, lane] > LATE_AFTER_S).mean() > 0.05)
