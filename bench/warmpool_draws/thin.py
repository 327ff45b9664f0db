"""The bill after a peak while nodes still serve: replicas lie thinly, planner and pool pack them, and nodes go back.

    python -m bench.warmpool_draws.thin                # sixty replicas on thirty nodes, thirty stay: some four minutes

A peak fills a pool's nodes of two devices each; the load halves, and one replica is left on every node, the worst that
can become of them. Planner, pool, scheduler and controller manager are real; machines come twenty times as fast as a
cloud's. Nothing else is sped up: a node must have been spare for two minutes, and one in ten is emptied at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict
from typing import Any

import click
import msgspec

from bench.measured import commit, machine
from bench.warmpool_draws.ground import Basin, lay, status, until
from bench.warmpool_draws.report import RESULTS
from bench.warmpool_draws.story import all_bound, fall, warm
from berthmaster.local.binaries import ensure
from berthmaster.local.children import interruptible
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.progress import Lines
from fleet import labels
from fleet.clock import Clock, SystemClock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import connection
from tests.support.warm_watch import Observer

CLUSTER = "bench-warmpool-thin"
THIN = Basin(name="thin", gpus=2, objective={"static": 2}, most_nodes=60)
LONGEST_S = 1800.0
_TIME_SCALE = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peak", type=int, default=60)
    parser.add_argument("--watch-s", type=float, default=900.0, help="how long to watch at most")
    given = parser.parse_args()
    os.environ["BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE"] = f"{_TIME_SCALE:g}"
    with interruptible():
        found = asyncio.run(_measure(given))
    text = json.dumps(found, indent=2)
    RESULTS.with_name("warmpool_thin.json").write_text(text + "\n")
    click.echo(text)
    return (
        0
        if found["back_s"] is not None and found["back_s"] <= LONGEST_S and found["least_ready"] >= found["budget"]
        else 1
    )


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    clock = SystemClock()
    report = Lines(lambda text: click.echo(text, nl=False, err=True), clock)
    cluster = Cluster(CLUSTER)
    cluster.down()
    try:
        await asyncio.to_thread(cluster.up, Options(has_scaler=False), ensure(report, clock=clock), report=report)
        async with (
            Client(connection(str(cluster.kubeconfig)), clock) as client,
            Observer(client, clock, [THIN.name]).watching() as observer,
        ):
            return await _story(given, client, observer, clock, report)
    finally:
        cluster.down()


async def _story(
    given: argparse.Namespace, client: Client, observer: Observer, clock: Clock, report: Lines
) -> dict[str, Any]:
    workload = await lay(client, THIN)
    after = given.peak // 2
    with report.step("Warming the pool", expected_s=60):
        await warm(client, clock, THIN, THIN.objective["static"], 180.0)
    with report.step("The peak", expected_s=90):
        await workload.want(given.peak)
        if await all_bound(observer, workload, clock, 300.0) is None:
            raise SystemExit("the peak's replicas did not all get a node")
        await warm(client, clock, THIN, THIN.objective["static"], 180.0)
    await _budget(client, after - 1)
    await _thin_out(client)
    await workload.want(after)
    await all_bound(observer, workload, clock, 60.0)
    ended_s, nodes = clock.monotonic_s(), len(observer.of_pool(THIN.name))
    wanted = int((await status(client, THIN.name)).get("wanted") or 0)
    need = -(-after // THIN.gpus) + wanted
    least = [after]

    async def is_back() -> bool:
        least.append(await _ready(client))
        return len(observer.of_pool(THIN.name)) <= need

    with report.step(f"{nodes} nodes after the peak, {need} needed", expected_s=300):
        await until(clock, is_back, given.watch_s)
        await clock.sleep(15.0)
    counts = [(at_s, count) for at_s, pool, count in observer.counts if pool == THIN.name and at_s >= ended_s]
    back_s, excess = fall(ended_s, nodes, counts, need, clock.monotonic_s())
    return {
        "command": f"python -m bench.warmpool_draws.thin {' '.join(sys.argv[1:])}".strip(),
        "commit": commit(),
        "machine": machine(),
        "peak": given.peak,
        "after": after,
        "nodes_at_end_of_peak": nodes,
        "need": need,
        "back_s": None if back_s is None else round(back_s, 1),
        "excess_node_hours": round(excess / 3600.0, 2),
        "nodes_now": len(observer.of_pool(THIN.name)),
        "least_ready": min(least),
        "budget": after - 1,
        "moved": await _moved(observer, ended_s),
        "pool": {key: asdict(THIN)[key] for key in ("gpus", "objective", "most_nodes")},
    }


async def _moved(observer: Observer, since_s: float) -> int:
    """Return how many replicas were made anew after the peak."""
    return sum(life.namespace == THIN.name and life.created_s > since_s for life in observer.lives.values())


async def _budget(client: Client, least: int) -> None:
    body = {"metadata": {"name": THIN.name}, "spec": {"minAvailable": least, "selector": {"matchLabels": {}}}}
    path = f"/apis/policy/v1/namespaces/{THIN.name}/poddisruptionbudgets"
    await client.create(path, msgspec.json.encode(body))


async def _pods(client: Client) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(await client.get(paths.pods(THIN.name)))["items"])


async def _thin_out(client: Client) -> None:
    """See to it that the shrink takes one replica of every node."""
    first = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in await _pods(client)}
    note = msgspec.json.encode({"metadata": {"annotations": {labels.POD_DELETION_COST: "-1"}}})
    for name in first.values():
        await client.merge_patch(paths.pod(THIN.name, name), note)


async def _ready(client: Client) -> int:
    return sum(
        "deletionTimestamp" not in pod["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))
        for pod in await _pods(client)
    )


if __name__ == "__main__":
    sys.exit(main())
