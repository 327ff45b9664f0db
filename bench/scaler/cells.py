"""One cell of the bench: a load, an autoscaler, a start time, a seed; a pure function of its sources."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.scaler.rivals import RIVALS, kpa_program
from bench.scaler.workloads import LEAD_IN_S, WORKLOADS, load
from scaler.decision import Sizing
from scaler.policy import Behavior, Policy, Style, TargetBounds
from scaler.simulate.contract import Autoscaler
from scaler.simulate.load import Load
from scaler.simulate.ours import Ours
from scaler.simulate.run import Run, simulate
from scaler.simulate.scorecard import recovery, scorecard
from scaler.simulate.world import World

ROOT = Path(__file__).parents[2]
SLOTS = 8
TARGET = 0.7 * SLOTS
MOST_REPLICAS = 100_000
SETTLE_S = 60  # nobody is judged, or misled for minutes, by the plant's empty beginning
OURS = tuple(style.value for style in Style)
POLICIES = (*OURS, *RIVALS)
STARTS_S = (5, 60, 180)
SEED, OTHER_SEED = 1, 911
JITTER_RATIO = 0.3
_PLANT = (
    "scaler/simulate",
    "scaler/seen.py",
    "bench/scaler/workloads.py",
    "bench/scaler/traces",
    "bench/scaler/cells.py",
)
_OURS = ("scaler/horizontal", "scaler/policy.py", "scaler/decision.py")
_RIVALS = ("bench/scaler/rivals",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is run once.

    Attributes:
        trace: Name in WORKLOADS.
        policy: Name in POLICIES.
        start_s: From order to Ready.
        seed: Of the load and of the jitter.
        jitter_ratio: Of the start time.
    """

    trace: str
    policy: str
    start_s: int
    seed: int = SEED
    jitter_ratio: float = 0.0

    @property
    def key(self) -> str:
        """Return its name in the results."""
        return f"{self.trace}/{self.policy}/{self.start_s}/{self.seed}/{self.jitter_ratio:g}"


def plan(traces: Iterable[str], policies: Iterable[str], starts_s: Iterable[int], seeds: Iterable[int]) -> list[Cell]:
    """Return every combination, the short loads first."""
    names = list(policies)
    cells = [
        Cell(trace=trace, policy=policy, start_s=start_s, seed=seed)
        for trace in traces
        for start_s in starts_s
        for seed in seeds
        for policy in names
    ]
    return sorted(cells, key=lambda cell: WORKLOADS[cell.trace].is_long)


def checks(policies: Iterable[str]) -> list[Cell]:
    """Return the cells on which nothing was tuned: another seed, other days, start times that vary."""
    names = list(policies)
    seeds = (("step", 60), ("code", 60), ("nasa", 180))
    jitters = (("step", 60), ("code", 60), ("conv", 180), ("nasa", 180), ("servegen-mid", 60))
    days = tuple((trace, start_s) for trace, work in WORKLOADS.items() if work.is_check for start_s in (60, 180))
    return [
        *(Cell(trace=t, policy=policy, start_s=d, seed=OTHER_SEED) for t, d in seeds for policy in names),
        *(Cell(trace=t, policy=policy, start_s=d) for t, d in days for policy in names),
        *(Cell(trace=t, policy=p, start_s=d, jitter_ratio=JITTER_RATIO) for t, d in jitters for p in names),
    ]


def autoscaler(policy: str, start_s: float) -> Autoscaler:
    """Return a fresh autoscaler, ours with its start time known and no learnt curve."""
    if policy in RIVALS:
        return RIVALS[policy](TARGET, SLOTS, start_s, MOST_REPLICAS)
    said = Policy(
        min_replicas=1,
        max_replicas=MOST_REPLICAS,
        target=TargetBounds(initial=TARGET, limit=SLOTS, is_learnt=False),
        behavior=Behavior(style=Style(policy), start_time_s=start_s),
    )
    return Ours(said, Sizing(target=TARGET, slots=SLOTS), start_s)


def run(cell: Cell) -> dict[str, Any]:
    """Run a cell and return its scorecard with the time it took."""
    requests = load(cell.trace, cell.seed)
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    done = simulate(requests, autoscaler(cell.policy, cell.start_s), world(cell, requests))
    took_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    return {
        **asdict(cell),
        **asdict(scorecard(done, TARGET)),
        "took_s": round(took_s, 3),
        "times_real_time": round(requests.duration_s / cpu_s),  # a rival in a process of its own is not in it
        "sources": sources(cell.policy),
        **_after_jump(cell, done),
    }


def world(cell: Cell, requests: Load) -> World:
    """Return the plant of a cell; the fleet it begins with is what the uncounted five minutes ask for."""
    before = requests.service_s[requests.arrival_s < LEAD_IN_S].sum() / LEAD_IN_S
    return World(
        slots=SLOTS,
        start_s=cell.start_s,
        start_jitter_ratio=cell.jitter_ratio,
        initial_replicas=max(1, math.ceil(before / TARGET)),
        max_replicas=MOST_REPLICAS,
        warmup_s=LEAD_IN_S,
        settle_s=SETTLE_S,
        seed=cell.seed,
    )


@lru_cache(maxsize=16)
def sources(policy: str) -> str:
    """Return a digest of every file that decides a cell's figures; another one makes the cell stale."""
    digest = hashlib.sha256()
    for place in (*_PLANT, *(_RIVALS if policy in RIVALS else _OURS)):
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".gz", ".go", ".mod"):
                digest.update(file.read_bytes())
    if policy == "Knative":
        digest.update(str(kpa_program.cached().exists()).encode())
    return digest.hexdigest()[:12]


def _after_jump(cell: Cell, done: Run) -> dict[str, float | None]:
    jump_s = WORKLOADS[cell.trace].jump_s
    if jump_s is None:
        return {}
    answer = recovery(done, jump_s)
    return {"served_s": answer.served_s, "in_time_s": answer.in_time_s}
