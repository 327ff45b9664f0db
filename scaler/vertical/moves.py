"""How L may move: down at once and by up to 30 %, up only with proof and slowly once the model is known.

Wrong raises hurt requests, wrong cuts cost money (measured: bench/scaler). A raise never passes K; being at a bound is
no reason to move (Netflix/concurrency-limits#155).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scaler.decision import TargetReason
from scaler.policy import Policy
from scaler.vertical.ceiling import Ceiling
from scaler.vertical.learner import ONBOARDING_CYCLES, Learner, bounded, bounds

RAISE_FROM_RATIO = 1.05  # K / L
CUT_FROM_RATIO = 0.95
CUT_RATIO = 0.7  # least L after a cut by the curve / L
ONBOARDING_RATIO = 2.0  # most L after a raise in the first cycles / L, and / what a replica held
RAISE_RATIO = 1.10  # later, where the knee has not been seen yet
PROVEN_RAISE_RATIO = 1.25  # later, where it has: bursts went as far already
SMALL_RAISE_RATIO = 1.15  # nearer than this K may be noise, or the next whole slot: it is asked for twice
FEWEST_CYCLES = 5  # of data, after a restart or another workload: L came from better knowledge than the first curves
EXERCISED_RATIO = 0.75  # of L, held by some replica, proves that L is more than a number
ROLLOUT_S = 60.0
HOLD_CYCLES = 10  # without a raise after errors or full memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for or against a raise.

    Attributes:
        held_k: Highest concurrency that a replica held.
        p95_s: 95th percentile where replicas were busy; None = not measured.
        error_ratio: Share of requests that failed.
        starting: Replicas ordered and not Ready.
        is_late: Whether requests waited too long for a slot.
        since_rollout_s: Since the last rollout.
        resource_k: Concurrency at which the first further resource is used up; None = none is known to be.
    """

    held_k: float
    p95_s: float | None
    error_ratio: float
    starting: int
    is_late: bool
    since_rollout_s: float
    resource_k: float | None


def cut(state: Learner, to: float, policy: Policy) -> Learner:
    """Return the state with L lowered to a value within the bounds, and nothing validated above it."""
    limit = min(bounded(to, policy), state.limit)
    return replace(state, limit=limit, validated=min(state.validated, limit), asked=0, has_moved=True, quiet_cycles=0)


def barrier(evidence: Evidence, policy: Policy) -> TargetReason | None:
    """Return what forbids every raise now, of L and of the validated part alike, or None."""
    limit_s = policy.promise.latency_s
    if evidence.error_ratio > policy.promise.error_ratio:
        return TargetReason.ERRORS_NOT_TIED
    if evidence.starting > 0:
        return TargetReason.HELD_STARTING
    if evidence.is_late:
        return TargetReason.HELD_LATE
    if evidence.since_rollout_s < ROLLOUT_S:
        return TargetReason.HELD_ROLLOUT
    if limit_s is not None and evidence.p95_s is not None and evidence.p95_s > limit_s:
        return TargetReason.LATENCY
    return None


def move(state: Learner, ceiling: Ceiling, evidence: Evidence, policy: Policy) -> tuple[Learner, TargetReason]:
    """Return the state after comparing L with K, and why it is so."""
    limit, found = state.limit, ceiling.knee
    if ceiling.binds is TargetReason.UNREACHABLE:
        if found is not None and _is_seen(state, found.throughput_k) and found.throughput_k < CUT_FROM_RATIO * limit:
            return _lowered(state, found.throughput_k, TargetReason.CUT, policy)
        return replace(state, asked=0), TargetReason.UNREACHABLE
    if ceiling.k is not None and ceiling.k < CUT_FROM_RATIO * limit:
        if ceiling.binds is not TargetReason.AT_KNEE:
            return _lowered(state, ceiling.k, ceiling.binds, policy)
        if state.curve is not None and ceiling.k <= state.curve.highest_k:
            return _lowered(state, ceiling.k, TargetReason.CUT, policy)
        return replace(state, asked=0), TargetReason.NOT_EXERCISED
    if limit >= bounds(policy)[1] * (1 - 1e-9):
        return replace(state, asked=0), TargetReason.AT_BOUND
    if found is None or ceiling.k is None:
        return replace(state, asked=0), TargetReason.NOT_EXERCISED
    if ceiling.k <= RAISE_FROM_RATIO * limit:
        return replace(state, asked=0), ceiling.binds
    return _raised(state, ceiling.k, evidence, policy)


def _lowered(state: Learner, to: float, reason: TargetReason, policy: Policy) -> tuple[Learner, TargetReason]:
    lowered = cut(state, max(to, CUT_RATIO * state.limit), policy)
    return (lowered, reason) if lowered.limit < state.limit else (state, TargetReason.AT_BOUND)


def _is_seen(state: Learner, k: float) -> bool:
    return state.curve is not None and state.curve.is_saturated and k <= state.curve.highest_k


def _raised(state: Learner, to: float, evidence: Evidence, policy: Policy) -> tuple[Learner, TargetReason]:
    forbidden = _forbidden(state, evidence, policy)
    if forbidden is not None:
        return replace(state, asked=0), forbidden
    is_onboarding = state.cycles <= ONBOARDING_CYCLES
    is_proven = state.curve is not None and state.curve.is_saturated
    is_sure = (is_onboarding or is_proven) and to >= SMALL_RAISE_RATIO * state.limit
    is_new = not is_onboarding and state.bin_cycles < FEWEST_CYCLES
    if is_new or not (is_sure or state.asked > 0):
        return replace(state, asked=1), TargetReason.CONFIRMING
    ratio = ONBOARDING_RATIO if is_onboarding else PROVEN_RAISE_RATIO if is_proven else RAISE_RATIO
    most = min(ratio * state.limit, ONBOARDING_RATIO * evidence.held_k)
    if evidence.resource_k is not None:
        most = min(most, evidence.resource_k)
    limit = max(bounded(min(to, most), policy), state.limit)
    return replace(state, limit=limit, asked=0, has_moved=True, quiet_cycles=0), TargetReason.RAISED


def _forbidden(state: Learner, evidence: Evidence, policy: Policy) -> TargetReason | None:
    if state.hold_cycles > 0:
        return TargetReason.MEMORY if state.errors.bad_k is None else TargetReason.ERRORS_TIED_TO_LOAD
    found = barrier(evidence, policy)
    if found is not None:
        return found
    if evidence.held_k < EXERCISED_RATIO * state.limit:
        return TargetReason.NOT_EXERCISED
    if evidence.resource_k is not None and evidence.resource_k <= RAISE_FROM_RATIO * state.limit:
        return TargetReason.RESOURCE
    return None
