"""How few replicas would do, and what forbids to have fewer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scaler.decision import Reason
from scaler.horizontal.bounds import whole
from scaler.horizontal.evidence import Evidence
from scaler.horizontal.horizon import LONGEST_REVERSAL_S, hold_s, reversal_hold_s
from scaler.horizontal.record import margin_ratio, with_margin
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.survivors import Survivors
from scaler.policy import Policy, Style

_HALF_LIFE_S: Final = 120.0
_WORTH_A_REVERSAL: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """The count that may not be undercut.

    Attributes:
        replicas: At least 1.
        reason: What it is held for.
        text: Why, with the numbers.
    """

    replicas: int
    reason: Reason
    text: str


def window_s(evidence: Evidence, policy: Policy) -> float:
    """Return the window that must be full before anything shrinks; without rates only the look-back."""
    return hold_s(policy.behavior, evidence.start_time_s) if evidence.has_rates else policy.behavior.look_back_down_s


def fewest(evidence: Evidence, policy: Policy, state: HorizontalState, survivors: Survivors | None) -> Fewest:
    """Return the fewest replicas that would have done, with the rule that binds.

    max(ceil(P / (1 + b/2)), shadow(H, 0.5 %), shadow(300 s, 0.5 %)), P = largest need of the last H

    It is the N/(N-1) check twice: survivors carry the peak inside the band, and their shadow was not late. With a
    learnt curve also: P over the survivors stays where p95 keeps the promise and memory is under 90 %.
    """
    peak = state.peak()
    style, room = policy.behavior.style, evidence.room
    found = [
        Fewest(
            replicas=whole(peak / evidence.target / (1 + evidence.band_ratio / 2)),
            reason=Reason.HOLD_WINDOW,
            text=f"the largest need of the last {window_s(evidence, policy):.0f} s was {peak / evidence.target:.2f}",
        )
    ]
    found += [
        Fewest(
            replicas=with_margin(level, room, evidence.drift_ratio, style),
            reason=Reason.SHADOW,
            text=f"a fleet smaller than {level.slots / room:.1f} would have been late; "
            f"the margin is {margin_ratio(level, evidence.drift_ratio, style):.0%}",
        )
        for level in (evidence.down, evidence.down_recent)
        if level is not None
    ]
    if survivors is not None:
        found += [
            Fewest(
                replicas=whole(peak / limit),
                reason=reason,
                text=f"the peak of {peak:.1f} requests in progress allows {limit:.2f} a replica",
            )
            for limit, reason in (
                (survivors.latency_limit_target, Reason.SURVIVORS_LATENCY),
                (survivors.memory_limit_target, Reason.SURVIVORS_MEMORY),
            )
            if limit is not None and limit > 0
        ]
    best = max(found, key=lambda each: each.replicas)
    return Fewest(replicas=max(best.replicas, 1), reason=best.reason, text=best.text)


def refusal(evidence: Evidence, policy: Policy, state: HorizontalState, now_s: float) -> tuple[Reason, str] | None:
    """Return why nothing may shrink now, whatever is needed; None = it may."""
    if evidence.is_partial:
        return Reason.PARTIAL_DATA, "a signal is unknown: it could ask for more, never for less"
    blind_for_s, window = now_s - state.blind_s, window_s(evidence, policy)
    if blind_for_s <= window:
        reason = Reason.RESTARTED if state.is_fresh else Reason.HOLD_WINDOW
        return reason, f"all was known for {blind_for_s:.0f} s; the window takes {window:.0f} s"
    if evidence.is_late(policy.promise):
        return Reason.LATE, f"requests waited {evidence.wait_s:.2f} s within the last 30 s"
    return None


def reversal_refusal(
    evidence: Evidence, policy: Policy, state: HorizontalState, excess_ratio: float, now_s: float
) -> tuple[Reason, str] | None:
    """Return why a shrink may not follow the growth before it yet; None = it may.

    It waits for G; one that frees less than 15 % of the replicas for the longest G. Azure conv, start 60 s, moved
    between 28 and 29 three times an hour without; 10 % instead left Mooncake two. Measured: bench/scaler.

    Args:
        evidence: What is known.
        policy: What was said.
        state: What is remembered.
        excess_ratio: Share of the replicas that could go.
        now_s: Now.
    """
    if state.grew_s is None:
        return None
    if evidence.has_rates:
        hold = reversal_hold_s(policy.behavior, evidence.start_time_s, state.recent_reversals(now_s))
        if excess_ratio < _WORTH_A_REVERSAL and policy.behavior.style is Style.STEADY:
            hold = LONGEST_REVERSAL_S
    else:
        hold = policy.behavior.look_back_down_s
    if now_s - state.grew_s > hold:
        return None
    return Reason.REVERSAL_WINDOW, f"{now_s - state.grew_s:.0f} s since growth; a reversal waits {hold:.0f} s"


def step(current: int, lowest: int, period_s: float) -> int:
    """Return the replicas after one decision: n - max(1, (n - lowest) (1 - 2^(-period / 120)))."""
    share = 1 - math.pow(2.0, -period_s / _HALF_LIFE_S)
    return max(lowest, current - max(1, int((current - lowest) * share)))
