"""One cycle of the vertical axis: what came in, what is known now, and how many requests a replica may hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaler.decision import Lesson, TargetReason
from scaler.policy import Policy
from scaler.vertical import shift as shift_of
from scaler.vertical import thresholds
from scaler.vertical.canary import canary, held_by_busiest
from scaler.vertical.ceiling import ceiling, wall
from scaler.vertical.curve import fit
from scaler.vertical.guards import aged_errors, watch_errors, watch_memory
from scaler.vertical.learner import Learner
from scaler.vertical.lesson import fixed, lesson, seen_in
from scaler.vertical.moves import EXERCISED_RATIO, Evidence, barrier, move
from scaler.vertical.rows import Rows, usable_rows
from scaler.vertical.values import Cycle

FEWEST_COMPLETIONS = 20.0
FEWEST_SECONDS = 10
_LONGEST_SKIP_S = 10.0


def learn(cycle: Cycle, state: Learner, policy: Policy, now_s: float) -> tuple[Lesson, Learner]:
    """Return what one replica may hold, why, and the state for the next cycle.

    Errors and memory first, then a changed workload, then the knee of the fitted curve. Rows that cannot be used are
    dropped; with too few left nothing moves: idle is no evidence. The same input gives the same answer.

    Args:
        cycle: The last 30 s.
        state: After the cycle before.
        policy: As it stands now; L follows changed bounds at once.
        now_s: Stamp of the lesson.
    """
    if not policy.target.is_learnt:
        return fixed(policy, now_s), state
    state = replace(state.within(policy), canary=canary(cycle.names, cycle.replicas, state.canary))
    rows = usable_rows(cycle, skip_s=_skip_s(state))
    if rows.completions.sum() < FEWEST_COMPLETIONS or rows.seconds < FEWEST_SECONDS:
        state = replace(state, asked=0)
        return lesson(state, TargetReason.IDLE, policy, now_s, seen_in(rows)), state
    before = state.limit, state.errors.trial
    state, reason, seen = _turn(cycle, rows, state, policy)
    if (state.limit, state.errors.trial) == before:
        state = replace(state, has_moved=False)
    return lesson(state, reason, policy, now_s, seen), state


def _skip_s(state: Learner) -> float:
    """Return the seconds after a change of limit in which requests begun under the old one still end."""
    if not state.has_moved or state.curve is None:
        return 0.0
    latency_s = float(state.curve.latency_s(np.array([max(state.limit, 1.0)]))[0])
    return min(2 * latency_s, _LONGEST_SKIP_S)


def _turn(cycle: Cycle, rows: Rows, state: Learner, policy: Policy) -> tuple[Learner, TargetReason, dict[str, float]]:
    known = state.bins.points()
    ratio = shift_of.latency_to_curve_ratio(rows, state.curve, float(known.completions.sum()))
    is_off = ratio != 1.0
    shift = shift_of.after(state.shift, is_off=is_off)
    is_forgotten = is_off and shift.cycles == 0
    if is_forgotten:
        seen = state.bins.rescaled(ratio, shift_of.KEPT_REQUESTS).with_rows(rows)
    else:
        drift = shift_of.drift_ratio(rows, known) ** shift_of.DRIFT_SHARE
        seen = state.bins.faded().rescaled(drift).with_rows(rows)
    points, failures = seen.points(), seen.failures()
    state = replace(
        state,
        # What may be of another workload is not mixed in until it is known to be one.
        bins=state.bins if is_off and not is_forgotten else seen,
        curve=None if is_forgotten else state.curve,
        memory=state.memory.with_readings(rows.in_flight, rows.memory_ratio),
        resources=thresholds.with_readings(state.resources, rows),
        errors=aged_errors(state.errors, failures),
        shift=shift,
        cycles=state.cycles + 1,
        bin_cycles=1 if is_forgotten else state.bin_cycles + 1,
        hold_cycles=max(state.hold_cycles - 1, 0),
        quiet_cycles=state.quiet_cycles + 1,
    )
    cap = thresholds.cap(state.resources, points)
    evidence = Evidence(
        held_k=held_by_busiest(rows),
        p95_s=_busy_p95_s(rows, state.limit),
        error_ratio=float(rows.errors.sum() / rows.completions.sum()),
        starting=cycle.starting,
        is_late=cycle.is_late,
        since_rollout_s=cycle.since_rollout_s,
        resource_k=None if cap is None else cap.k,
    )
    guarded = watch_errors(rows, failures, state, policy) or watch_memory(rows, state, policy)
    if guarded is not None:
        return *guarded, seen_in(rows, evidence)
    if is_off or shift.hold_cycles > 0:
        return replace(state, asked=0), TargetReason.SHIFTED, seen_in(rows, evidence)
    curve = fit(points, state.limit, wall(state.memory, state.errors)[0])
    state = replace(state, curve=curve, full_cuts=_full_cuts(rows, state))
    top = ceiling(state.curve, points, state.memory, state.errors, policy)
    state, reason = move(state, top, evidence, policy)
    if barrier(evidence, policy) is None:
        state = replace(state, validated=min(max(state.validated, evidence.held_k), state.limit))
    return state, reason, seen_in(rows, evidence, top)


def _full_cuts(rows: Rows, state: Learner) -> int:
    """Return 0 once memory was measured and not full: the next full one begins anew."""
    readings = rows.memory_ratio[np.isfinite(rows.memory_ratio)]
    return 0 if readings.size and readings.max() < thresholds.MEMORY_FULL_RATIO else state.full_cuts


def _busy_p95_s(rows: Rows, limit: float) -> float | None:
    """Return the mean 95th percentile of the rows at or above 75 % of L, or of all where none was."""
    known = np.isfinite(rows.p95_s)
    busy = known & (rows.k >= EXERCISED_RATIO * limit)
    chosen = busy if busy.any() else known
    return float(np.average(rows.p95_s[chosen], weights=rows.completions[chosen])) if chosen.any() else None
