"""Packing where pods leave: pending and stranded GPU-hours of our policy beside FGD and best fit.

    python -m bench.lifetimes                               # every twelfth node, 30 days, three loads: two hours
    python -m bench.lifetimes --every 1 --loads 1.0 --policies berthmaster fgd     # the whole cluster: an hour a run
    python -m bench.lifetimes --instances PATH              # replicas of GPU inference services instead of the trace

Poisson arrivals of pods drawn from the openb default trace with their own lives, cut at the 99th percentile; waiting
pods are tried again on each node that something leaves; what is measured comes after one longest life of warm-up. All
policies meet the same arrivals. Of the waiting pods that fit, `berthmaster` takes the one first that the planner would
(`binpack.demand.in_turn`), published policies the one that came first. `ours,arrival` and `fgd,in-turn` swap that, to
tell order and policy apart. Ours knows the mix by load (what runs at a moment), published policies by number.

PATH is `disaggregated_DLRM_trace.csv` of alibaba/clusterdata, cluster-trace-gpu-v2025, which does not come along: its
instances that ask a GPU and whose creation and deletion are both known, one pod each, on the openb nodes.

Writes bench/results/lifetimes.json after every run; runs that are there already are kept, so that it can be stopped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import platform
import statistics
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.lifetimes_bound import least_unallocated
from berthmaster.lifetimes_report import as_json
from binpack.lifetimes import LIFETIME_POLICIES, LifeSetting, Lived, simulate_lifetimes
from binpack.lifetimes.values import ARRIVAL, IN_TURN, OWN
from binpack.simulate import OURS
from binpack.trace import load_lives, load_nodes, load_pods
from fleet.device import AskKind, DeviceAsk
from fleet.pod import Pod
from fleet.resources import Resources

MOVING = "ours+moves"
MOVING_BY_ARRIVAL = "ours+moves,arrival"
SWAPPED = {"ours,arrival": (OURS, ARRIVAL), MOVING_BY_ARRIVAL: (OURS, ARRIVAL), "fgd,in-turn": ("fgd", IN_TURN)}
MOVES_RATIO = 0.0099  # of the pods in place within any hour: under 1 %
RECOVERED_TARGET = 0.5  # of FGD's stranded GPU-hours, with moves
OUT = Path(__file__).parent / "results" / "lifetimes.json"
PENDING_TARGET = 0.8  # of FGD's pending GPU-hours at load 1.0, without moves
INSTANCES = "dlrm-instances"
CLASSES = ("8gpu", "4gpu", "2gpu", "1gpu", "f>=600", "f400-599", "f<400")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default="0.9,1.0,1.1", help="comma list")
    parser.add_argument(
        "--policies",
        nargs="+",
        default=[OURS, MOVING, "fgd", "best-fit"],
        choices=[MOVING, *SWAPPED, *LIFETIME_POLICIES],
        metavar="POLICY",
        help="of %(choices)s",
    )
    parser.add_argument("--seeds", default="42-44", help="FROM-TO")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--every", type=int, default=12, help="take each so manieth node of the openb list")
    parser.add_argument("--instances", type=Path, help="CSV of inference instances; not shipped")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    trace = INSTANCES if given.instances else "default"
    lived = instances(given.instances) if given.instances else from_trace()
    nodes = load_nodes()[:: given.every]
    report = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {"runs": []}
    runs = {key(run): run for run in report["runs"]}
    bounds = {(bound["trace"], bound["every"], bound["load_ratio"]): bound for bound in report.get("bounds", [])}
    for load in map(float, given.loads.split(",")):
        if (trace, given.every, load) not in bounds:
            least = round(100 * least_unallocated(nodes, lived, load), 2)
            bounds[trace, given.every, load] = {
                "trace": trace,
                "every": given.every,
                "load_ratio": load,
                "least_unallocated_percent": least,
            }
    for seed in range(int(first), int(last or first) + 1):
        for load in map(float, given.loads.split(",")):
            for policy in given.policies:
                setting = setting_of(policy, seed, load, given.days)
                wanted = (trace, given.every, given.days, load, policy, seed)
                if wanted in runs:
                    continue
                result = as_json(simulate_lifetimes(nodes, lived, setting), trace)
                runs[wanted] = {"every": given.every} | result | {"policy": policy}
                if runs[wanted]["faults"]:
                    raise AssertionError(f"{wanted}: {runs[wanted]['faults'][:3]}")
                write(given.out, list(runs.values()), list(bounds.values()))
                print(f"\r{len(runs)} runs, the last: {wanted}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    write(given.out, list(runs.values()), list(bounds.values()))
    show(summary(list(runs.values())))
    for bound in bounds.values():
        print(
            f"{bound['trace']}, load {bound['load_ratio']}: no method leaves less than "
            f"{bound['least_unallocated_percent']} % unallocated"
        )
    print(f"wrote {os.path.relpath(given.out)}")


def setting_of(policy: str, seed: int, load: float, days: float) -> LifeSetting:
    moves_ratio = MOVES_RATIO if policy in (MOVING, MOVING_BY_ARRIVAL) else 0.0
    policy, order = SWAPPED.get(policy, (OURS if policy == MOVING else policy, OWN))
    return LifeSetting(policy=policy, seed=seed, load_ratio=load, days=days, moves_ratio=moves_ratio, order=order)


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in ("trace", "every", "days", "load_ratio", "policy", "seed"))


def from_trace() -> list[Lived]:
    lives = load_lives()
    return [Lived(pod=pod, life_s=lives[pod.name]) for pod in load_pods()]


def instances(path: Path) -> list[Lived]:
    """Return the instances that ask a GPU and whose times are both known."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        if float(row["gpu_request"]) and row["creation_time"] and row["deletion_time"]:
            name = row["instance_sn"]
            requests = Resources(
                milli_cpu=round(1000 * float(row["cpu_request"])),
                memory_bytes=round(2**30 * float(row["memory_request"])),
                pod_slots=1,
            )
            ask = DeviceAsk(kind=AskKind.CHOSEN, count=round(float(row["gpu_request"])))
            life_s = max(0.0, float(row["deletion_time"]) - float(row["creation_time"]))
            found.append(Lived(pod=Pod(uid=name, name=name, requests=requests, ask=ask), life_s=life_s))
    return found


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per trace, nodes, days, load and policy: means over the seeds, and FGD's on the same seeds."""
    groups: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(key(run)[:-1], {})[run["seed"]] = run
    rows = []
    for group in sorted(groups):
        mine, fgd = groups[group], groups.get((*group[:-1], "fgd"), {})
        both = sorted(mine.keys() & fgd.keys())
        row = dict(zip(("trace", "every", "days", "load_ratio", "policy"), group, strict=True)) | {
            "seeds": sorted(mine)
        }
        for name in ("pending_gpu_hours_total", "stranded_gpu_hours"):
            row[name] = round(statistics.fmean(run[name] for run in mine.values()), 1)
            of_fgd = sum(fgd[seed][name] for seed in both)
            row[f"{name}_of_fgd"] = round(sum(mine[seed][name] for seed in both) / of_fgd, 3) if of_fgd else None
        row["pending_gpu_hours"] = {
            name: round(statistics.fmean(run["pending_gpu_hours"].get(name, 0.0) for run in mine.values()), 1)
            for name in CLASSES
        }
        row["unallocated_percent"] = round(100 * statistics.fmean(r["unallocated_gpu_ratio"] for r in mine.values()), 2)
        row["moves_per_hour"] = round(statistics.fmean(r["moves"] / (24 * r["days"]) for r in mine.values()), 1)
        row["offered_percent"] = round(100 * statistics.fmean(run["offered_ratio"] for run in mine.values()), 1)
        rows.append(row)
    return rows


def write(path: Path, runs: list[dict[str, Any]], bounds: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "command": " ".join(["python -m bench.lifetimes", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": version("numpy")},
        "retry": "on each node that something leaves, waiting pods that fit, in the order that each run names",
        "bounds": bounds,
        "summary": summary(runs),
        "runs": runs,
    }
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def show(rows: list[dict[str, Any]]) -> None:
    print(
        "trace           1/n  days  load offered policy             seeds  pending GPU-h  of FGD  stranded  of FGD"
        "  unalloc moves/h"
    )
    for row in rows:
        ratios = [row["pending_gpu_hours_total_of_fgd"], row["stranded_gpu_hours_of_fgd"]]
        pending, stranded = ("" if ratio is None else f"{100 * ratio:.0f} %" for ratio in ratios)
        print(
            f"{row['trace']:<15} {row['every']:>3} {row['days']:>5g} {row['load_ratio']:>5} "
            f"{row['offered_percent']:>6.1f}% {row['policy']:<18} {len(row['seeds']):>5} "
            f"{row['pending_gpu_hours_total']:>14,.0f} {pending:>7} {row['stranded_gpu_hours']:>9,.0f} {stranded:>7} "
            f"{row['unallocated_percent']:>7.2f}% {row['moves_per_hour']:>7.1f}"
        )
        if row["load_ratio"] == 1.0 and None not in ratios:
            verdict = verdict_on(row["policy"], *ratios)
            if verdict:
                print(verdict)
    names = " ".join(f"{name:>10}" for name in CLASSES)
    print(f"\npending GPU-hours by class\n{'trace':<15}  days  load {'policy':<18} {names}")
    for row in rows:
        hours = " ".join(f"{row['pending_gpu_hours'][name]:>10,.0f}" for name in CLASSES)
        print(f"{row['trace']:<15} {row['days']:>5g} {row['load_ratio']:>5} {row['policy']:<18} {hours}")


def verdict_on(policy: str, pending_of_fgd: float, stranded_of_fgd: float) -> str:
    """Return how a row at load 1.0 stands to its target; "" where it has none."""
    if policy == OURS:
        found, wanted, is_met = pending_of_fgd, f"at most {PENDING_TARGET:.0%}", pending_of_fgd <= PENDING_TARGET
        return f"{'met   ' if is_met else 'MISSED'} pending at load 1.0: {found:.1%} of FGD's, wanted {wanted}"
    if policy == MOVING:
        found, is_met = 1 - stranded_of_fgd, 1 - stranded_of_fgd >= RECOVERED_TARGET
        wanted = f"at least {RECOVERED_TARGET:.0%}"
        return (
            f"{'met   ' if is_met else 'MISSED'} stranded recovered at load 1.0: {found:.1%} of FGD's, wanted {wanted}"
        )
    return ""


if __name__ == "__main__":
    main()
