"""How far any method could get on the openb protocol: a proven limit per trace and seed.

    python -m bench.openb_bounds                    # 17 traces, seeds 42..51: about two minutes on one core
    python -m bench.openb_bounds --traces default,gpuspec33 --seeds 42-44

Writes bench/results/openb_bounds.json. For the very pods that arrive within 100 % of the GPU capacity (what a seed
shuffles and re-samples), the limit is the least unallocated share that any method could have reached, even one that
sees all pods at once, may refuse whom it likes and may move whom it likes; see binpack/bound/limit.py. `bench.openb`
prints it beside every policy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from binpack.arrivals import arrivals
from binpack.bound import Bounds
from binpack.trace import load_nodes, load_pods, traces
from fleet.device import WHOLE_MILLI

OUT = Path(__file__).parent / "results" / "openb_bounds.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="all", help=f"comma list, or all: {', '.join(traces())}")
    parser.add_argument("--seeds", default="42-51", help="FROM-TO")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    chosen = traces() if given.traces == "all" else tuple(given.traces.split(","))
    rows = {}
    for trace in chosen:
        rows[trace] = bounds_of(trace, seeds)
        print(f"\r{trace}: {len(rows)} of {len(chosen)} traces", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    report = {
        "command": " ".join(["python -m bench.openb_bounds", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "ortools": version("ortools")},
        "seeds": [seeds[0], seeds[-1]],
        "what": "least unallocated GPU, % of the capacity, for the pods arrived within 100 %; proved per seed",
        "traces": rows,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(rows)
    print(f"wrote {os.path.relpath(given.out)}")


def bounds_of(trace: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the proven limits of one trace, percent, rounded down."""
    nodes, pods = load_nodes(), load_pods(trace)
    names = [node.name for node in nodes]
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    started = perf_counter()
    bounds = Bounds(nodes, pods)
    found = [bounds.of(arrivals(pods, names, capacity, 1.0, seed).pods) for seed in seeds]
    percents = [_floored(100 * (1 - bound.allocated_milli_gpu / capacity)) for bound in found]
    return {
        "bound_percent": _floored(statistics.fmean(percents)),
        "bound_percent_by_seed": percents,
        "sd": round(statistics.stdev(percents), 3) if len(percents) > 1 else 0.0,
        "slack_percent": round(100 * max(bound.slack_ratio for bound in found), 4),
        "wall_s": round(perf_counter() - started, 1),
    }


def _floored(percent: float) -> float:
    return int(percent * 1000) / 1000


def show(rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n{'trace':<12} {'bound %':>8} {'sd':>6} {'search slack':>13} {'wall s':>7}")
    for trace, row in rows.items():
        print(
            f"{trace:<12} {row['bound_percent']:>8.3f} {row['sd']:>6.3f} {row['slack_percent']:>13.4f} "
            f"{row['wall_s']:>7.1f}"
        )


if __name__ == "__main__":
    main()
