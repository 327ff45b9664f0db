"""The parts of the proof: draws through kills, a peak and the bill after it, and the end of everything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.warmpool_draws.ground import Basin, Workload, left, remove, soiled, status, until
from bench.warmpool_draws.kills import Kills
from bench.warmpool_draws.load import Demand, come_and_go
from fleet.clock import Clock
from fleet.kube.client import Client
from tests.support.warm_watch import Observer

_SPARE = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How it ended.

    Attributes:
        soiled: Idle nodes with taints or claims that nothing explains, once everything was at rest.
        left: What was still there after the pools were deleted.
        emptied_s: From the deletion of the pools until nothing was left; None = something stayed.
    """

    soiled: tuple[str, ...]
    left: tuple[str, ...]
    emptied_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A peak, and how long its nodes were paid for after it.

    Attributes:
        peak: Replicas at the peak; `after`: those that stayed.
        need: Nodes that serve and that the pool wants, after it.
        nodes: There were at the peak's end.
        back_s: From the peak's end until the nodes were within 10 % of the need for good; None = not in time.
        excess_node_s: Node-seconds beyond the need until then.
    """

    peak: int
    after: int
    need: int
    nodes: int
    back_s: float | None
    excess_node_s: float


async def warm(client: Client, clock: Clock, basin: Basin, count: int, within_s: float) -> float | None:
    """Wait until a pool has so many warm nodes; returns how long that took."""

    async def is_warm() -> bool:
        return (await status(client, basin.name)).get("warm", 0) >= count

    return await until(clock, is_warm, within_s)


async def draw_through(
    observer: Observer,
    demands: Mapping[str, Demand],
    workloads: Mapping[str, Workload],
    kills: Kills | None,
    *,
    draws: int,
    kill_every_s: float,
    most_kills: int | None = None,
    within_s: float,
    clock: Clock,
    draw: random.Random,
) -> float | None:
    """Let replicas come and go, and processes die, until so many draws found a node; returns how long that took."""
    before = observer.answered
    tasks = [
        asyncio.ensure_future(come_and_go(workloads[name], demand, clock, random.Random(draw.random())))
        for name, demand in demands.items()
    ]
    if kills is not None:
        tasks.append(asyncio.ensure_future(kills.run(kill_every_s, most_kills)))
    try:

        def is_done() -> bool:
            for task in tasks:
                if task.done():
                    task.result()  # what went wrong there is not waited out
            return observer.answered - before >= draws

        return await until(clock, is_done, within_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if kills is not None:
            await asyncio.to_thread(kills.heal)


async def all_bound(observer: Observer, workload: Workload, clock: Clock, within_s: float) -> float | None:
    """Wait until the replicas that are wanted have their nodes, and no other is there."""

    def holds() -> bool:
        there = [
            life for life in observer.lives.values() if life.namespace == workload.basin.name and life.gone_s is None
        ]
        return len(there) == workload.wanted and all(life.bound_s is not None for life in there)

    return await until(clock, holds, within_s)


async def bill_after_peak(
    client: Client, observer: Observer, workload: Workload, clock: Clock, *, peak: int, after: int, watch_s: float
) -> Bill | None:
    """Have a peak, end it, and watch the nodes; None where the peak's replicas did not all get a node."""
    await workload.want(peak)
    if await all_bound(observer, workload, clock, 180.0) is None:
        return None
    await clock.sleep(5.0)
    await workload.want(after)
    ended_s = clock.monotonic_s()
    nodes = len(observer.of_pool(workload.basin.name))
    await clock.sleep(watch_s)
    wanted = int((await status(client, workload.basin.name)).get("wanted") or 0)
    need = -(-after // workload.basin.gpus) + wanted
    counts = [(at_s, count) for at_s, pool, count in observer.counts if pool == workload.basin.name and at_s >= ended_s]
    back_s, excess = fall(ended_s, nodes, counts, need, ended_s + watch_s)
    return Bill(peak=peak, after=after, need=need, nodes=nodes, back_s=back_s, excess_node_s=excess)


def fall(
    begun_s: float, nodes: int, counts: Sequence[tuple[float, int]], need: int, until_s: float
) -> tuple[float | None, float]:
    """Return when the count came within 10 % of the need for good, and the node-seconds beyond it."""
    back_s: float | None = 0.0 if nodes <= _SPARE * need else None
    excess, at_s = 0.0, begun_s
    for next_s, count in [*counts, (until_s, counts[-1][1] if counts else nodes)]:
        excess += max(0, nodes - need) * (next_s - at_s)
        at_s, nodes = next_s, count
        if count > _SPARE * need:
            back_s = None
        elif back_s is None:
            back_s = next_s - begun_s
    return back_s, excess


async def end(
    client: Client, observer: Observer, workloads: Sequence[Workload], clock: Clock, *, within_s: float
) -> End:
    """Let all replicas go, see what state the idle nodes are in, delete the pools, and see what stays."""
    for workload in workloads:
        await workload.want(0)
    for workload in workloads:
        await all_bound(observer, workload, clock, within_s)
    basins = [workload.basin for workload in workloads]
    await until(clock, lambda: not any(soiled(observer, basin) for basin in basins), within_s)
    stained = tuple(text for basin in basins for text in soiled(observer, basin))
    for basin in basins:
        await remove(client, basin)

    async def is_empty() -> bool:
        return not await left(client)

    emptied_s = await until(clock, is_empty, within_s)
    return End(soiled=stained, left=tuple(await left(client)), emptied_s=emptied_s)
