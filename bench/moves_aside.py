"""How long the planner's event loop stands still while moves are looked for: in the loop itself, and aside.

    python -m bench.moves_aside                      # 1,000 and 5,000 nodes
    python -m bench.moves_aside --nodes 1000

Clusters of openb's machines, filled to 95 % with pods of its default trace, each a Ready replica that may be moved;
every fifth of them leaves, and pods of 8 devices come until one fits nowhere. For four such that wait, room is looked
for. A second task asks for its turn every millisecond: its longest pause is what pins, watches and probes would have
waited. Medians of five searches each; writes bench/results/moves_aside.json.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry

from bench.measured import commit, machine
from binpack.config import MovesSettings
from binpack.controller.aside import aside
from binpack.controller.budget_feed import Budgets
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.proposer import Proposer
from binpack.controller.waiting import WaitingRoom
from binpack.controller.world import World
from binpack.index import Index, mix_of
from binpack.ledger import Ledger
from binpack.trace import load_nodes, load_pods
from fleet import labels
from fleet.clock import SystemClock
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Owner, Phase, Pod
from fleet.resources import Resources

RESULTS = Path(__file__).parent / "results" / "moves_aside.json"
FULL_RATIO, LEFT_RATIO = 0.95, 0.2
LARGE, WAITING, RUNS = 8, 4, 5
TRACE = "default"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1000,5000", help="comma list")
    load = round(os.getloadavg()[0], 1)  # what else the machine does is in the figures
    rows = [row for nodes in parser.parse_args().nodes.split(",") for row in measure(int(nodes))]
    print("nodes   pods  where    solver  longest pause ms  search s  moves  gap")
    for row in rows:
        gap = "-" if row["gap_ratio"] is None else f"{row['gap_ratio']:.1%}"
        print(
            f"{row['nodes']:5} {row['pods']:6}  {row['where']:7}  {row['solver']:6}  {row['longest_pause_ms']:16.1f}"
            f"  {row['search_s']:8.2f}  {row['moves']:5}  {gap}"
        )
    document = {"commit": commit(), "machine": machine() | {"load": load}, "rows": rows}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def measure(nodes: int) -> list[dict[str, Any]]:
    """Return the medians of five searches in the loop without the solver, and aside without and with it."""
    world = filled(nodes)
    gc.collect()
    gc.freeze()
    found = []
    for where, is_solved in (("loop", False), ("aside", False), ("aside", True)):
        runs = [
            asyncio.run(search(world, aside if where == "aside" else in_the_loop, is_solved=is_solved))
            for _ in range(RUNS)
        ]
        row: dict[str, Any] = {"nodes": nodes, "pods": sum(1 for _ in world.tenants), "where": where}
        row["solver"] = "yes" if is_solved else "no"
        row |= {name: statistics.median(run[name] for run in runs) for name in ("longest_pause_ms", "search_s")}
        row |= {"moves": runs[0]["moves"], "gap_ratio": runs[0]["gap_ratio"], "runs": runs}
        row["resident_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        found.append(row)
    return found


async def in_the_loop(work: Callable[[], bytes], wall_s: float) -> bytes:
    """Do the work at once, as it was done before it was done aside."""
    return work()


async def search(
    world: World, where: Callable[[Callable[[], bytes], float], Awaitable[bytes]], *, is_solved: bool
) -> dict[str, Any]:
    """Have one search made by a fresh proposer, and see how long the loop stood still at most."""
    registry = CollectorRegistry()
    budgets = Budgets()
    budgets.is_known = True
    settings = MovesSettings(mode="propose", waits_s=1.0)
    proposer = Proposer(
        world,
        budgets,
        None,  # type: ignore[arg-type]  # nothing is begun
        None,  # type: ignore[arg-type]
        Silent(),  # type: ignore[arg-type]
        SystemClock(),
        PlannerMetrics(registry),
        settings,
        solves=is_solved,
        aside=where,
    )
    longest_s = 0.0
    is_over = False

    async def tick() -> None:
        nonlocal longest_s
        clock = SystemClock()
        while not is_over:
            at_s = perf_counter()
            await clock.sleep(0.001)
            longest_s = max(longest_s, perf_counter() - at_s)

    ticking = asyncio.create_task(tick())
    await SystemClock().sleep(0.1)
    longest_s = 0.0
    await proposer.turn()
    is_over = True
    await ticking
    proposed = {
        sample.labels["reason"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "berthmaster_moves_proposed_total"
    }
    gap = registry.get_sample_value("berthmaster_move_plan_gap_ratio")
    return {
        "longest_pause_ms": round(1000 * longest_s, 2),
        "search_s": round(registry.get_sample_value("berthmaster_move_search_seconds_sum") or 0.0, 3),
        "moves": int(sum(proposed.values())),
        "gap_ratio": None if gap is None or gap != gap else round(gap, 5),
    }


class Silent:
    """Takes events for no API."""

    async def record(self, *_: object, **__: object) -> None:
        """Say nothing."""


def filled(count: int) -> World:
    """Return the planner's world of a cluster in which four pods of 8 devices find no room."""
    draw, ledger = random.Random(count), Ledger()
    world = World(ledger, Index(mix=mix_of(load_pods(TRACE))), WaitingRoom(hand_over_after_s=1e9), lambda: 0.0)
    machines, choices = load_nodes(), load_pods(TRACE)
    nodes = [replace(draw.choice(machines), name=f"node-{number:05}") for number in range(count)]
    for node in nodes:
        ledger.set_node(node)
    world.refresh()
    wanted, held = FULL_RATIO * WHOLE_MILLI * sum(len(node.devices) for node in nodes), 0
    bound: list[tuple[Pod, Berth]] = []
    while held < wanted:
        pod = replace(draw.choice(choices), uid=f"pod-{len(bound)}", name=f"pod-{len(bound)}")
        answer = world.index.place(pod, with_shortfall=False)
        if isinstance(answer, Placement):
            world.index.take(pod, answer.berth)
            bound.append((pod, answer.berth))
            held += pod.ask.total_milli_gpu if pod.ask is not None else 0
    stays = [draw.random() >= LEFT_RATIO for _ in bound]
    for (pod, berth), is_there in zip(bound, stays, strict=True):
        if not is_there:
            world.index.give_back(pod, berth)
    bound = [one for one, is_there in zip(bound, stays, strict=True) if is_there]
    while isinstance(answer := world.index.place(large(len(bound)), with_shortfall=False), Placement):
        world.index.take(large(len(bound)), answer.berth)
        bound.append((large(len(bound)), answer.berth))
    for pod, berth in bound:
        service = f"service-{pod.uid}"
        owner = Owner(kind="ReplicaSet", name=service, uid=service)
        see(
            world,
            replace(
                pod,
                scheduler_name=labels.SCHEDULER_NAME,
                owner=owner,
                node_name=berth.node,
                devices=berth.devices or None,
                phase=Phase.RUNNING,
                is_ready=True,
            ),
        )
    world.refresh()
    for number in range(WAITING):
        pod = replace(large(-1 - number), gates=(labels.PLAN_GATE,), scheduler_name=labels.SCHEDULER_NAME)
        see(world, pod)
        world.queue.pop(pod.uid)
        answer = world.index.place(pod)
        assert isinstance(answer, Unplaced), "it has room"
        world.wait(answer)
    return world


def see(world: World, pod: Pod) -> None:
    """Let the world take a pod as the watch would bring it."""
    world.ledger.set_pod(pod)
    world.pod_seen(pod)


def large(number: int) -> Pod:
    """Return a pod of 8 devices."""
    owner = Owner(kind="ReplicaSet", name="large", uid="large")
    ask = DeviceAsk(kind=AskKind.CHOSEN, count=LARGE)
    return Pod(uid=f"large-{number}", name=f"large-{number}", requests=Resources(pod_slots=1), ask=ask, owner=owner)


if __name__ == "__main__":
    main()
