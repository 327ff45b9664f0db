"""What decisions cost as clusters grow, and how good large batches are solved: no cluster needed, one machine.

    python -m bench.scale                     # everything: some minutes
    python -m bench.scale --decisions 300 --runs 1

Clusters are openb's machines, drawn in blocks of a thousand, 80 % of their GPUs allocated; pods are drawn from its
default trace. One decision at a time (`latency`), batches of 500 through index, solver and verifier as the live planner
makes them, and a backlog of 3,000 (`batch`). Targets are judged by CPU, which other programs on the machine do not
change; times on the wall stand beside. Writes bench/results/scale.json and docs/scale.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.scale import batch, latency
from bench.scale.chart import draw

ROOT = Path(__file__).parents[2]
RESULTS, PICTURE = ROOT / "bench" / "results" / "scale.json", ROOT / "docs" / "scale.svg"
SIZES = (1_000, 2_000, 5_000, 10_000)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=3_000, help="per size (3000)")
    parser.add_argument("--runs", type=int, default=5, help="batches of each kind (5)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    decisions = []
    for nodes in SIZES:
        decisions.append(latency.measure(nodes, given.decisions))
        _show_decision(decisions[-1])
    grown = latency.growth(decisions)
    print(
        f"cost grows as nodes^{grown['exponent']}: x{grown['cost_ratio']} "
        f"from {grown['nodes'][0]} to {grown['nodes'][1]} nodes"
    )
    batches = []
    for count, solve_s, target_s, urgent_ratio in ((500, 0.2, 1.0, 0.1), (3_000, 0.8, 3.0, 0.0)):
        found = batch.measure(
            5_000, count, runs=given.runs, solve_s=solve_s, target_s=target_s, urgent_ratio=urgent_ratio
        )
        batches.append(found)
        _show_batch(found)
    report: dict[str, Any] = {
        "command": " ".join(["python -m bench.scale", *sys.argv[1:]]),
        "machine": {
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[1], 1),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "ortools": version("ortools"),
        },
        "decisions": decisions,
        "growth": grown,
        "batches": batches,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if given.out == RESULTS:
        draw(decisions, PICTURE)
    print(f"wrote {os.path.relpath(given.out)}")
    return 0


def _show_decision(row: dict[str, Any]) -> None:
    cpu, wall = row["cpu"], row["wall"]
    print(
        f"{row['nodes']:6} nodes: one decision {cpu['p50']:.3f} ms (p99 {cpu['p99']:.2f}) of CPU, "
        f"{wall['p50']:.3f} ms (p99 {wall['p99']:.2f}) on the wall{_verdict(row)}",
        flush=True,
    )


def _show_batch(row: dict[str, Any]) -> None:
    medians, gap = row["medians"], row["worst_gap_ratio"]
    print(
        f"{row['pods']:6} pods on {row['nodes']} nodes: {medians['cpu_s']:.2f} s of CPU, {medians['seconds']:.2f} s on "
        f"the wall, worst gap {'unknown' if gap is None else f'{100 * gap:.3f} %'}, "
        f"{medians['saved_milli_gpu'] / 1000:.1f} GPU better than the index alone{_verdict(row)}",
        flush=True,
    )


def _verdict(row: dict[str, Any]) -> str:
    return "" if "is_reached" not in row else " - reached" if row["is_reached"] else " - MISSED"


if __name__ == "__main__":
    sys.exit(main())
