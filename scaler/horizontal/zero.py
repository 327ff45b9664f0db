"""To zero and back."""

from __future__ import annotations

from scaler.decision import Reason
from scaler.horizontal.evidence import Evidence
from scaler.horizontal.state import HorizontalState
from scaler.policy import Policy


def idle_before_zero_s(policy: Policy, start_time_s: float) -> float:
    """Return how long nobody must have asked: max(what the person said, look-back, D).

    Never shorter than a start: what was started for nobody would be started again for the next request.
    """
    return max(policy.behavior.to_zero_after_s, policy.behavior.look_back_up_s, start_time_s)


def refusal(
    evidence: Evidence, policy: Policy, state: HorizontalState, busy_s: float, now_s: float
) -> tuple[Reason, str] | None:
    """Return why the last replica stays; None = nothing holds it.

    Never before the first Ready (kserve/kserve#1247), with a request in flight, or on missing data; idle counts from
    the last second that was not known to be without a request, or from the first Ready if that was later.

    Args:
        evidence: What is known.
        policy: What was said.
        state: What is remembered.
        busy_s: Last second that was not known to be idle.
        now_s: Now.
    """
    if policy.min_replicas > 0:
        return Reason.MINIMUM, f"the minimum is {policy.min_replicas}"
    if evidence.is_partial or evidence.in_flight is None:
        return Reason.PARTIAL_DATA, "a signal is unknown: idle is not proven"
    if evidence.in_flight > 0 or (evidence.held or 0.0) > 0:
        return Reason.REQUEST_IN_FLIGHT, "a request is in flight"
    if state.first_ready_s is None:
        return Reason.BEFORE_FIRST_READY, "no replica was Ready yet"
    idle_s, wanted_s = now_s - max(busy_s, state.first_ready_s), idle_before_zero_s(policy, evidence.start_time_s)
    if idle_s < wanted_s:
        return Reason.HOLD_WINDOW, f"idle for {idle_s:.0f} of {wanted_s:.0f} s"
    return None
