"""How far any moves could get on the openb protocol: none before an arrival fails, and what is placed stays in.

    python -m bench.openb_reach                    # default, gpushare100; seeds 42..44

Prints, at 100 % arrived demand, the unallocated share of our policy without and with moves, and a proven lower limit
for every method that starts from the same first failure: a linear program over the ways to fill a device (CPU, memory
and models left aside, so the truth lies above it), in which all pods placed until then must stay and the later ones
may be chosen freely and with foresight. Writes bench/results/openb_reach.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from ortools.linear_solver import pywraplp

from binpack.simulate import Outcome, Setting, simulate
from binpack.trace import load_nodes, load_pods

RESULT = Path(__file__).parent / "results" / "openb_reach.json"
WHOLE, STEP = 1000, 10
MISSING = 1e6  # what leaving out one pod that must stay costs: more than anything gains

Demand = Counter[int]  # devices by milli-GPU of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="default,gpushare100")
    parser.add_argument("--seeds", default="42-44", help="FROM-TO")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    rows = [reach(trace, seed) for trace in given.traces.split(",") for seed in seeds]
    for trace in given.traces.split(","):
        mine = [row for row in rows if row["trace"] == trace]
        means = {name: round(statistics.fmean(row[name] for row in mine), 3) for name in ("still", "moved", "limit")}
        print(f"{trace}: still {means['still']} %, moved {means['moved']} %, no method below {means['limit']} %")
    document = {"command": " ".join(["python -m bench.openb_reach", *sys.argv[1:]]), "runs": rows}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def reach(trace: str, seed: int) -> dict[str, Any]:
    """Return the three shares of one run, in percent, and the moves made."""
    nodes, pods = load_nodes(), load_pods(trace)
    devices = sum(len(node.devices) for node in nodes)
    outcomes: list[Outcome] = []
    still = simulate(nodes, pods, Setting(seed=seed, arrive_ratio=1.0), on_outcome=outcomes.append)
    moved = simulate(nodes, pods, Setting(seed=seed, arrive_ratio=1.0, moves_ratio=0.05))
    failed = next((place for place, one in enumerate(outcomes) if one.berth is None), len(outcomes))
    must, may = demand(outcomes[:failed]), demand(outcomes[failed:])
    return {
        "trace": trace,
        "seed": seed,
        "still": percent(still.unallocated_at[100]),
        "moved": percent(moved.unallocated_at[100]),
        "moves": moved.moves,
        "limit": percent(1 - most_placed(must, may, devices) / (WHOLE * devices)),
    }


def percent(ratio: float | None) -> float:
    return round(100 * (ratio or 0.0), 3)


def demand(outcomes: list[Outcome]) -> Demand:
    found: Demand = Counter()
    for one in outcomes:
        if one.pod.ask is not None:
            found[one.pod.ask.milli_gpu] += one.pod.ask.count
    return found


def most_placed(must: Demand, may: Demand, devices: int) -> float:
    """Return an upper limit of the milli-GPU that fit, by column generation over the ways to cut a device."""
    sizes = sorted({*must, *may})
    cuts = {tuple([size] * (WHOLE // size)) for size in sizes}
    while True:
        total, worth, device = _relaxed(must, may, devices, sizes, sorted(cuts))
        value, cut = _best_cut(worth)
        # Beyond the relaxation of the cuts known, no cut can gain more than this on every device.
        if value <= device + 1e-7 or cut in cuts:
            return total + max(0.0, value - device) * devices
        cuts.add(cut)


def _relaxed(
    must: Demand, may: Demand, devices: int, sizes: list[int], cuts: list[tuple[int, ...]]
) -> tuple[float, dict[int, float], float]:
    solver = pywraplp.Solver("reach", pywraplp.Solver.GLOP_LINEAR_PROGRAMMING)
    placed = {size: solver.NumVar(0, must[size] + may[size], "") for size in sizes}
    missing = {size: solver.NumVar(0, must[size], "") for size in sizes}
    used = [solver.NumVar(0, solver.infinity(), "") for _ in cuts]
    for size in sizes:
        solver.Add(placed[size] + missing[size] >= must[size])
    rows = {
        size: solver.Add(placed[size] <= sum(cut.count(size) * use for cut, use in zip(cuts, used, strict=True)))
        for size in sizes
    }
    pool = solver.Add(sum(used) <= devices)
    solver.Maximize(sum(size * placed[size] for size in sizes) - MISSING * sum(missing.values()))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        raise AssertionError("the linear program has no optimum")
    worth = {size: abs(row.dual_value()) for size, row in rows.items()}
    return solver.Objective().Value(), worth, abs(pool.dual_value())


def _best_cut(worth: dict[int, float]) -> tuple[float, tuple[int, ...]]:
    """Return the most valuable way to cut a device at these prices, sizes rounded down to 10 milli-GPU."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for room in range(1, WHOLE // STEP + 1):
        options = [best[-1]]
        for size, value in worth.items():
            need = max(1, size // STEP)
            if need <= room:
                before, cut = best[room - need]
                options.append((before + value, tuple(sorted((*cut, size)))))
        best.append(max(options))
    return best[-1]


if __name__ == "__main__":
    main()
