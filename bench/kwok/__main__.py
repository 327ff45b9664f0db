"""Berthmaster beside the stock kube-scheduler, on a real control plane with fake nodes, everything on.

    python -m bench.kwok                                  # everything: 1,000 and 5,000 nodes, five pairs
    python -m bench.kwok --nodes 1000 --pairs 2           # speed alone, shorter
    python -m bench.kwok --quick                          # 100 nodes, one pair: does it work?

Speed: pods of one `nvidia.com/gpu`, created 32 in flight while the side under test runs, from the first creation to the
last binding as a watch saw it. One cluster per node count; the sides take turns on it, each with fresh processes and
none of the other's pods, once on the empty cluster and once with most nodes full, as GPU clusters are. Stock is
kube-scheduler as it comes, with our admission policies unbound and our processes stopped; ours is policies, planner,
extender and kube-scheduler. kwok is stopped while anything is measured: kubelets have machines of their own. API server
and etcd have not: they share this machine with the side under test, and what a side asks of them counts.

KAI Scheduler (its own programs, built from its module) takes the stock scheduler's place on the smallest cluster, and
then places openb pods, fractions included, on an eighth of openb's machines beside us.

Filter and memory are measured on the largest cluster; Filter calls go one at a time over a bare socket.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.kwok import filter_cost, memory, packing, speed
from bench.kwok.ground import GPUS_PER_NODE, Ground, Side
from bench.kwok.rivals import kai_programs
from bench.kwok.table import table
from berthmaster.local.binaries import Binaries, ensure
from berthmaster.local.progress import Lines
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError

RESULTS = Path(__file__).parents[1] / "results" / "kwok.json"
PARTS = ("speed", "filter", "memory", "kai")


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    clock = SystemClock()
    # Plain lines: a live display would take its share of the machine.
    report = Lines(lambda text: click.echo(text, nl=False, err=True), clock)
    binaries = ensure(report, clock=clock)
    found = _head(binaries, clock.now_s())
    kai = kai_programs.ensure(report, clock) if "kai" in given.parts else None
    started_s = clock.monotonic_s()
    for nodes in given.nodes:
        is_largest, is_least = nodes == max(given.nodes), nodes == min(given.nodes)
        with Ground(nodes, binaries, clock, report, kai=kai if is_least else None).standing() as ground:
            if "speed" in given.parts:
                for ratio in given.filled:
                    found["speed"].append(
                        speed.compare(ground, clock, report, pods=given.pods, pairs=given.pairs, filled_ratio=ratio)
                    )
            if "kai" in given.parts and is_least:
                found["speed"].append(
                    speed.compare(ground, clock, report, pods=given.pods, pairs=given.kai_pairs, rival=Side.KAI)
                )
            if "filter" in given.parts and is_largest:
                found["filter"] = filter_cost.compare(ground, clock, report, calls=given.calls)
            if "memory" in given.parts and is_largest:
                found["memory"] = memory.measure(ground, clock, report, pods=given.resident)
    if kai is not None and not given.quick:
        machines = packing.nodes()
        with Ground(len(machines), binaries, clock, report, kai=kai, machines=machines).standing() as ground:
            found["packing"] = [packing.measure(ground, clock, report, side) for side in (Side.KAI, Side.OURS)]
    found["took_s"] = round(clock.monotonic_s() - started_s)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table(found))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        click.echo(f"wrote {os.path.relpath(given.out)}")
    return 1 if _faults(found) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kwok", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=_numbers, default=[1_000, 5_000], help="comma list (1000,5000)")
    parser.add_argument("--pairs", type=int, default=5, help="alternating pairs of runs (5)")
    parser.add_argument("--kai-pairs", type=int, default=3, help="alternating pairs beside KAI Scheduler (3)")
    parser.add_argument("--pods", type=int, default=1_000, help="of one run (1000)")
    parser.add_argument("--filled", type=_ratios, default=[0.0, 0.8], help="comma list: shares of full nodes (0,0.8)")
    parser.add_argument("--calls", type=int, default=2_000, help="of Filter, to each handler (2000)")
    parser.add_argument("--resident", type=int, default=20_000, help="pods in the cluster for memory (20000)")
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help=f"comma list of {', '.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="100 nodes, 100 pods, 1 pair, 200 calls, 400 resident pods"
    )
    parser.add_argument("--out", type=Path, help="file of the result (bench/results/kwok.json; with --quick none)")
    given = parser.parse_args()
    if given.quick:
        given.nodes, given.pods, given.pairs, given.calls, given.resident = [100], 100, 1, 200, 400
        given.kai_pairs = 1
        given.filled = [0.0, 0.5]
    elif given.out is None:
        given.out = RESULTS
    for nodes in given.nodes:
        free = round(nodes * (1.0 - max(given.filled))) * GPUS_PER_NODE
        if "speed" in given.parts and given.pods > free:
            parser.error(f"{nodes} nodes, filled as asked, have {free} devices: fewer --pods or less --filled")
        resident = given.resident + 2 * memory.PLACED
        if "memory" in given.parts and nodes == max(given.nodes) and resident > nodes * GPUS_PER_NODE:
            parser.error(f"{nodes} nodes have {nodes * GPUS_PER_NODE} devices: fewer --resident")
    return given


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _ratios(text: str) -> list[float]:
    ratios = [float(part) for part in text.split(",")]
    if not all(0.0 <= ratio < 1.0 for ratio in ratios):
        raise argparse.ArgumentTypeError("shares lie between 0 and 1")
    return ratios


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    if wrong := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(wrong))}")
    return parts


def _head(binaries: Binaries, now_s: float) -> dict[str, Any]:
    return {
        "command": " ".join(["python -m bench.kwok", *sys.argv[1:]]),
        "at": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "versions": {
            "kubernetes": binaries.kubernetes,
            **{name: version(name) for name in ("berthmaster", "aiohttp", "msgspec", "uvloop", "numpy", "ortools")},
        },
        "method": " ".join(str(__doc__).partition("\n\nSpeed")[2].split()).removeprefix(": "),
        "speed": [],
    }


def _faults(found: dict[str, Any]) -> Sequence[str]:
    runs = [run for one in found["speed"] for run in one["runs"]]
    runs += [found["memory"]] if "memory" in found else []
    runs += [one["at_half_the_rate"] for one in found["speed"] if one["at_half_the_rate"]]
    runs += found.get("packing", [])
    return [fault for run in runs for fault in run["faults"]]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BerthmasterError as error:
        click.echo(f"bench.kwok: {error}", err=True)
        sys.exit(1)
