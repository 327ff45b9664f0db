"""A second plant, one event at a time with every replica its own slots: what the fast one is checked against.

Shares no line with `scaler.simulate` but the values that go in and the autoscaler's contract.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from scaler.seen import Fleet, Sample

_READY, _END, _ARRIVAL, _SECOND, _FILL = range(5)  # the order of events at one moment


@dataclass
class _Server:
    ordered_s: float
    is_serving: bool = False
    is_leaving: bool = False
    gone_s: float | None = None
    running: set[int] = field(default_factory=set)


@dataclass
class Counted:
    """What came out: waits (inf = unserved), cost from the beginning, wanted count and queue per second."""

    wait_s: np.ndarray
    replica_s: float
    wanted: np.ndarray
    queued: np.ndarray
    in_flight: np.ndarray


class PerRequest:
    def __init__(self, load, autoscaler, world):
        self.load, self.autoscaler, self.world = load, autoscaler, world
        self.random = np.random.default_rng(world.seed)
        self.servers = [_Server(0.0, is_serving=True) for _ in range(world.initial_replicas)]
        self.gone: list[_Server] = []
        self.queue: deque[int] = deque()
        self.wait_s = np.full(load.arrival_s.size, np.inf)
        self.order = itertools.count()
        self.events: list[tuple] = []
        self.area, self.seen_s, self.ended, self.came = 0.0, 0.0, 0, 0

    def push(self, at_s, kind, what):
        heapq.heappush(self.events, (at_s, kind, next(self.order), what))

    def serving(self):
        return [server for server in self.servers if server.is_serving and not server.is_leaving]

    def starting(self):
        return [server for server in self.servers if not server.is_serving]

    def move_clock(self, at_s):
        self.area += (at_s - self.seen_s) * sum(len(server.running) for server in self.serving())
        self.seen_s = at_s

    def dispatch(self, now_s):
        while self.queue:
            free = [server for server in self.serving() if len(server.running) < self.world.slots]
            if not free:
                return
            request = self.queue.popleft()
            self.wait_s[request] = now_s - self.load.arrival_s[request]
            server = min(free, key=lambda server: len(server.running))
            server.running.add(request)
            self.push(now_s + self.load.service_s[request], _END, (server, request))

    def run(self) -> Counted:
        seconds = self.load.duration_s
        for request, at_s in enumerate(self.load.arrival_s.tolist()):
            self.push(at_s, _ARRIVAL, request)
        for second in range(1, seconds + 1):
            self.push(float(second), _SECOND, second)
        wanted, queued, in_flight = [], [], []
        while self.events:
            at_s, kind, _, what = heapq.heappop(self.events)
            if at_s > seconds:
                break
            self.move_clock(at_s)
            if kind == _READY:
                what.is_serving = True
                self.push(at_s, _FILL, None)
            elif kind == _END:
                self.end(*what, at_s)
            elif kind == _ARRIVAL:
                self.came += 1
                self.queue.append(what)
                self.dispatch(at_s)
            elif kind == _FILL:
                self.dispatch(at_s)
            else:
                in_flight.append(self.area)
                queued.append(len(self.queue))
                self.second(at_s)
                wanted.append(len(self.serving()) + len(self.starting()))
        cost_s = sum((s.gone_s if s.gone_s is not None else seconds) - s.ordered_s for s in self.servers + self.gone)
        return Counted(self.wait_s, cost_s, np.array(wanted), np.array(queued), np.array(in_flight))

    def end(self, server, request, at_s):
        server.running.remove(request)
        if server.is_leaving:
            if not server.running:
                self.leave(server, at_s)
        else:
            self.ended += 1
            self.dispatch(at_s)

    def leave(self, server, at_s):
        server.gone_s = at_s
        self.servers.remove(server)
        self.gone.append(server)

    def second(self, now_s):
        sample = Sample(
            at_s=now_s,
            arrivals=float(self.came),
            completions=float(self.ended),
            in_flight=self.area,
            queued=float(len(self.queue)),
            errors=0.0,
        )
        self.area, self.came, self.ended = 0.0, 0, 0
        starting = sorted(self.starting(), key=lambda server: server.ordered_s)
        leaving = sum(server.is_leaving for server in self.servers)
        fleet = Fleet(
            ready=len(self.serving()),
            starting_since_s=tuple(server.ordered_s for server in starting),
            draining=leaving,
        )
        self.autoscaler.see(sample, fleet)
        if int(now_s) % self.autoscaler.period_s == 0:
            self.apply(self.autoscaler.decide(now_s, fleet), now_s)

    def apply(self, wanted, now_s):
        missing = min(wanted, self.world.max_replicas) - len(self.serving()) - len(self.starting())
        if missing > 0:
            spread = self.world.start_jitter_ratio * self.random.uniform(-1, 1, missing)
            for part in spread.tolist():
                server = _Server(now_s)
                self.servers.append(server)
                self.push(float(math.ceil(now_s + self.world.start_s * (1 + part) - 1e-9)), _READY, server)
            return
        for _ in range(-missing):
            starting = self.starting()
            if starting:
                victim = max(starting, key=lambda server: server.ordered_s)
                self.events = [event for event in self.events if event[3] is not victim]
                heapq.heapify(self.events)
                self.leave(victim, now_s)
            else:
                victim = min(self.serving(), key=lambda server: len(server.running))
                victim.is_leaving = True
                if not victim.running:
                    self.leave(victim, now_s)
