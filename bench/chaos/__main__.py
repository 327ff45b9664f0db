"""Minutes of churn on a real control plane while everything breaks: planner, extender, API server, nodes, devices.

    python -m bench.chaos                        # 20 minutes
    python -m bench.chaos --minutes 2 --seed 3   # shorter, other accidents

Pods of all shapes come and go at about the rate at which devices become free, so that somebody always waits: shares,
whole devices, several, counted ones, CPU alone, MIG instances, gangs, and urgent pods that make others go. Meanwhile
one accident follows another. A referee that shares no code with the planner watches nodes and pods as plain JSON:

- every binding is counted again at the moment it is seen, and everything after each accident;
- whoever waits although he would fit on nodes that had room at every look for more than 5 s is stuck; time in which a
  process that placing needs was dead counts for nobody;
- a gang of which a part holds room for more than 5 s is torn; a pod that went though nobody sent it away is lost.

Writes bench/results/chaos.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from bench.chaos.report import table
from bench.chaos.story import CLUSTER, Script, play
from berthmaster.local.binaries import ensure
from berthmaster.local.children import interruptible
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.progress import Lines
from fleet.clock import SystemClock
from fleet.kube.client import Client
from fleet.kube.credentials import connection

RESULTS = Path(__file__).parents[1] / "results" / "chaos.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--every-s", type=float, default=8.0, help="mean pause between two accidents (8)")
    parser.add_argument("--scale", type=int, default=2, help="13 nodes each (2)")
    parser.add_argument("--demand", type=float, default=1.0, help="offered load over what the devices can hold (1)")
    parser.add_argument(
        "--out", type=Path, help="file of the result (bench/results/chaos.json where it ran 20 minutes)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, for people")
    given = parser.parse_args()
    with interruptible():
        found = asyncio.run(_measure(given))
    click.echo(table(found))
    out = given.out or (RESULTS if given.minutes >= 20 else None)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        click.echo(f"wrote {out}")
    return 0 if found["is_sound"] else 1


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    clock = SystemClock()
    report = Lines(lambda text: click.echo(text, nl=False, err=True), clock)
    cluster = Cluster(CLUSTER, clock=clock)
    cluster.down()
    try:
        options = Options(has_scaler=False, has_warmpool=False)
        await asyncio.to_thread(cluster.up, options, ensure(report, clock=clock), report=report)
        async with Client(connection(str(cluster.kubeconfig), clock=clock), clock, user_agent="bench-chaos") as client:
            script = Script(
                seconds=60 * given.minutes,
                seed=given.seed,
                every_s=given.every_s,
                scale=given.scale,
                demand_ratio=given.demand,
            )
            found = await play(cluster, client, clock, script, report)
    finally:
        if not given.keep:
            cluster.down()
    return {"command": " ".join(["python -m bench.chaos", *sys.argv[1:]]), **found}


if __name__ == "__main__":
    sys.exit(main())
