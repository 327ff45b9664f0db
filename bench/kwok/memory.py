"""Resident memory of planner and extender beside many nodes and pods, after they have worked."""

from __future__ import annotations

from typing import Any

from bench.kwok import load, proc
from bench.kwok.ground import Ground, Side
from berthmaster.local.components import EXTENDER, PLANNER
from berthmaster.local.progress import Report, Tell
from berthmaster.options import run
from fleet.clock import SystemClock
from fleet.kube.client import Client

TARGET_MB = 500.0
PLACED = 200
_SETTLE_S = 5.0
_RESIDENTS = "bench-residents"


def measure(ground: Ground, clock: SystemClock, report: Report, *, pods: int) -> dict[str, Any]:
    """Fill the cluster with bound pods, start both processes fresh, let them place more, and read their memory.

    Together means the two long-lived processes; the solver's child is given beside them.
    """
    ground.silence()
    with report.step(f"{ground.nodes} nodes: creating {pods} bound pods", expected_s=pods / 350) as tell:
        run(_fill(ground, clock, pods, tell))
    with report.step(f"{ground.nodes} nodes, {pods} pods: {PLACED} more on top"):
        ground.start(Side.OURS)
        wrong = run(_place(ground, clock))
        clock.sleep_blocking(_SETTLE_S)
    families = ground.families()
    planner, *children = families[PLANNER]
    found = {PLANNER: proc.memory_mb(planner), EXTENDER: proc.memory_mb(families[EXTENDER][0])}
    together = {name: round(sum(of[name] for of in found.values()), 1) for name in ("rss_mb", "pss_mb", "peak_rss_mb")}
    return {
        "nodes": ground.nodes,
        "pods": pods + PLACED,
        "processes": {name: _rounded(of) for name, of in found.items()},
        "solver_child": _rounded(proc.memory_mb(children[0])) if children else None,
        "together": together,
        "target_mb": TARGET_MB,
        "is_reached": together["rss_mb"] < TARGET_MB,
        "faults": wrong,
    }


async def _fill(ground: Ground, clock: SystemClock, pods: int, tell: Tell) -> None:
    done = 0

    def told(_: str) -> None:
        nonlocal done
        done += 1
        tell(done / pods, f"{done} of {pods}")

    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        uid = await load.prepare(client, _RESIDENTS, is_managed=True)
        nodes = ground.node_names
        wanted = (
            load.pod_object(f"resident-{i:05d}", _RESIDENTS, uid, node=nodes[i % len(nodes)]) for i in range(pods)
        )
        await load.create(client, wanted, told)


async def _place(ground: Ground, clock: SystemClock) -> tuple[str, ...]:
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        namespace = Side.OURS.namespace
        uid = await load.prepare(client, namespace, is_managed=True)
        # Of two sizes, so that the solver is asked too; equal pods need no solver.
        wanted = [load.pod_object(f"more-{i:03d}", namespace, uid, gpus=1 + i % 2) for i in range(PLACED)]
        await load.place(client, clock, wanted, lambda ratio, words: None)
        return await load.faults(client)


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in found.items()}
