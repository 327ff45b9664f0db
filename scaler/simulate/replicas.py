"""The replicas of a simulated endpoint: ordered, starting, ready, draining, gone."""

from __future__ import annotations

import heapq
import math

import numpy as np

from scaler.seen import Fleet
from scaler.simulate.world import World


class Replicas:
    """Counts and dates; changes fall on whole seconds.

    Attributes:
        ready: Serving now.
        starts: Orders placed so far.
    """

    def __init__(self, world: World) -> None:
        self.ready = world.initial_replicas
        self.starts = 0
        self._world = world
        self._random = np.random.default_rng(world.seed)
        self._ordered_s: list[float] = []  # ascending, beside _ready_s
        self._ready_s: list[int] = []
        self._next_ready_s: float = math.inf
        self._empty_s: list[float] = []  # a heap, one entry a draining replica
        self._fleet: Fleet | None = None
        self.order(world.initial_starting, 0)

    @property
    def starting(self) -> int:
        """Return how many were ordered and are not Ready."""
        return len(self._ordered_s)

    @property
    def wanted(self) -> int:
        """Return ready and starting together."""
        return self.ready + len(self._ordered_s)

    def turn(self, now_s: int) -> None:
        """Let replicas become Ready, and drained ones go, that are due by now."""
        if self._empty_s and self._empty_s[0] <= now_s:
            while self._empty_s and self._empty_s[0] <= now_s:
                heapq.heappop(self._empty_s)
            self._fleet = None
        if self._next_ready_s <= now_s:
            keep = [place for place, due_s in enumerate(self._ready_s) if due_s > now_s]
            self.ready += len(self._ready_s) - len(keep)
            self._set_starting([self._ordered_s[k] for k in keep], [self._ready_s[k] for k in keep])

    def order(self, count: int, now_s: int) -> None:
        """Order replicas; those beyond the world's maximum are not filled."""
        count = min(count, self._world.max_replicas - self.wanted)
        if count <= 0:
            return
        spread = self._world.start_jitter_ratio * self._random.uniform(-1.0, 1.0, count)
        due_s = np.ceil(now_s + self._world.start_s * (1.0 + spread) - 1e-9).astype(int)
        self.starts += count
        self._set_starting(self._ordered_s + [float(now_s)] * count, self._ready_s + due_s.tolist())
        self.turn(now_s)

    def cancel(self, count: int) -> int:
        """Take back starting replicas, the last ordered first; return how many of `count` there were."""
        gone = min(count, len(self._ordered_s))
        if gone:
            self._set_starting(self._ordered_s[:-gone], self._ready_s[:-gone])
        return gone

    def drain(self, empty_s: list[float]) -> None:
        """Take ready replicas out of service; each is gone when its last request ends."""
        self.ready -= len(empty_s)
        for at_s in empty_s:
            heapq.heappush(self._empty_s, at_s)
        self._fleet = None

    def fleet(self) -> Fleet:
        """Return the counts as an autoscaler sees them."""
        if self._fleet is None:
            self._fleet = Fleet(ready=self.ready, starting_since_s=tuple(self._ordered_s), draining=len(self._empty_s))
        return self._fleet

    def _set_starting(self, ordered_s: list[float], ready_s: list[int]) -> None:
        self._ordered_s, self._ready_s = ordered_s, ready_s
        self._next_ready_s = min(ready_s, default=math.inf)
        self._fleet = None
