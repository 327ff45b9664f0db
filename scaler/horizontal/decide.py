"""One decision of the horizontal axis: evidence in, replicas with the reason out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scaler.decision import Decision, Need, Reason, Sizing
from scaler.horizontal import shrink, zero
from scaler.horizontal.bounds import fewest_after_shrink, most_after_growth, whole, within
from scaler.horizontal.evidence import Evidence, read
from scaler.horizontal.floor import Floor
from scaler.horizontal.grow import Want, waking, wants
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.survivors import Survivors
from scaler.horizontal.track import Track
from scaler.policy import Policy
from scaler.seen import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Replicas before the bounds; `drain` of them only for a backlog."""

    replicas: int
    reason: Reason
    text: str
    drain: int = 0


def decide(
    track: Track,
    fleet: Fleet,
    sizing: Sizing,
    policy: Policy,
    state: HorizontalState,
    now_s: float,
    *,
    start_time_s: float,
    floor: Floor | None = None,
    survivors: Survivors | None = None,
) -> tuple[Decision, HorizontalState]:
    """Return how many replicas are wanted, and what to remember.

    Growing is asked for by demand, shadow fleets, backlog, further signals and the forecast: the largest counts.
    Nothing shrinks while anybody is late, on missing data, in the hold windows, or below what would have been needed.
    The bounds hold on every path.

    Args:
        track: What was seen, one sample a second; only read.
        fleet: What there is now.
        sizing: What one replica may hold.
        policy: Valid.
        state: From the decision before; `HorizontalState.found` at a (re)start.
        now_s: Now.
        start_time_s: D, from order to Ready.
        floor: What the forecast says; only heard where the policy lets it act.
        survivors: What the learnt curve allows.

    Returns:
        The decision, and the state for the next one.
    """
    evidence = read(track, fleet, sizing, policy, now_s, start_time_s, floor)
    state = _noticed(evidence, fleet, policy, state, now_s, track.resumed_s)
    verdict = _judge(evidence, fleet, policy, state, now_s, track.busy_s, survivors)
    desired = within(policy, verdict.replicas)
    reason, text = verdict.reason, verdict.text
    if desired > verdict.replicas:
        reason, text = Reason.MINIMUM, f"{text}; the minimum is {policy.min_replicas}"
    elif desired < verdict.replicas:
        reason, text = Reason.MAXIMUM, f"{text}; the maximum is {policy.max_replicas}"
    decision = Decision(
        at_s=now_s,
        current=fleet.replicas,
        desired=desired,
        reason=reason,
        numbers=_numbers(evidence, state, now_s),
        text=f"{_headline(fleet.replicas, desired)}: {text}",
        needs=_needs(evidence, policy, desired, now_s, floor),
    )
    gave_back_s = now_s if verdict.reason is Reason.BACKLOG_GONE else state.gave_back_s
    state = replace(state.moved(fleet.replicas, desired, now_s), drain_replicas=verdict.drain, gave_back_s=gave_back_s)
    return decision, state


def _noticed(
    evidence: Evidence, fleet: Fleet, policy: Policy, state: HorizontalState, now_s: float, resumed_s: float
) -> HorizontalState:
    """Return the state with what this moment teaches."""
    if evidence.is_partial:
        state = replace(state, blind_s=now_s, is_fresh=False)
    elif resumed_s > state.blind_s:
        state = replace(state, blind_s=resumed_s)
    if evidence.need is not None:
        state = state.with_peak(evidence.need * evidence.target, now_s, shrink.window_s(evidence, policy))
    if fleet.replicas == 0:
        return replace(state, first_ready_s=None)
    if fleet.ready and state.first_ready_s is None:
        return replace(state, first_ready_s=now_s)
    return state


def _judge(
    evidence: Evidence,
    fleet: Fleet,
    policy: Policy,
    state: HorizontalState,
    now_s: float,
    busy_s: float,
    survivors: Survivors | None,
) -> _Verdict:
    current = fleet.replicas
    asked = wants(evidence, fleet, policy, now_s)
    if current == 0:
        wake = waking(evidence)
        if wake is None:
            return _Verdict(replicas=0, reason=Reason.IDLE, text="no request waits")
        return _grown((wake, *asked), policy, current, state)
    if asked:
        return _grown(asked, policy, current, state)
    if evidence.need is None:
        return _Verdict(
            replicas=current, reason=Reason.NO_DATA, text="nothing is known of the load", drain=state.drain_replicas
        )
    if current > policy.max_replicas:
        return _Verdict(replicas=current, reason=Reason.FITS, text="demand asks for no more")
    if zero.refusal(evidence, policy, state, busy_s, now_s) is None and now_s - state.blind_s > 0:
        idle_s = now_s - busy_s
        return _Verdict(replicas=0, reason=Reason.IDLE, text=f"no request for {idle_s:.0f} s")
    return _shrunk(evidence, policy, state, current, now_s, busy_s, survivors)


def _grown(asked: tuple[Want, ...], policy: Policy, current: int, state: HorizontalState) -> _Verdict:
    best = max(asked, key=lambda want: want.replicas)
    lasting = max((want.replicas for want in asked if want.reason is not Reason.BACKLOG), default=0)
    cap = most_after_growth(policy.behavior, current)
    replicas = min(best.replicas, cap)
    text = best.text if replicas == best.replicas else f"{best.text}, of which one step allows {cap}"
    drain = 0
    if best.reason is Reason.BACKLOG:
        drain = max(0, replicas - max(lasting, current)) + state.drain_replicas
    elif state.drain_replicas:
        drain = max(0, state.drain_replicas - (replicas - current))
    return _Verdict(replicas=replicas, reason=best.reason, text=text, drain=drain)


def _shrunk(
    evidence: Evidence,
    policy: Policy,
    state: HorizontalState,
    current: int,
    now_s: float,
    busy_s: float,
    survivors: Survivors | None,
) -> _Verdict:
    held = state.drain_replicas
    lowest = shrink.fewest(evidence, policy, state, survivors)
    if lowest.replicas >= current:
        need = whole(evidence.need or 0.0)
        if current == 1 and need == 0:
            why = zero.refusal(evidence, policy, state, busy_s, now_s)
            if why is not None:
                return _Verdict(replicas=current, reason=why[0], text=why[1], drain=held)
        reason = Reason.FITS if need >= current else lowest.reason
        return _Verdict(replicas=current, reason=reason, text=lowest.text, drain=held)
    refused = shrink.refusal(evidence, policy, state, now_s)
    if refused is not None:
        return _Verdict(replicas=current, reason=refused[0], text=refused[1], drain=held)
    excess_ratio = (current - lowest.replicas) / current
    refused = shrink.reversal_refusal(evidence, policy, state, excess_ratio, now_s)
    if refused is not None and not state.may_give_back(now_s):
        return _Verdict(replicas=current, reason=refused[0], text=refused[1], drain=held)
    if state.may_give_back(now_s):
        replicas = max(lowest.replicas, current - held, fewest_after_shrink(policy.behavior, current))
        return _Verdict(replicas=replicas, reason=Reason.BACKLOG_GONE, text="nobody waits any more")
    replicas = max(
        shrink.step(current, lowest.replicas, policy.behavior.period_s), fewest_after_shrink(policy.behavior, current)
    )
    return _Verdict(
        replicas=replicas,
        reason=Reason.EXCESS,
        text=f"{lowest.replicas} would do: {lowest.text}",
        drain=max(0, held - (current - replicas)),
    )


def _needs(evidence: Evidence, policy: Policy, desired: int, now_s: float, floor: Floor | None) -> tuple[Need, ...]:
    """Return the present need, and what the forecast will ask for; an unknown rate foresees nothing.

    The present one holds with chance (k + 1) / (k + 2): after k bursts the next is a record with 1 / (k + 1), and the
    margin for it is in the count.
    """
    bursts = evidence.up.bursts if evidence.up is not None else 0
    present = Need(replicas=desired, by_s=now_s, confidence_ratio=(bursts + 1) / (bursts + 2))
    if floor is None or evidence.rate_rps is None or evidence.service_s is None:
        return (present,)
    raised = floor.raised(evidence.rate_rps + evidence.growth_rps)
    later = within(policy, max(desired, whole(raised * evidence.service_s / evidence.target)))
    if later == desired:
        return (present,)
    return (
        present,
        Need(replicas=later, by_s=now_s + floor.horizon_s, confidence_ratio=floor.confidence_ratio),
    )


def _headline(current: int, desired: int) -> str:
    return f"held {current}" if desired == current else f"{current} -> {desired}"


def _numbers(evidence: Evidence, state: HorizontalState, now_s: float) -> dict[str, float]:
    named = {
        "target": evidence.target,
        "slots": evidence.slots,
        "rate_rps": evidence.rate_rps,
        "growth_rps": evidence.growth_rps,
        "foreseen_rps": evidence.foreseen_rps,
        "service_s": evidence.service_s,
        "work": evidence.work,
        "need_replicas": evidence.need,
        "peak_replicas": state.peak() / evidence.target,
        "wait_s": evidence.wait_s,
        "held": evidence.held,
        "in_flight": evidence.in_flight,
        "shadow_up_replicas": None if evidence.up is None else evidence.up.slots / evidence.room,
        "shadow_down_replicas": None if evidence.down is None else evidence.down.slots / evidence.room,
        "bursts": None if evidence.up is None else float(evidence.up.bursts),
        "band_ratio": evidence.band_ratio,
        "start_time_s": evidence.start_time_s,
        "reversals": float(state.recent_reversals(now_s)),
    }
    return {name: value for name, value in named.items() if value is not None and math.isfinite(value)}
