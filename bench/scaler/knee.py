"""How near the learnt concurrency comes to the true knee, how fast, and whether it stays, beside other limiters.

    python -m bench.scaler.knee             # five profiles, 10 seeds, from 1/8 and from 4 times the knee; failure modes
    python -m bench.scaler.knee --seeds 5

Writes bench/results/scaler_knee.json. The load follows the limit as the horizontal axis would have it: what keeps 0.7
of the validated part in progress on each replica, less while requests are late. Ours learns from 4 replicas, each
limiter sits before one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.scaler import limiters
from bench.scaler.knee_modes import FROM_CYCLE, MODES, Disturb
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
MODE_CYCLES = 70
STARTS = (1 / 8, 4.0)
UNREACHABLE = "steady bad latency"
MOST_SETTLING_CYCLES = 10
WITHIN = 0.10
HIGHEST = 300.0
SEED = 7


@dataclass(kw_only=True)
class Lane:
    """One fleet with a learner of its own.

    Attributes:
        profile: Of its replicas.
        start_ratio: First L / knee.
        latency_limit_s: Promise.
        disturb: A failure mode.
        policy: Of the endpoint.
        learner: State.
        relief_ratio: Share of the load that stays, because replicas were added while requests were late.
        limits: L / knee after each cycle.
        reasons: Of each cycle.
    """

    profile: Profile
    start_ratio: float
    latency_limit_s: float | None = None
    disturb: Disturb | None = None
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
    """Return limit / knee of one limiter before single replicas, each second; shape (seconds, lanes)."""
    plant = Plant([profile for profile, _ in chosen], 1, seed)
    each = [limiters.make(name, max(ratio * profile.knee, 1.0), plant.rng) for profile, ratio in chosen]
    knees = np.array([profile.knee for profile, _ in chosen])
    fewest = 1 if name == "Envoy" else limiters.FEWEST_SAMPLES
    window = np.zeros((4, len(chosen)))  # most in progress, sum of round trips, samples, failures
    limits = []
    for _ in range(cycles * CYCLE_S):
        now = np.array([limiter.limit for limiter in each])
        plant.limit[:, 0], plant.level[:] = now, TARGET_SHARE * now
        seen = plant.run(1)
        ended = seen.completions[0, :, 0]
        window[0] = np.maximum(window[0], seen.in_flight[0, :, 0])
        window[1:] += ended * np.nan_to_num(seen.latency_s[0, :, 0]), ended, seen.errors[0, :, 0]
        for index in np.flatnonzero(window[2] >= fewest):
            in_flight, sum_s, samples, failures = window[:, index]
            each[index].update(in_flight, sum_s / samples, samples, failures)
            window[:, index] = 0.0
        limits.append(now / knees)
    return np.stack(limits)


def settled_after(limits: Sequence[float], low: float = 1 - WITHIN, high: float = 1 + WITHIN) -> int | None:
    """Return the cycles until L stays within the band to the end, or None."""
    inside = [low - 1e-9 <= limit <= high + 1e-9 for limit in limits]
    if not inside[-1]:
        return None
    outside = [index for index, is_in in enumerate(inside) if not is_in]
    return outside[-1] + 2 if outside else 1


def knee_rows(runs: int) -> list[dict[str, Any]]:
    """Return a row per profile and start: cycles until settled, and where L and the limiters stayed."""
    starts = [(profile, start) for profile in profiles() for start in STARTS]
    chosen = [each for each in starts for _ in range(runs)]
    ours = [Lane(profile=profile, start_ratio=start) for profile, start in chosen]
    run(ours, SEED)
    others = {name: run_limiters(name, chosen, SEED)[-LAST_CYCLES * CYCLE_S :] for name in limiters.NAMES}
    rows = []
    for index, (profile, start) in enumerate(starts):
        these = slice(index * runs, (index + 1) * runs)
        lanes = ours[these]
        settled = [settled_after(lane.limits) for lane in lanes]
        rows.append(
            {
                "profile": profile.name,
                "knee": round(profile.knee, 2),
                "start_ratio": start,
                "settled_after_cycles": settled,
                "settled_in_time": sum(cycles is not None and cycles <= MOST_SETTLING_CYCLES for cycles in settled),
                "ours": _range([lane.limits[-LAST_CYCLES:] for lane in lanes]),
                **{name: _range([others[name][:, these].ravel()]) for name in limiters.NAMES},
            }
        )
    return rows


def mode_rows(runs: int) -> list[dict[str, Any]]:
    """Return a row per failure mode and profile: where L was from the twelfth cycle on, and where it ended."""
    chosen = [(name, profile) for name in (*MODES, UNREACHABLE) for profile in profiles()[:3]]
    lanes = [[_disturbed(name, profile) for _ in range(runs)] for name, profile in chosen]
    run([lane for group in lanes for lane in group], SEED, MODE_CYCLES)
    return [
        {
            "mode": name,
            "profile": profile.name,
            "from_cycle_12": _range([lane.limits[FROM_CYCLE:] for lane in group]),
            "last_10_cycles": _range([lane.limits[-10:] for lane in group]),
        }
        for (name, profile), group in zip(chosen, lanes, strict=True)
    ]


def _disturbed(name: str, profile: Profile) -> Lane:
    if name != UNREACHABLE:
        return Lane(profile=profile, start_ratio=1.0, disturb=MODES[name])
    return Lane(profile=profile, start_ratio=0.22, latency_limit_s=0.5 * float(profile.latency_s[1]))


def _range(values: Sequence[Sequence[float] | np.ndarray]) -> dict[str, float]:
    all_ = np.concatenate([np.asarray(each) for each in values])
    return {
        "low": round(float(all_.min()), 2),
        "mean": round(float(all_.mean()), 2),
        "high": round(float(all_.max()), 2),
    }


def cost_ms(seed: int = SEED) -> float:
    """Return CPU milliseconds per cycle of `learn` with 4 replicas and a full memory."""
    lane = Lane(profile=profiles()[0], start_ratio=1.0)
    run([lane], seed, 12)
    plant = Plant([lane.profile], REPLICAS, seed)
    _apply(plant, 0, lane.learner.limit, lane.learner.limit, lane.learner.limit, is_canary=False)
    cycle = cycle_of(plant, plant.run(CYCLE_S), 0)
    start = process_time()
    for turn in range(200):
        learn(cycle, lane.learner, lane.policy, float(turn))
    return (process_time() - start) / 200 * 1e3


def show(rows: Sequence[Mapping[str, Any]], modes: Sequence[Mapping[str, Any]], runs: int) -> None:
    """Print both tables."""
    console = Console(width=160)
    table = Table(title=f"L / knee, {runs} runs, range over the last {LAST_CYCLES} of {CYCLES} cycles")
    for name in ("profile (knee)", "from", "within 10 %, cycles", "in time", "ours", *limiters.NAMES):
        table.add_column(name)
    for row in rows:
        cycles = [each for each in row["settled_after_cycles"] if each is not None]
        table.add_row(
            f"{row['profile']} ({row['knee']:.1f})",
            f"{row['start_ratio']:g} x",
            f"{min(cycles)}-{max(cycles)}" if cycles else "never",
            f"{row['settled_in_time']}/{runs}",
            *(_spoken(row[name]) for name in ("ours", *limiters.NAMES)),
        )
    console.print(table)
    table = Table(title=f"L / knee in failure modes, from cycle {FROM_CYCLE} to {MODE_CYCLES}")
    for name in ("mode", "profile", "range", "last 10 cycles"):
        table.add_column(name)
    for row in modes:
        table.add_row(row["mode"], row["profile"], _spoken(row["from_cycle_12"]), _spoken(row["last_10_cycles"]))
    console.print(table)


def _spoken(range_: Mapping[str, float]) -> str:
    return f"{range_['low']:.2f}-{range_['high']:.2f}"


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="independent runs of every cell")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows, modes = knee_rows(given.seeds), mode_rows(given.seeds)
    cost = cost_ms()
    show(rows, modes, given.seeds)
    print(f"learn: {cost:.2f} ms of CPU per cycle with {REPLICAS} replicas")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    report = {
        "command": f"python -m bench.scaler.knee --seeds {given.seeds}",
        "commit": commit.stdout.strip(),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__},
        "learn_ms": round(cost, 3),
        "knee": rows,
        "modes": modes,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
