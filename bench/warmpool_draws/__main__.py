"""A thousand draws from warm pools on a real control plane, while its processes are killed one after the other.

    python -m bench.warmpool_draws --kill              # 1,000 draws, a kill every 20 s: some nine minutes
    python -m bench.warmpool_draws --draws 100         # fewer, and nobody is killed

Planner, extender, the pools' controller, kube-scheduler and kube-controller-manager are real; the cloud is played:
Nodes come after drawn delays (284 s to the Node, 126 s to devices, 101 s to the image, see warmpool.providers.fate),
sixty times as fast. The controller's own pauses (10 s between closing a node and giving it up, leases of 15 s) are not
scaled, so that scaled times are upper bounds. A watcher that shares no code with any of them replays every event of
Nodes and Pods in the API's own order and names whatever must never be (tests/support/warm_invariants.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import click

from bench.measured import commit, machine
from bench.warmpool_draws.ground import Basin, lay, status
from bench.warmpool_draws.kills import Kills
from bench.warmpool_draws.load import Demand
from bench.warmpool_draws.report import RESULTS, draws_told, is_sound, kinds_of, starts_of
from bench.warmpool_draws.story import all_bound, bill_after_peak, draw_through, end, warm
from berthmaster.local.binaries import ensure
from berthmaster.local.children import interruptible
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.progress import Lines
from fleet.clock import SystemClock
from fleet.kube.client import Client
from fleet.kube.credentials import connection
from tests.support.warm_watch import Observer

CLUSTER = "bench-warmpool-draws"
# How long a mark may be behind: two leaders lost one after the other, a lease of 15 s each, and a look.
LATE_S = 45.0
SINGLE = Basin(name="single", gpus=1, objective={"static": 32})
DOUBLE = Basin(name="double", gpus=2, objective={"hitRate": 0.95})
NONE = Basin(name="none", gpus=1, objective={"static": 0})
DEMANDS = {
    SINGLE.name: Demand(batches_per_s=1.4, batch=2.0, life_s=6.0, shortest_s=3.0),
    DOUBLE.name: Demand(batches_per_s=0.7, batch=2.0, life_s=8.0, shortest_s=3.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--kill", action="store_true", help="kill a process every 20 s or so")
    parser.add_argument("--kill-every-s", type=float, default=20.0)
    parser.add_argument("--time-scale", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--peak", type=int, default=60)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, for people")
    given = parser.parse_args()
    # Read by the cluster's processes and by second replicas.
    os.environ["BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE"] = f"{given.time_scale:g}"
    with interruptible():
        found = asyncio.run(_measure(given))
    text = json.dumps(found, indent=2)
    if given.draws >= 1000 and given.kill:
        RESULTS.write_text(text + "\n")
    click.echo(text)
    return 0 if is_sound(found) else 1


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    clock = SystemClock()
    report = Lines(lambda text: click.echo(text, nl=False, err=True), clock)
    cluster = Cluster(CLUSTER)
    cluster.down()
    try:
        await asyncio.to_thread(cluster.up, Options(has_scaler=False), ensure(report, clock=clock), report=report)
        async with Client(connection(str(cluster.kubeconfig)), clock) as client:
            return await _story(given, cluster, client, clock, report)
    finally:
        if not given.keep:
            cluster.down()


async def _story(
    given: argparse.Namespace, cluster: Cluster, client: Client, clock: SystemClock, report: Lines
) -> dict[str, Any]:
    draw, begun_s = random.Random(given.seed), clock.monotonic_s()
    basins = (SINGLE, DOUBLE, NONE)
    kills = Kills(cluster, clock, random.Random(draw.random()))
    async with AsyncExitStack() as stack:
        observer = await stack.enter_async_context(Observer(client, clock, [one.name for one in basins]).watching())
        workloads = {basin.name: await lay(client, basin) for basin in basins}
        with report.step("Warming the pools", expected_s=30):
            warm_s = await warm(client, clock, SINGLE, SINGLE.objective["static"], 180.0)
        with report.step("Drawing without a pool", expected_s=40):
            for _ in range(3):
                await workloads[NONE.name].more(8)
                await all_bound(observer, workloads[NONE.name], clock, 90.0)
        if given.kill:
            await stack.enter_async_context(kills.second_replicas())
        with report.step(f"Drawing {given.draws} times", expected_s=given.draws / 2.2):
            took_s = await draw_through(
                observer,
                DEMANDS,
                workloads,
                kills if given.kill else None,
                draws=given.draws,
                kill_every_s=given.kill_every_s,
                within_s=max(240.0, given.draws),
                clock=clock,
                draw=draw,
            )
        with report.step("A peak, and the bill after it", expected_s=100):
            bill = await bill_after_peak(
                client, observer, workloads[SINGLE.name], clock, peak=given.peak, after=6, watch_s=60.0
            )
        told = {name: (await status(client, name)).get("hitRate", {}) for name in DEMANDS}
        with report.step("Ending everything", expected_s=40):
            ended = await end(client, observer, list(workloads.values()), clock, within_s=120.0)
        faults = observer.faults([one.truth for one in basins], late_s=LATE_S)
        lives = list(observer.lives.values())
        return {
            "command": f"python -m bench.warmpool_draws {' '.join(sys.argv[1:])}".strip(),
            "commit": commit(),
            "machine": machine(),
            "time_scale": given.time_scale,
            "seed": given.seed,
            "drew_s": took_s,
            "whole_s": round(clock.monotonic_s() - begun_s, 1),
            "warm_s": warm_s,
            "answered": observer.answered,
            "events": len(observer.events),
            "events_missed": observer.lists > 2,
            "kills": kinds_of(name for _, name in kills.done),
            "faults": kinds_of(fault.kind for fault in faults),
            "faults_first": [str(fault) for fault in faults[:20]],
            "draws_told_by_pools": draws_told(told),
            "starts": {
                basin.name: starts_of(lives, basin.name, kills, time_scale=given.time_scale) for basin in basins
            },
            "after_peak": None if bill is None else asdict(bill) | _minutes(bill.back_s, given.time_scale),
            "end": asdict(ended),
            "leaked": len(ended.left),
            "orphan_taints": len(ended.soiled),
        }


def _minutes(back_s: float | None, time_scale: float) -> dict[str, float | None]:
    return {"back_cloud_min": None if back_s is None else round(back_s * time_scale / 60.0, 1)}


if __name__ == "__main__":
    sys.exit(main())
