"""What batch planning adds to the index, and what it costs: batches of the openb traces, index alone and with CP-SAT.

    python -m bench.solver                                       # three traces, batches of 64 and 256, seeds 42..44
    python -m bench.solver --traces default --batches 64 --seeds 42-51 --solve-s 0.1

Writes bench/results/solver.json. Every batch is planned as the live planner does it and verified by `binpack.check`
against states of its own; a violation ends the bench. "saved" is potential that the solver's plans cost less than the
index's for the same batches, in milli-GPU; "gap" is what they may still lie above the optimum over the patterns
weighed.
`one-by-one` is the published online protocol, for comparison: batches are another policy, they see more at once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from binpack.check import check
from binpack.index import Index, mix_of
from binpack.planner import draft, filled, improve, question_of
from binpack.simulate import arrivals
from binpack.solver.instance import Budget
from binpack.solver.solve import solve
from binpack.state import DeviceState, NodeState
from binpack.trace import empty_state, load_nodes, load_pods
from fleet.device import WHOLE_MILLI
from fleet.plan import Placement, Plan, SolveStatus
from fleet.pod import Pod

RESULTS = Path(__file__).parent / "results" / "solver.json"
STEPS = ("draft", "question", "solve", "improve", "check")


@dataclass
class Run:
    """What one run measured; times in milliseconds per batch."""

    trace: str
    seed: int
    mode: str
    batch: int
    demand: int = 0
    placed: int = 0
    failed: int = 0
    saved: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    deterministic_s: list[float] = field(default_factory=list)
    patterns: list[int] = field(default_factory=list)
    ms: dict[str, list[float]] = field(default_factory=lambda: {step: [] for step in STEPS})
    cpu_ms: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="default,gpuspec33,multigpu50", help="comma list")
    parser.add_argument("--batches", default="64,256", help="comma list of pods per batch")
    parser.add_argument("--seeds", default="42-44", help="FROM-TO")
    parser.add_argument("--solve-s", type=float, default=0.2, help="deterministic solver time per batch")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    rows = []
    for trace in given.traces.split(","):
        for mode, batch in [("one-by-one", 1), *modes(map(int, given.batches.split(",")))]:
            runs = [run(trace, seed, mode, batch, given.solve_s) for seed in range(int(first), int(last or first) + 1)]
            rows.append(summary(runs))
            show(rows[-1])
    report = {
        "command": " ".join(["python -m bench.solver", *sys.argv[1:]]),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "ortools": version("ortools"),
        },
        "seeds": given.seeds,
        "solve_s": given.solve_s,
        "rows": rows,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {os.path.relpath(given.out)}")


def modes(batches: Iterator[int]) -> Iterator[tuple[str, int]]:
    for batch in batches:
        yield "index", batch
        yield "solver", batch


def run(trace: str, seed: int, mode: str, batch: int, solve_s: float) -> Run:
    """Place arrivals until they reach the cluster's GPU capacity."""
    nodes, trace_pods = load_nodes(), load_pods(trace)
    states = {node.name: empty_state(node) for node in nodes}
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    sequence = arrivals(trace_pods, list(states), capacity, 1.0, seed)
    index = Index(states.values(), mix=mix_of(trace_pods))
    found = Run(trace=trace, seed=seed, mode=mode, batch=batch, demand=capacity)
    for start in range(0, len(sequence.pods), batch):
        pods = sequence.pods[start : start + batch]
        plan = alone(index, pods) if mode == "one-by-one" else together(index, pods, mode, solve_s, found)
        carry_out(index, states, pods, plan, found)
    return found


def alone(index: Index, pods: Sequence[Pod]) -> Plan:
    answer = index.place(pods[0], with_shortfall=False)
    return Plan(placements=(answer,)) if isinstance(answer, Placement) else Plan(unplaced=(answer,))


def together(index: Index, pods: Sequence[Pod], mode: str, solve_s: float, found: Run) -> Plan:
    """Plan one batch, noting times."""
    clock, cpu = Stopwatch(found), process_time()
    plan = draft(index, pods)
    clock.lap("draft")
    if mode == "solver":
        question = question_of(index, pods, plan)
        clock.lap("question")
        if question is not None:
            answer = solve(question, Budget(deterministic_s=solve_s))
            clock.lap("solve")
            better = filled(index, pods, improve(plan, pods, question, answer))
            clock.lap("improve")
            found.deterministic_s.append(answer.deterministic_s)
            found.patterns.append(answer.patterns)
            if answer.gap_milli_gpu is not None:
                found.gaps.append(answer.gap_milli_gpu)
            if better.objective > plan.objective:
                raise AssertionError(f"{found.trace} {found.seed}: the solver made a plan worse")
            found.saved += answer.draft_cost - answer.cost if len(better.unplaced) == len(plan.unplaced) else 0.0
            plan = better
    found.cpu_ms.append(1000 * (process_time() - cpu))
    found.statuses[plan.solve_status.value] += 1
    found.sources[plan.source.value] += 1
    return plan


def carry_out(index: Index, states: dict[str, NodeState], pods: Sequence[Pod], plan: Plan, found: Run) -> None:
    """Verify the plan against states of our own, then book it on both."""
    at = perf_counter()
    violations = check(states, pods, plan)
    found.ms["check"].append(1000 * (perf_counter() - at))
    if violations:
        raise AssertionError(f"{found.trace} {found.seed} {found.mode}: {violations[:3]}")
    by_uid = {pod.uid: pod for pod in pods}
    for placement in plan.placements:
        pod, berth = by_uid[placement.pod_uid], placement.berth
        index.take(pod, berth)
        states[berth.node] = after(states[berth.node], pod, berth.devices)
        found.placed += pod.ask.total_milli_gpu if pod.ask is not None else 0
    found.failed += len(plan.unplaced)


def after(state: NodeState, pod: Pod, given: Sequence[str]) -> NodeState:
    """Return the node with the pod on it."""
    milli = pod.ask.milli_gpu if pod.ask is not None else 0
    devices = tuple(
        DeviceState(device=d.device, free_milli=d.free_milli - milli, free_mib=d.free_mib, users=d.users + 1)
        if d.device.id in given
        else d
        for d in state.devices
    )
    return NodeState(node=state.node, free=state.free - pod.requests, devices=devices, blocked=state.blocked)


class Stopwatch:
    """Notes the time of each step of a batch."""

    def __init__(self, found: Run) -> None:
        self._found, self._at = found, perf_counter()

    def lap(self, step: str) -> None:
        """Note how long the step took that ends now."""
        now = perf_counter()
        self._found.ms[step].append(1000 * (now - self._at))
        self._at = now


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return means over the seeds."""
    one = runs[0]
    unallocated = [100 * (1 - run.placed / run.demand) for run in runs]
    row: dict[str, Any] = {
        "trace": one.trace,
        "mode": one.mode,
        "batch": one.batch,
        "unallocated_percent_at_100": round(statistics.fmean(unallocated), 3),
        "by_seed": [round(percent, 3) for percent in unallocated],
        "failed_pods": round(statistics.fmean(run.failed for run in runs), 1),
    }
    if one.mode == "one-by-one":
        return row
    row["cpu_ms_per_batch"] = _spread([ms for run in runs for ms in run.cpu_ms])
    row["ms_per_batch"] = {
        step: _spread(times) for step in STEPS if (times := [ms for run in runs for ms in run.ms[step]])
    }
    if one.mode == "solver":
        batches = sum(sum(run.statuses.values()) for run in runs)
        row["saved_milli_gpu_per_run"] = round(statistics.fmean(run.saved for run in runs))
        row["mean_gap_milli_gpu"] = round(statistics.fmean(gap for run in runs for gap in run.gaps), 3)
        row["batches"] = batches
        row["status_share"] = {
            status.value: round(sum(run.statuses[status.value] for run in runs) / batches, 4) for status in SolveStatus
        }
        row["solver_plan_share"] = round(sum(run.sources["solver"] for run in runs) / batches, 4)
        row["patterns"] = _spread([n for run in runs for n in run.patterns])
        row["deterministic_s"] = _spread([s for run in runs for s in run.deterministic_s])
    return row


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 4),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 4),
        "max": round(ordered[-1], 4),
    }


def show(row: dict[str, Any]) -> None:
    line = (
        f"{row['trace']:<11} {row['mode']:<10} batch {row['batch']:>3}: {row['unallocated_percent_at_100']:.3f} % "
        f"unallocated, {row['failed_pods']:.0f} failed"
    )
    if "ms_per_batch" in row:
        line += f", {row['cpu_ms_per_batch']['median']:.0f} ms of a core per batch"
    if row["mode"] == "solver":
        line += f", {100 * row['status_share']['optimal']:.1f} % optimal, gap {row['mean_gap_milli_gpu']:.2f} milli-GPU"
    print(line, flush=True)


if __name__ == "__main__":
    main()
