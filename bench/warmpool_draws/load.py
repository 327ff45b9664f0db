"""Replicas that come in Poisson batches and go after a while: a marked Poisson process of demand."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from bench.warmpool_draws.ground import Workload
from fleet.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """How replicas of one workload come and go.

    Attributes:
        batches_per_s: Rate of the Poisson process.
        batch: Mean of the geometric size of a batch, at least 1.
        life_s: Mean of the exponential life of a batch, beside the shortest.
        shortest_s: That every batch lives at least.
        most: Replicas at a time; a batch that would exceed it does not come.
    """

    batches_per_s: float
    batch: float = 2.0
    life_s: float = 12.0
    shortest_s: float = 4.0
    most: int = 60


async def come_and_go(workload: Workload, demand: Demand, clock: Clock, draw: random.Random) -> None:
    """Let batches come and go until cancelled; those that are there then stay."""
    async with asyncio.TaskGroup() as group:
        while True:
            await clock.sleep(draw.expovariate(demand.batches_per_s))
            size = 1
            while draw.random() > 1.0 / demand.batch:
                size += 1
            if workload.wanted + size > demand.most:
                continue
            await workload.more(size)
            stay_s = demand.shortest_s + draw.expovariate(1.0 / demand.life_s)
            group.create_task(_leave(workload, size, stay_s, clock))


async def _leave(workload: Workload, size: int, after_s: float, clock: Clock) -> None:
    await clock.sleep(after_s)
    await workload.more(-size)
