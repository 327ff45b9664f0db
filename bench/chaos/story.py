"""The whole run: nodes, load, accidents and referee together, and what is left at the end."""

from __future__ import annotations

import asyncio
import os
import platform
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.chaos.accidents import Accidents
from bench.chaos.load import NAMESPACE, Load, nodes
from bench.chaos.planners import Planners
from bench.chaos.referee import Referee
from bench.chaos.report import result
from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.progress import Report
from fleet import labels
from fleet.clock import SystemClock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import connection

CLUSTER = "bench-chaos"
_CALM_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How long, how hard, and by which seed.

    Attributes:
        every_s: Mean pause between two accidents.
        scale: 13 nodes each.
        demand_ratio: Offered load over what the devices can hold.
        accidents: Names of those that may happen; () = all.
    """

    seconds: float
    seed: int
    every_s: float = 8.0
    scale: int = 2
    demand_ratio: float = 1.0
    accidents: tuple[str, ...] = ()


async def play(cluster: Cluster, client: Client, clock: SystemClock, script: Script, report: Report) -> dict[str, Any]:
    """Return what happened and what was found wrong; the cluster is left empty of pods.

    Args:
        cluster: Planner, extender and policies on it, and no nodes.
        client: As the administrator.
        clock: To wait on.
        script: What happens.
        report: Where steps are shown.
    """
    draw = random.Random(script.seed)
    load = Load(client, clock, random.Random(draw.random()), script.scale, script.demand_ratio)
    planners = Planners(cluster, clock)
    accidents = Accidents(cluster, planners, client, clock, random.Random(draw.random()), load)
    referee = Referee(client, clock, accidents.serves, load.is_ours, NAMESPACE)
    await _lay(cluster, client, clock, script.scale)
    await load.open()
    begun_s = clock.monotonic_s()
    async with AsyncExitStack() as stack:
        stack.callback(planners.end)
        await asyncio.to_thread(planners.start)
        await stack.enter_async_context(referee.looking())
        with report.step("Churn and accidents", expected_s=script.seconds + _CALM_S):
            stop_at_s = begun_s + script.seconds
            coming = asyncio.ensure_future(load.run(referee.pods.objects, stop_at_s + _CALM_S))
            try:
                names = list(script.accidents) or None
                await accidents.run(referee, script.every_s, stop_at_s, names=names)
                await accidents.heal()
                await coming
            finally:
                coming.cancel()
        await referee.count_everything()
        await referee.explain()
        waiting = sum(not pod["spec"].get("nodeName") for pod in referee.pods.objects.values())
        await load.end(referee.pods.objects)
        lists = referee.nodes.lists + referee.pods.lists
    return {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[1], 1)},
        "script": {
            "minutes": round(script.seconds / 60, 1),
            "seed": script.seed,
            "every_s": script.every_s,
            "nodes": len(nodes(script.scale)),
            "demand_ratio": script.demand_ratio,
        },
        "ran_s": round(clock.monotonic_s() - begun_s, 1),
        **result(referee.verdict, accidents, load),
        "waiting_at_the_end": waiting,
        "lists_of_the_referee": lists,
    }


async def _lay(cluster: Cluster, client: Client, clock: SystemClock, scale: int) -> None:
    """Create the nodes, and wait until pods may come."""
    link, record = connection(str(cluster.kubeconfig), clock=clock), cluster.record()
    assert record is not None
    machines = nodes(scale)
    await fake_nodes.create(link, machines, clock=clock, kubelet=record.kubernetes, tell=lambda ratio, words: None)
    body = msgspec.json.encode({"metadata": {"annotations": {labels.MIG_DEVICES: "all"}}})
    for node in machines:
        if node.name.startswith("mig"):
            await client.merge_patch(paths.node(node.name), body)
    names = [node.name for node in machines]
    await fake_nodes.wait_ready(link, names, clock=clock, most_s=120.0, tell=lambda ratio, words: None)
