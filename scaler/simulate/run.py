"""A load, an autoscaler and a world in; what happened out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.seen import Sample
from scaler.simulate.contract import Autoscaler
from scaler.simulate.curves import Ints
from scaler.simulate.load import Floats, Load
from scaler.simulate.plant import Plant
from scaler.simulate.replicas import Replicas
from scaler.simulate.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened, second by second and request by request.

    Attributes:
        load: What came.
        world: Where it came to.
        wait_s: How long each request waited, shape (requests,); inf = unserved at the end.
        ready: Serving replicas in each second, shape (seconds,).
        starting: Ordered and not Ready in each second, shape (seconds,).
        draining_s: Replica-seconds spent draining in each second, shape (seconds,).
        wanted: Ready and starting after the decision at the end of each second, shape (seconds,).
        in_flight: Time average in progress on serving replicas, shape (seconds,).
        queued: Waiting at the end of each second, shape (seconds,).
        completions: Ends on serving replicas in each second, shape (seconds,).
        starts: Replicas ordered in all.
    """

    load: Load
    world: World
    wait_s: Floats
    ready: Ints
    starting: Ints
    draining_s: Floats
    wanted: Ints
    in_flight: Floats
    queued: Ints
    completions: Ints
    starts: int


class _Record:
    """Columns of a run while it goes."""

    def __init__(self, seconds: int) -> None:
        self.ready = np.zeros(seconds, dtype=np.int64)
        self.starting = np.zeros(seconds, dtype=np.int64)
        self.wanted = np.zeros(seconds, dtype=np.int64)
        self.queued = np.zeros(seconds, dtype=np.int64)
        self.completions = np.zeros(seconds, dtype=np.int64)
        self.in_flight = np.zeros(seconds)
        self.draining_s = np.zeros(seconds + 2)  # differences until the end, as in curves.py

    def drain(self, now_s: int, empty_s: list[float]) -> None:
        last = len(self.ready)
        for at_s in empty_s:
            until_s = min(at_s, float(last))
            second = int(until_s)
            self.draining_s[now_s] += 1.0
            self.draining_s[second] -= 1.0 - (until_s - second)
            self.draining_s[second + 1] -= until_s - second


def simulate(load: Load, autoscaler: Autoscaler, world: World) -> Run:
    """Run an autoscaler on a load.

    Every second it sees a sample and the replica counts as they are at its end; every `period_s` it decides, and the
    decision holds from then on. Starting replicas are cancelled before ready ones drain, the last ordered first.
    """
    plant, replicas, record = Plant(load), Replicas(world), _Record(load.duration_s)
    replicas.turn(0)
    for second in range(load.duration_s):
        now_s = second + 1
        record.ready[second] = replicas.ready
        record.starting[second] = replicas.starting
        arrivals, completions, in_flight, queued = plant.second(second, int(world.slots * replicas.ready))
        record.completions[second] = completions
        record.in_flight[second] = in_flight
        record.queued[second] = queued
        replicas.turn(now_s)
        sample = Sample(
            at_s=float(now_s),
            arrivals=float(arrivals),
            completions=float(completions),
            in_flight=in_flight,
            queued=float(queued),
            errors=0.0,
        )
        fleet = replicas.fleet()
        autoscaler.see(sample, fleet)
        if now_s >= world.settle_s and now_s % autoscaler.period_s == 0:
            _apply(autoscaler.decide(float(now_s), fleet), now_s, plant, replicas, record)
        record.wanted[second] = replicas.wanted
    return _finish(load, world, plant, replicas, record)


def _apply(wanted: int, now_s: int, plant: Plant, replicas: Replicas, record: _Record) -> None:
    surplus = replicas.wanted - max(0, wanted)
    if surplus < 0:
        replicas.order(-surplus, now_s)
    elif surplus > 0:
        victims = surplus - replicas.cancel(surplus)
        if victims:
            empty_s = plant.drain(now_s, victims, replicas.ready)
            record.drain(now_s, empty_s)
            replicas.drain(empty_s)
            replicas.turn(now_s)


def _finish(load: Load, world: World, plant: Plant, replicas: Replicas, record: _Record) -> Run:
    wait_s = plant.start_s - load.arrival_s
    wait_s[plant.head :] = np.inf
    return Run(
        load=load,
        world=world,
        wait_s=wait_s,
        ready=record.ready,
        starting=record.starting,
        draining_s=np.maximum(np.cumsum(record.draining_s[: load.duration_s]), 0.0),
        wanted=record.wanted,
        in_flight=record.in_flight,
        queued=record.queued,
        completions=record.completions,
        starts=replicas.starts,
    )
