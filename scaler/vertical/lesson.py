"""The answer in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from scaler.decision import Lesson, Sizing, TargetReason
from scaler.policy import Policy
from scaler.vertical.ceiling import Ceiling, wall
from scaler.vertical.learner import TARGET_SHARE, Learner
from scaler.vertical.moves import Evidence
from scaler.vertical.rows import Rows
from scaler.vertical.thresholds import MEMORY_RATIO

SLOTS_RATIO = 1.25  # bursts explore up to here, never past a wall
_ENOUGH_BINS = 6  # with data, for a curve to be believed
_QUIET_CYCLES = 4  # without a move, for L to be believed

_WORDS: Mapping[TargetReason, str] = {
    TargetReason.IDLE: "too few requests to learn from",
    TargetReason.SHIFTED: "latency left the curve: the workload may have changed",
    TargetReason.ERRORS_TIED_TO_LOAD: "requests fail from {bad_k:.3g} in progress",
    TargetReason.ERRORS_TRIAL: "{error_ratio:.1%} fail: trying {trial_limit:.3g} slots",
    TargetReason.ERRORS_NOT_TIED: "{error_ratio:.1%} fail, not tied to load: no raise",
    TargetReason.MEMORY: "memory reaches 90 % at {memory_k:.3g}",
    TargetReason.RESOURCE: "a resource is used up at {resource_k:.3g}",
    TargetReason.UNREACHABLE: "no concurrency meets the latency limit of {limit_s:.3g} s",
    TargetReason.AT_KNEE: "at the knee of {knee_k:.3g}",
    TargetReason.RAISED: "raised towards {ceiling_k:.3g}",
    TargetReason.CUT: "more than {ceiling_k:.3g} in progress brings less than 5 % more",
    TargetReason.AT_BOUND: "at its bound",
    TargetReason.CONFIRMING: "{ceiling_k:.3g} is asked for once more before the raise",
    TargetReason.NOT_EXERCISED: "no replica held enough to prove more: {held_k:.3g}",
    TargetReason.HELD_STARTING: "no raise while {starting:.0f} replicas start",
    TargetReason.HELD_LATE: "no raise while requests are late",
    TargetReason.HELD_ROLLOUT: "no raise {since_rollout_s:.0f} s after a rollout",
    TargetReason.LATENCY: "no raise with p95 at {p95_s:.3g} s",
}


def fixed(policy: Policy, now_s: float) -> Lesson:
    """Return the lesson of a target that a person set."""
    target = policy.target
    return Lesson(
        at_s=now_s,
        learnt=target.initial,
        validated=target.initial,
        sizing=Sizing(target=target.initial, slots=target.limit),
        canary=None,
        confidence_ratio=0.0,
        reason=TargetReason.FIXED,
        numbers={"target": target.initial},
        text=f"target {target.initial:.4g} as set",
    )


def sizing(state: Learner, policy: Policy) -> Sizing:
    """Return the target 0.7 x validated within its bounds, and slots = min(1.25 L, walls, trial), at least 1."""
    target = min(max(TARGET_SHARE * state.validated, policy.target.minimum), policy.target.maximum)
    trial = state.errors.trial
    slots = float(math.ceil(SLOTS_RATIO * state.limit - 1e-9))
    for most in (wall(state.memory, state.errors)[0], policy.target.limit, None if trial is None else trial.limit):
        slots = slots if most is None else min(slots, math.floor(most + 1e-9))
    return Sizing(target=target, slots=max(slots, 1.0))


def lesson(state: Learner, reason: TargetReason, policy: Policy, now_s: float, seen: Mapping[str, float]) -> Lesson:
    """Return the lesson that a state amounts to.

    Args:
        state: After the cycle.
        reason: The rule that bound.
        policy: For bounds and promises.
        now_s: Stamp.
        seen: Numbers of the cycle; those that are not finite are left out.
    """
    numbers = {**seen, **_remembered(state, policy)}
    numbers = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
    size = sizing(state, policy)
    words = _WORDS[reason].format_map(_Spoken(numbers))
    return Lesson(
        at_s=now_s,
        learnt=state.limit,
        validated=state.validated,
        sizing=size,
        canary=state.canary,
        confidence_ratio=_confidence(state),
        reason=reason,
        numbers=numbers,
        text=f"L {state.limit:.4g}, target {size.target:.4g}, slots {size.slots or 0:.4g}: {words}",
    )


def seen_in(rows: Rows, evidence: Evidence | None = None, top: Ceiling | None = None) -> dict[str, float]:
    """Return the numbers of a cycle, NaN where something was not measured."""
    ended = float(rows.completions.sum())
    numbers = {
        "completions": ended,
        "dropped_rows": float(rows.dropped),
        "error_ratio": float(rows.errors.sum()) / ended if ended else math.nan,
        "latency_s": float(rows.latency_s @ rows.completions) / ended if ended else math.nan,
        "memory_ratio": float(np.max(rows.memory_ratio, initial=-1.0, where=np.isfinite(rows.memory_ratio))),
    }
    if numbers["memory_ratio"] < 0:
        del numbers["memory_ratio"]
    if evidence is not None:
        numbers["held_k"] = evidence.held_k
        numbers["p95_s"] = _or_nan(evidence.p95_s)
        numbers["starting"] = float(evidence.starting)
        numbers["since_rollout_s"] = evidence.since_rollout_s
        numbers["resource_k"] = _or_nan(evidence.resource_k)
    if top is not None:
        numbers["ceiling_k"] = _or_nan(top.k)
        numbers["knee_k"] = _or_nan(None if top.knee is None else top.knee.k)
    return numbers


def _remembered(state: Learner, policy: Policy) -> dict[str, float]:
    curve, trial = state.curve, state.errors.trial
    numbers = {
        "bad_k": _or_nan(state.errors.bad_k),
        "memory_k": _or_nan(state.memory.reaches(MEMORY_RATIO)),
        "trial_limit": _or_nan(None if trial is None else trial.limit),
        "limit_s": _or_nan(policy.promise.latency_s),
        "cycles": float(state.cycles),
    }
    if curve is not None:
        numbers |= {"curve_a_s": curve.a_s, "curve_b_s": curve.b_s, "curve_capacity_rps": curve.capacity_rps}
    return numbers


def _confidence(state: Learner) -> float:
    """Return min(1, bins / 6) x validated / L x (0.5 + 0.5 min(1, quiet cycles / 4)); 0 without a curve."""
    if state.curve is None:
        return 0.0
    bins = min(1.0, state.bins.points().k.size / _ENOUGH_BINS)
    quiet = 0.5 + 0.5 * min(1.0, state.quiet_cycles / _QUIET_CYCLES)
    return bins * quiet * state.validated / state.limit


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


class _Spoken(dict[str, float]):
    """Numbers for a sentence; one that is not known reads as nan instead of ending the answer."""

    def __missing__(self, name: str) -> float:
        return math.nan
