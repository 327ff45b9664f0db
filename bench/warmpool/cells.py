"""One cell of the bench: a demand, a lead time and a seed; both goals, all rivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.warmpool.columns import Columns, columns, hit_at, idle_at
from bench.warmpool.demand import MADE_UP, TRACES, demand
from bench.warmpool.ours import MOST, run
from bench.warmpool.rivals import buffers, forecast_poisson, poisson, schedule

GOALS = (0.95, 0.99)
LEADS_S = (511.0, 150.0)
SEEDS = (1, 2, 3)
BUFFERS = (0.1, 0.2)


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Which one."""

    name: str
    lead_s: float
    seed: int

    @property
    def key(self) -> str:
        """Return it as text."""
        return f"{self.name}/{self.lead_s:g}/{self.seed}"


def plan() -> list[Cell]:
    """Return all: three seeds at 511 s, one more lead time on the traces with one."""
    first = [Cell(name, LEADS_S[0], seed) for name in (*TRACES, *MADE_UP) for seed in SEEDS]
    return first + [Cell(name, LEADS_S[1], SEEDS[0]) for name in TRACES]


def measure(cell: Cell) -> dict[str, Any]:
    """Run it."""
    work = demand(cell.name, cell.seed)
    outcomes, forecasts, window_min = run(work, cell.lead_s, cell.seed, GOALS)
    fixed = columns(work, np.arange(MOST + 1, dtype=np.float64), cell.lead_s, cell.seed)
    guessed = columns(work, forecast_poisson(forecasts, window_min), cell.lead_s, cell.seed)
    simple = columns(work, poisson(work, cell.lead_s, GOALS), cell.lead_s, cell.seed)
    spare = None if work.in_use is None else columns(work, buffers(work, BUFFERS), cell.lead_s, cell.seed)
    weekly = None if work.in_use is None else schedule(fixed, work.minutes)
    planned = None if weekly is None else columns(work, weekly, cell.lead_s, cell.seed)
    found: dict[str, Any] = {"name": cell.name, "lead_s": cell.lead_s, "seed": cell.seed, "goals": {}}
    for place, outcome in enumerate(outcomes):
        found["goals"][f"{outcome.goal_ratio:g}"] = {
            "draws": outcome.draws,
            "hit_ratio": round(outcome.hit_ratio, 5),
            "idle_h": round(outcome.idle_h, 1),
            "ordered_h": round(outcome.ordered_h, 1),
            "wait_p50_s": outcome.wait_p50_s,
            "wait_p99_s": outcome.wait_p99_s,
            "shadows_ratio": round(outcome.shadows_ratio, 3),
            "is_enough": outcome.is_enough,
            "over_static": _over(outcome.idle_h, fixed, outcome.hit_ratio),
            "over_forecast_poisson": _over(outcome.idle_h, guessed, outcome.hit_ratio),
            "over_schedule": None if planned is None else _over(outcome.idle_h, planned, outcome.hit_ratio),
            "static_hit_at_equal_idle": round(hit_at(fixed, outcome.idle_h), 5),
            "static_idle_h_at_goal": _rounded(idle_at(fixed, outcome.goal_ratio)),
            "poisson_hit_ratio": round(float(simple.hit_ratio[place]), 5),
            "poisson_idle_h": round(float(simple.idle_h[place]), 1),
        }
    if spare is not None:
        found["buffers"] = {
            f"{ratio:g}": [round(float(hit), 5), round(float(idle_h), 1)]
            for ratio, hit, idle_h in zip(BUFFERS, spare.hit_ratio, spare.idle_h, strict=True)
        }
    found["static"] = [
        [round(float(hit), 5), round(float(idle_h), 1)]
        for hit, idle_h in zip(fixed.hit_ratio, fixed.idle_h, strict=True)
        if hit > 0.5
    ]
    return found


def _over(idle_h: float, rival: Columns, hit_ratio: float) -> float | None:
    theirs = idle_at(rival, hit_ratio)
    return None if theirs is None or theirs <= 0 else round(idle_h / theirs, 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
