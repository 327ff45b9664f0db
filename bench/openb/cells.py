"""One cell of the bench: a trace, a policy and what it knows, a seed; a pure function of its sources."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from binpack.arrivals import class_of
from binpack.simulate import OURS, Outcome, Setting, simulate
from binpack.tally import Tally
from binpack.trace import load_nodes, load_pods, traces

ROOT = Path(__file__).parents[2]
SEEDS = tuple(range(42, 52))
OTHER_SEEDS = tuple(range(901, 904))  # on which nothing was ever chosen
MOVES_RATIO = 0.05
PROMISED_MOVED = ("default", "gpuspec33", "gpushare100")  # figures with moves were promised on these
FEWER_SEEDS = SEEDS[:3]  # with moves on the other traces: looking for them takes many times as long
LEARNT, GIVEN, MOVED, FGD, MIXED = "learnt", "given", "moved", "fgd", "mixed"
COLUMNS = (LEARNT, GIVEN, MOVED, FGD, MIXED)
_PROTOCOL = ("binpack/arrivals.py", "binpack/simulate.py", "binpack/tally.py", "binpack/trace.py", "binpack/data")
_SOURCES = {
    LEARNT: ("binpack/index", "binpack/fit.py", "binpack/state.py"),
    GIVEN: ("binpack/index", "binpack/fit.py", "binpack/state.py"),
    MOVED: ("binpack/index", "binpack/fit.py", "binpack/state.py", "binpack/repack", "binpack/solver"),
    FGD: ("binpack/peers", "binpack/fragmentation.py"),
    MIXED: ("binpack/index", "binpack/fit.py", "binpack/state.py"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is run once.

    Attributes:
        trace: Which pods.
        column: learnt = ours, the mix learnt from what has arrived; given = ours, it knows the mix; moved = learnt with
            moves of at most 5 % of the placed pods; fgd = the published policy re-made, which knows the mix; mixed =
            learnt, with the trace's 310 nodes without GPUs.
        seed: Of the order of arrival.
    """

    trace: str
    column: str
    seed: int

    @property
    def group(self) -> str:
        """Return the name it shares with its other seeds."""
        return f"{self.trace}/{self.column}"

    @property
    def key(self) -> str:
        """Return its name in the results."""
        return f"{self.group}/{self.seed}"

    @property
    def setting(self) -> Setting:
        """Return what is simulated: arrivals end at 100 % of the GPU capacity."""
        return Setting(
            policy="fgd" if self.column == FGD else OURS,
            seed=self.seed,
            arrive_ratio=1.0,
            mix="given" if self.column in (GIVEN, FGD) else "learn",
            moves_ratio=MOVES_RATIO if self.column == MOVED else 0.0,
        )


def plan(chosen: Iterable[str] | None = None, columns: Iterable[str] = COLUMNS) -> list[Cell]:
    """Return all cells of these traces and columns; seed by seed, so that half of them is half of every row."""
    names = list(traces() if chosen is None else chosen)
    found = [
        Cell(trace=trace, column=column, seed=seed)
        for seed in SEEDS
        for column in columns
        if column in (LEARNT, GIVEN, FGD)
        for trace in names
    ]
    if MOVED in columns:
        found += [
            Cell(trace=trace, column=MOVED, seed=seed)
            for seed in SEEDS
            for trace in names
            if seed in FEWER_SEEDS or trace in PROMISED_MOVED
        ]
    if LEARNT in columns:
        found += [Cell(trace=trace, column=LEARNT, seed=seed) for trace in names for seed in OTHER_SEEDS]
    if MIXED in columns and "default" in names:
        found += [Cell(trace="default", column=MIXED, seed=seed) for seed in SEEDS[:3]]
    return found


def run(cell: Cell) -> dict[str, Any]:
    """Run a cell.

    Raises:
        AssertionError: An independent count found a device given twice, or a refused pod that would have fitted.
    """
    arrived: Counter[str] = Counter()
    on_gpu_nodes = astray = 0
    nodes = load_nodes("openb-all" if cell.column == MIXED else "openb")
    elsewhere = Tally(node for node in nodes if not node.devices)
    with_devices = {node.name for node in nodes if node.devices}

    def note(outcome: Outcome) -> None:
        nonlocal on_gpu_nodes, astray
        arrived[class_of(outcome.pod)] += 1
        if outcome.pod.ask is not None or outcome.berth is None:
            return
        if outcome.berth.node in with_devices:
            on_gpu_nodes += 1
            astray += elsewhere.where_it_fits(outcome.pod) is not None
        else:
            elsewhere.book(outcome.pod, outcome.berth)

    result = simulate(nodes, load_pods(cell.trace), cell.setting, on_outcome=note)
    unallocated = result.unallocated_at[100]
    if result.faults or result.refused_but_fits or unallocated is None:
        raise AssertionError(f"{cell.key}: {result.faults[:3]}, {result.refused_but_fits} refused that fit")
    return {
        "trace": cell.trace,
        "column": cell.column,
        "seed": cell.seed,
        "unallocated_percent": round(100 * unallocated, 4),
        "arrived": dict(sorted(arrived.items())),
        "failed": dict(sorted(result.failed_pods_at_100.items())),
        "moves": result.moves,
        "cpu_pods_on_gpu_nodes": on_gpu_nodes,
        "cpu_pods_astray": astray,  # of them, while a node without devices had room
        "cpu_ms_per_decision": round(1000 * result.decision_cpu_s / max(1, result.arrived), 4),
        "sources": sources(cell.column),
    }


@lru_cache(maxsize=16)
def sources(column: str) -> str:
    """Return a digest of every file that may decide a cell's figures."""
    digest = hashlib.sha256()
    for place in (*_PROTOCOL, *_SOURCES[column]):
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".gz", ".json"):
                digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]
