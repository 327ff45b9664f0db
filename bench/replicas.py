"""How many services stand on one node alone, and what keeping their replicas apart costs.

    python -m bench.replicas                          # traces default and gpuspec33, services of 4 and 16, seeds 42..44
    python -m bench.replicas --traces default --seeds 42

The openb trace knows no services, so pods that ask the same are counted off into services of as many replicas. Services
arrive in shuffled order, the replicas of one together, as a roll-out brings them; arrivals end at 100 % of the GPU
capacity, and nothing leaves. `apart` is what the planner does: each replica says whose it is. `packed` places the same
pods in the same order, and none says whose it is. Writes bench/results/replicas.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measured import commit, machine
from binpack.arrivals import milli_gpu_of
from binpack.index import Index
from binpack.index.mix import mix_of
from binpack.trace import empty_state, load_nodes, load_pods
from fleet.company import Guest
from fleet.device import WHOLE_MILLI
from fleet.plan import Placement
from fleet.pod import Pod

RESULTS = Path(__file__).parent / "results" / "replicas.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="default,gpuspec33", help="comma list")
    parser.add_argument("--replicas", default="4,16", help="comma list: of one service")
    parser.add_argument("--seeds", default="42,43,44", help="comma list")
    told = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("trace       replicas  policy   on one node  largest part  unallocated")
    for trace in told.traces.split(","):
        for replicas in map(int, told.replicas.split(",")):
            for is_apart in (False, True):
                runs = [run(trace, replicas, int(seed), is_apart=is_apart) for seed in told.seeds.split(",")]
                row = {"trace": trace, "replicas": replicas, "policy": "apart" if is_apart else "packed"}
                row |= {key: round(statistics.mean(one[key] for one in runs), 5) for key in runs[0]}
                rows.append(row)
                print(
                    f"{trace:12} {replicas:7}  {row['policy']:7} {row['on_one_node_ratio']:11.2%}"
                    f" {row['largest_part_ratio']:13.2%} {row['unallocated_ratio']:12.2%}"
                )
    report = {
        "command": " ".join(["python -m bench.replicas", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "seeds": told.seeds,
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def run(trace: str, replicas: int, seed: int, *, is_apart: bool) -> dict[str, float]:
    """Place one sequence; return how services lie, and what is left of the GPUs."""
    nodes, pods = load_nodes(), load_pods(trace)
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    index = Index([empty_state(node) for node in nodes], mix=mix_of(pods))
    where: dict[str, Counter[str]] = defaultdict(Counter)
    arrived = allocated = 0
    for service, pod in _in_order(pods, replicas, seed):
        arrived += milli_gpu_of(pod)
        if arrived > capacity:
            break
        pod = replace(pod, guest=Guest(owner=service if is_apart else "", labels=(("service", service),)))
        answer = index.place(pod, with_shortfall=False)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            allocated += milli_gpu_of(pod)
            where[service][answer.berth.node] += 1
    several = [placed for placed in where.values() if placed.total() > 1]
    return {
        "services": len(several),
        "on_one_node_ratio": sum(len(placed) == 1 for placed in several) / len(several),
        "largest_part_ratio": statistics.mean(max(placed.values()) / placed.total() for placed in several),
        "unallocated_ratio": 1 - allocated / capacity,
    }


def _in_order(pods: Sequence[Pod], replicas: int, seed: int) -> list[tuple[str, Pod]]:
    """Return (service, pod) in order of arrival; each service comes twice, so that the demand exceeds the capacity."""
    alike: dict[object, list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda one: one.name):
        alike[pod.requests, pod.ask, pod.constraints].append(pod)
    services = [
        (f"s{kind}-{start}", same[start : start + replicas])
        for kind, same in enumerate(alike.values())
        for start in range(0, len(same), replicas)
    ]
    random.Random(seed).shuffle(services)
    services += [(f"{name}-again", same) for name, same in services]
    return [(name, replace(pod, uid=f"{name}/{pod.uid}")) for name, same in services for pod in same]


if __name__ == "__main__":
    main()
