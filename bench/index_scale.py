"""One decision of the index as the cluster grows: openb's nodes and pods, copied to the size wanted.

    python -m bench.index_scale                 # 1,000, 2,000, 5,000 and 10,000 nodes; some minutes on a quiet core
    python -m bench.index_scale --nodes 5000

Pods of the default trace arrive until 90 % of the GPUs are asked for, and then 3,000 more are timed, one by one: the
decision with its books, the mix learnt as they come. Writes bench/results/index_scale.json. Wall time in the process: a
busy machine shows in the tail.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from binpack.arrivals import arrivals
from binpack.index import Index, mix_of
from binpack.trace import empty_state, load_nodes, load_pods
from fleet.device import WHOLE_MILLI
from fleet.node import Node
from fleet.plan import Placement
from fleet.pod import Pod

OUT = Path(__file__).parent / "results" / "index_scale.json"
SIZES = (1000, 2000, 5000, 10_000)
FILLED_RATIO = 0.9
TIMED = 3000
SEED = 7
_MOST_P50_MS, _MOST_P99_MS, _AT = 0.3, 2.0, 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)), help="comma list of sizes")
    given = parser.parse_args()
    rows = []
    for size in map(int, given.nodes.split(",")):
        rows.append(measure(size))
        print(
            f"{size:>6} nodes: p50 {rows[-1]['p50_ms']:.3f} ms, p99 {rows[-1]['p99_ms']:.3f} ms, "
            f"{rows[-1]['placed']} of {TIMED} placed, new tables {rows[-1]['tables_ms']:.1f} ms",
            flush=True,
        )
    report: dict[str, Any] = {
        "command": " ".join(["python -m bench.index_scale", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": version("numpy")},
        "filled_ratio": FILLED_RATIO,
        "timed_pods": TIMED,
        "rows": rows,
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        if row["nodes"] == _AT:
            is_met = row["p50_ms"] < _MOST_P50_MS and row["p99_ms"] < _MOST_P99_MS
            print(
                f"{'reached' if is_met else 'MISSED'}: at {_AT} nodes p50 < {_MOST_P50_MS} ms, p99 < {_MOST_P99_MS} ms"
            )


def measure(size: int) -> dict[str, Any]:
    """Return how long decisions take on so many nodes."""
    nodes, pods = cluster(size)
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    sequence = arrivals(pods, [node.name for node in nodes], capacity, FILLED_RATIO, SEED).pods
    index = Index([empty_state(node) for node in nodes])
    for pod in sequence[:-TIMED]:
        _decide(index, pod)
    times, placed = [], 0
    for pod in sequence[-TIMED:]:
        begun = perf_counter()
        placed += _decide(index, pod)
        times.append(1000 * (perf_counter() - begun))
    begun = perf_counter()
    index.set_mix(mix_of(pods[:2000]))
    return {
        "nodes": size,
        "placed": placed,
        "p50_ms": round(statistics.median(times), 4),
        "p99_ms": round(float(np.percentile(times, 99)), 4),
        "most_ms": round(max(times), 3),
        "mean_ms": round(statistics.fmean(times), 4),
        "tables_ms": round(1000 * (perf_counter() - begun), 1),
    }


def cluster(size: int) -> tuple[list[Node], list[Pod]]:
    """Return openb's nodes copied until there are so many, evenly, and its pods as often."""
    base_nodes, base_pods = load_nodes(), load_pods("default")
    copies = math.ceil(size / len(base_nodes))
    every = [replace(node, name=f"{node.name}-{copy}") for node in base_nodes for copy in range(copies)]
    kept = [every[place * len(every) // size] for place in range(size)]
    pods = [replace(pod, name=f"{pod.name}-{c}", uid=f"{pod.uid}-{c}") for pod in base_pods for c in range(copies)]
    return kept, pods


def _decide(index: Index, pod: Pod) -> bool:
    answer = index.place(pod, with_shortfall=False)
    if isinstance(answer, Placement):
        index.take(pod, answer.berth)
    index.learn((pod,))
    return isinstance(answer, Placement)


if __name__ == "__main__":
    main()
