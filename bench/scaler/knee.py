"""How near the learnt concurrency comes to the true knee, how fast, and whether it stays, beside other limiters.

    python -m bench.scaler.knee                    # five profiles, 10 seeds, from 1/8 and from 4 times the knee
    python -m bench.scaler.knee --seeds 5 --modes  # with the failure modes

Writes bench/results/scaler_knee.json. The load follows the limit as the horizontal axis would have it: what keeps 0.7 of
the validated part in progress on each replica. Ours learns from 4 replicas, each limiter sits before one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.scaler import limiters
from bench.scaler.knee_plant import CYCLE_S, Plant, cycle_of, is_late
from bench.scaler.profiles import Profile, profiles
from scaler.policy import Policy, Promise, TargetBounds
from scaler.vertical.canary import canary_weight
from scaler.vertical.learn import learn
from scaler.vertical.learner import TARGET_SHARE, Learner

RESULTS = Path(__file__).parents[1] / "results" / "scaler_knee.json"
REPLICAS = 4
CYCLES = 40
LAST_CYCLES = 20
WITHIN = 0.10
HIGHEST = 300.0


@dataclass(kw_only=True)
class Lane:
    """One fleet with a learner of its own.

    Attributes:
        profile: Of its replicas.
        start_ratio: First L / knee.
        latency_limit_s: Promise.
        disturb: Called before each cycle with (plant, lane index, cycle, learner): a failure mode, may return a learner.
        learner: State.
        limits: L / knee after each cycle.
        reasons: Of each cycle.
    """

    profile: Profile
    start_ratio: float
    latency_limit_s: float | None = None
    disturb: Callable[[Plant, int, int, Learner, Policy], Learner] | None = None
    limits: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    policy: Policy = field(init=False)
    learner: Learner = field(init=False)
    relief_ratio: float = 1.0

    def __post_init__(self) -> None:
        start = max(self.start_ratio * self.profile.knee, 1.0)
        self.policy = Policy(
            min_replicas=1,
            max_replicas=1000,
            target=TargetBounds(initial=TARGET_SHARE * start, minimum=0.5, maximum=HIGHEST),
            promise=Promise(latency_s=self.latency_limit_s),
        )
        self.learner = Learner.fresh(self.policy)


def run(lanes: Sequence[Lane], seed: int, cycles: int = CYCLES) -> None:
    """Run every lane for some cycles; what they learnt is left in them."""
    plant = Plant([lane.profile for lane in lanes], REPLICAS, seed)
    for index, lane in enumerate(lanes):
        _apply(plant, index, lane.learner.limit, lane.learner.limit, TARGET_SHARE * lane.learner.limit, is_canary=False)
    for cycle in range(cycles):
        for index, lane in enumerate(lanes):
            if lane.disturb is not None:
                lane.learner = lane.disturb(plant, index, cycle, lane.learner, lane.policy)
        seen = plant.run(CYCLE_S)
        for index, lane in enumerate(lanes):
            lesson, lane.learner = learn(
                cycle_of(plant, seen, index), lane.learner, lane.policy, float(cycle * CYCLE_S)
            )
            lane.limits.append(lesson.learnt / lane.profile.knee)
            lane.reasons.append(lesson.reason)
            cycle_late = is_late(seen, index)
            lane.relief_ratio = max(lane.relief_ratio * 0.85, 0.5) if cycle_late else min(lane.relief_ratio * 1.03, 1.0)
            slots = lesson.sizing.slots or HIGHEST
            plant.relief[index] = lane.relief_ratio
            _apply(plant, index, slots, lesson.learnt, lesson.sizing.target, is_canary=lesson.canary is not None)


def _apply(plant: Plant, index: int, slots: float, limit: float, level: float, *, is_canary: bool) -> None:
    plant.limit[index] = slots
    plant.level[index] = level
    plant.weight[index] = 1.0
    if is_canary:
        plant.weight[index, 0] = canary_weight(limit, level * REPLICAS, REPLICAS)


def run_limiters(name: str, chosen: Sequence[tuple[Profile, float]], seed: int, cycles: int = CYCLES) -> np.ndarray:
    """Return the limits / knee of one limiter in front of single replicas, after each second; shape (seconds, lanes)."""
    plant = Plant([profile for profile, _ in chosen], 1, seed)
    each = [limiters.make(name, max(ratio * profile.knee, 1.0), plant.rng) for profile, ratio in chosen]
    knees = np.array([profile.knee for profile, _ in chosen])
    limits = []
    for _ in range(cycles * CYCLE_S):
        now = np.array([limiter.limit for limiter in each])
        plant.limit[:, 0], plant.level[:] = now, TARGET_SHARE * now
        seen = plant.run(1)
        for index, limiter in enumerate(each):
            ended = seen.completions[0, index, 0]
            rtt_s = seen.latency_s[0, index, 0]
            limiter.update(seen.in_flight[0, index, 0], rtt_s, ended, seen.errors[0, index, 0])
        limits.append(now / knees)
    return np.stack(limits)


def settled_after(limits: Sequence[float], low: float = 1 - WITHIN, high: float = 1 + WITHIN) -> int | None:
    """Return the cycles until L stays within the band to the end, or None. One whole slot off counts as within."""
    inside = [low - 1e-9 <= limit <= high + 1e-9 for limit in limits]
    if not inside[-1]:
        return None
    outside = [index for index, is_in in enumerate(inside) if not is_in]
    return outside[-1] + 2 if outside else 1
