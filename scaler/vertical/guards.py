"""What comes before the curve: failing requests and full memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaler.decision import TargetReason
from scaler.policy import Policy
from scaler.vertical import errors as errors_of
from scaler.vertical.bins import Failures
from scaler.vertical.ceiling import UNDER_BAD_RATIO
from scaler.vertical.errors import Errors
from scaler.vertical.learner import Learner
from scaler.vertical.moves import CUT_RATIO, HOLD_CYCLES, cut
from scaler.vertical.rows import Rows
from scaler.vertical.thresholds import MEMORY_FULL_RATIO, MEMORY_RATIO

_FEWEST_FULL_READINGS = 2  # one reading may be a glitch
MOST_FULL_CUTS = 5  # 0.7^5: a start at 4 times too much is down before
_BESIDE_RATIO = 0.95  # a bin's mean moves with what falls into it
_KEPT_EVIDENCE = 3.0  # faded errors above the failing concurrency, below which it is forgotten


def watch_errors(rows: Rows, seen: Failures, state: Learner, policy: Policy) -> tuple[Learner, TargetReason] | None:
    """Return the state after judging failures, or None where they have no say in this cycle.

    Args:
        rows: This cycle.
        seen: Failures by concurrency, this cycle included.
        state: With the trial, if one is going on.
        policy: For the share of requests that may fail; half of it raises the question.
    """
    acceptable = policy.promise.error_ratio
    memory = state.errors
    ratio = float(rows.errors.sum() / rows.completions.sum())
    if ratio > acceptable / 2 or memory.trial is not None:
        bad_k = errors_of.split(seen, errors_of.dispersion(rows), acceptable)
        if bad_k is not None:
            known = replace(state, errors=Errors(bad_k=bad_k, in_vain=0), hold_cycles=HOLD_CYCLES)
            return cut(known, UNDER_BAD_RATIO * bad_k, policy), TargetReason.ERRORS_TIED_TO_LOAD
    if memory.trial is not None:
        return _judge(memory.trial, rows, state, policy)
    if ratio <= acceptable / 2:
        return None
    if memory.rest_cycles == 0 and not errors_of.one_is_sick(rows):
        trial = errors_of.begun(rows, seen, acceptable)
        if trial is not None:
            begun = replace(state, errors=replace(memory, trial=trial), asked=0, has_moved=True)
            return begun, TargetReason.ERRORS_TRIAL
    return None


def _judge(trial: errors_of.Trial, rows: Rows, state: Learner, policy: Policy) -> tuple[Learner, TargetReason]:
    trial = errors_of.continued(trial, rows)
    if trial.expected < errors_of.JUDGE_AFTER_ERRORS:
        return replace(state, errors=replace(state.errors, trial=trial)), TargetReason.ERRORS_TRIAL
    if trial.seen < errors_of.TRIAL_WORKED_RATIO * trial.expected:
        kept = replace(state, errors=replace(state.errors, trial=None, in_vain=0), hold_cycles=HOLD_CYCLES)
        return cut(kept, trial.limit, policy), TargetReason.ERRORS_TIED_TO_LOAD
    if trial.attempt >= errors_of.MOST_TRIALS or trial.limit / 2 < 1:
        return replace(state, errors=errors_of.rest(state.errors), has_moved=True), TargetReason.ERRORS_NOT_TIED
    harder = errors_of.Trial(limit=trial.limit / 2, before_ratio=trial.before_ratio, attempt=trial.attempt + 1)
    return replace(state, errors=replace(state.errors, trial=harder), has_moved=True), TargetReason.ERRORS_TRIAL


def aged_errors(memory: Errors, seen: Failures) -> Errors:
    """Return what is remembered of failures one cycle later: forgotten once its evidence has faded from the bins."""
    bad_k = memory.bad_k
    if bad_k is not None and float(seen.failed[seen.k >= _BESIDE_RATIO * bad_k].sum()) < _KEPT_EVIDENCE:
        bad_k = None
    return replace(memory, bad_k=bad_k, rest_cycles=max(memory.rest_cycles - 1, 0))


def watch_memory(rows: Rows, state: Learner, policy: Policy) -> tuple[Learner, TargetReason] | None:
    """Return the state after memory was seen full, or None where it was not.

    With a line: L to its 90 % at once. Without one (every reading full) L goes down 30 % a cycle, until memory answers;
    if it does not within five cycles, it does not follow the load: L is given back.
    """
    readings = rows.memory_ratio[np.isfinite(rows.memory_ratio)]
    full = int((readings >= MEMORY_FULL_RATIO).sum())
    if full < min(_FEWEST_FULL_READINGS, max(readings.size, 1)):
        return None
    k = state.memory.reaches(MEMORY_RATIO)
    if k is not None:
        known = replace(state, hold_cycles=HOLD_CYCLES, full_cuts=0)
        return (cut(known, k, policy), TargetReason.MEMORY) if k < state.limit else (known, TargetReason.MEMORY)
    if state.full_cuts > MOST_FULL_CUTS:
        return None
    if state.full_cuts == MOST_FULL_CUTS:
        given_back = replace(
            state, limit=max(state.full_from, state.limit), full_cuts=MOST_FULL_CUTS + 1, has_moved=True
        )
        return given_back, TargetReason.MEMORY
    begun = state.limit if state.full_cuts == 0 else state.full_from
    counted = replace(state, hold_cycles=HOLD_CYCLES, full_cuts=state.full_cuts + 1, full_from=begun)
    return cut(counted, CUT_RATIO * state.limit, policy), TargetReason.MEMORY
