"""How surely and how fast gangs are placed: all members at once or none, on a cluster that is 90 % full.

    python -m bench.gangs                                        # 1,000 nodes, gangs of 8 to 64 pods, seeds 42..46
    python -m bench.gangs --seeds 42 --sizes 64

Nodes are drawn from the openb trace and filled with its pods, each on one of the sixteen cheapest berths by chance,
until 90 % of the GPUs are allocated. A gang is cut out of what is then free, so that it fits by construction:

- `drawn`: members of any shape, on nodes drawn by chance;
- `snug`: each member takes all free whole devices of its node (a share of one where there is none) and most of its CPU,
  so that it fits on few others;
- `widest`: as `snug`, on the nodes with most free devices: nearly no other node could take such a member;
- `last`: as `drawn`, several members on each of a few nodes, and then everything free elsewhere is taken: all that is
  left in the cluster is what these members take, and little more (harder than a cluster that is 90 % full).

Where the members came from is not told to whoever places them. Every placement is checked by `binpack.check`; a
violation ends the bench. Writes bench/results/gangs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from binpack.check import check
from binpack.gangs.place import Refusal, place
from binpack.gangs.room import booked
from binpack.index import Index
from binpack.state import NodeState
from binpack.trace import empty_state, load_nodes, load_pods
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.plan import Plan
from fleet.pod import Berth, Pod
from fleet.resources import Resources

RESULTS = Path(__file__).parent / "results" / "gangs.json"
KINDS = ("drawn", "snug", "widest", "last")
_MEMBERS_PER_NODE = 3
FULL_RATIO = 0.9
LONGEST_S = 1.0
_OPTIONS = 16
_SHARES = (100, 200, 250, 330, 500, 700)
States = dict[str, NodeState]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sizes", default="8,16,32,64", help="comma list of members")
    parser.add_argument("--seeds", default="42-46", help="FROM-TO")
    parser.add_argument("--gangs", type=int, default=5, help="gangs of each kind and size per seed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    sizes = [int(size) for size in given.sizes.split(",")]
    runs: list[dict[str, Any]] = []
    for seed in range(int(first), int(last or first) + 1):
        draw = random.Random(seed)
        states = filled(given.nodes, draw)
        index = Index(states.values())
        for kind in KINDS:
            for size in sizes:
                runs += [run(index, states, kind, size, seed, draw) for _ in range(given.gangs)]
        print(f"seed {seed}: {sum(run['placed'] for run in runs)} of {len(runs)} placed", file=sys.stderr, flush=True)
    rows = [summary(runs, kind, size) for kind in KINDS for size in sizes]
    report = {
        "command": " ".join(["python -m bench.gangs", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": version("numpy")},
        "nodes": given.nodes,
        "full_ratio": FULL_RATIO,
        "rows": rows,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(rows)
    print(f"wrote {os.path.relpath(given.out)}")


def filled(count: int, draw: random.Random) -> States:
    """Return a cluster of so many nodes, 90 % of its GPUs allocated."""
    nodes = draw.sample(load_nodes(), count)
    states = {node.name: empty_state(node) for node in nodes}
    index = Index(states.values())
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    pods = load_pods("default")
    held = 0
    while held < FULL_RATIO * capacity:
        pod = draw.choice(pods)
        options = index.options(pod, _OPTIONS)
        if options:
            berth = draw.choice(options).berth
            index.take(pod, berth)
            states[berth.node] = booked(pod, berth, states[berth.node])
            held += pod.ask.total_milli_gpu if pod.ask is not None else 0
    return states


def gang(states: States, kind: str, size: int, draw: random.Random) -> list[Pod]:
    """Cut a gang out of what is free, without a word on where; `states` lose what the kind wants taken elsewhere."""
    left = dict(states)
    names = [name for name, state in left.items() if any(device.free_milli >= min(_SHARES) for device in state.devices)]
    draw.shuffle(names)
    if kind == "widest":
        names.sort(key=lambda name: -sum(device.is_untouched for device in left[name].devices))
    is_snug = kind in ("snug", "widest")
    at_once = _MEMBERS_PER_NODE if kind == "last" else 1
    found: list[Pod] = []
    used: set[str] = set()
    for name in names * (1 if is_snug or kind == "last" else 50):
        if kind == "drawn" and draw.random() < 0.5:
            continue
        for _ in range(at_once):
            cut = member(len(found), left[name], draw, is_snug=is_snug) if len(found) < size else None
            if cut is not None:
                pod, berth = cut
                left[name] = booked(pod, berth, left[name])
                found.append(pod)
                used.add(name)
    if kind == "last":
        for name in set(left).difference(used):
            states[name] = replace(states[name], free=Resources())
    draw.shuffle(found)
    return found


def member(number: int, state: NodeState, draw: random.Random, *, is_snug: bool) -> tuple[Pod, Berth] | None:
    """Return a pod that fits on the node, and where."""
    whole = [device.device.id for device in state.devices if device.is_untouched]
    part = [device for device in state.devices if device.free_milli >= min(_SHARES)]
    cores = state.free.milli_cpu // 1000
    if not part or cores < 1:
        return None
    models = (part[0].device.model,) if draw.random() < 0.2 else ()
    if whole and (is_snug or draw.random() < 0.6):
        count = len(whole) if is_snug else draw.randint(1, len(whole))
        ask, devices = DeviceAsk(kind=AskKind.CHOSEN, count=count, models=models), tuple(whole[:count])
    else:
        device = draw.choice(part)
        milli = draw.choice([share for share in _SHARES if share <= device.free_milli])
        ask = DeviceAsk(kind=AskKind.SHARE, milli_gpu=milli, models=models)
        devices = (device.device.id,)
    milli_cpu = 1000 * draw.randint(max(1, 4 * cores // 5) if is_snug else 1, cores if is_snug else max(1, cores // 2))
    pod = Pod(
        uid=f"member-{number}",
        name=f"member-{number}",
        requests=Resources(milli_cpu=milli_cpu, memory_bytes=state.free.memory_bytes // 4, pod_slots=1),
        ask=ask,
    )
    return pod, Berth(node=state.node.name, devices=devices)


def run(index: Index, states: States, kind: str, size: int, seed: int, draw: random.Random) -> dict[str, Any]:
    """Place one gang, and judge the answer."""
    states = dict(states)
    pods = gang(states, kind, size, draw)
    if kind == "last":
        index = Index(states.values())
    started, cpu = perf_counter(), process_time()
    answer = place(index, states.get, pods)
    spent_s, cpu_s = perf_counter() - started, process_time() - cpu
    is_placed = not isinstance(answer, Refusal)
    if not isinstance(answer, Refusal):
        violations = check(states, pods, Plan(placements=answer), together=[{pod.uid for pod in pods}])
        if violations:
            raise AssertionError(f"{kind} {size} seed {seed}: {violations[:3]}")
    return {
        "kind": kind,
        "size": size,
        "members": len(pods),
        "seed": seed,
        "placed": is_placed,
        "s": spent_s,
        "cpu_s": cpu_s,
    }


def summary(runs: Sequence[dict[str, Any]], kind: str, size: int) -> dict[str, Any]:
    chosen = [run for run in runs if run["kind"] == kind and run["size"] == size]
    fewest = min(run["members"] for run in chosen)
    return {"kind": kind, "members": size, "fewest_members": fewest} | figures(chosen)


def figures(chosen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many gangs were placed, and how fast."""
    times = sorted(run["s"] for run in chosen)
    return {
        "gangs": len(chosen),
        "placed": sum(run["placed"] for run in chosen),
        "placed_in_time": sum(run["placed"] and run["s"] <= LONGEST_S for run in chosen),
        "median_s": round(statistics.median(times), 4),
        "worst_s": round(times[-1], 4),
        "worst_cpu_s": round(max(run["cpu_s"] for run in chosen), 4),
    }


def show(rows: Sequence[dict[str, Any]], by: str = "kind") -> None:
    """Print a row for each kind of `by` and size."""
    print(f"{by:10} members  gangs  placed  median s  worst s  worst CPU s")
    for row in rows:
        print(
            f"{row[by]:10} {row['members']:8} {row['gangs']:6} {row['placed']:7}"
            f" {row['median_s']:9.3f} {row['worst_s']:8.3f} {row['worst_cpu_s']:12.3f}"
        )


if __name__ == "__main__":
    main()
