"""The conditions of an autoscaler: is it valid, is the workload its own, is load known. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.condition import LONGEST_TEXT, Condition
from scaler.controller.endpoint import Endpoint
from scaler.controller.world import Autoscaler, Claim
from scaler.decision import Reason
from scaler.policy import Mode

READY, VALID, TARGET, SIGNALS = "Ready", "Valid", "TargetReady", "SignalsKnown"
_BLIND = frozenset({Reason.NO_DATA, Reason.PARTIAL_DATA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a status is made from.

    Attributes:
        claim: Whether the workload is this autoscaler's, and why not.
        signal_problem: Why load is not known; "" = it is, or nothing worse than the decision says.
        actuator_problem: Why the last count could not be set; "" = it could.
    """

    autoscaler: Autoscaler
    endpoint: Endpoint | None
    claim: tuple[Claim, str]
    signal_problem: str = ""
    actuator_problem: str = ""


def conditions_of(picture: Picture) -> tuple[Condition, ...]:
    """Return the conditions: Ready sums up the three others."""
    autoscaler, (claim, claim_text) = picture.autoscaler, picture.claim
    valid = _valid(autoscaler)
    target = Condition(kind=TARGET, holds=claim is Claim.OURS, reason=claim.value, text=claim_text)
    if target.holds and picture.actuator_problem:
        target = Condition(kind=TARGET, holds=False, reason="ScaleFailed", text=picture.actuator_problem)
    signals = _signals(picture)
    broken = next((one for one in (valid, target, signals) if one.holds is False), None)
    if broken is not None:
        ready = Condition(kind=READY, holds=False, reason=broken.reason, text=broken.text)
    elif signals.holds is None:
        ready = Condition(kind=READY, holds=None, reason=signals.reason, text=signals.text)
    else:
        is_acting = autoscaler.spec is not None and autoscaler.spec.policy.mode is Mode.ACT
        ready = Condition(
            kind=READY,
            holds=True,
            reason="Acting" if is_acting else "Observing",
            text="decisions are carried out" if is_acting else "decisions are told and not carried out (mode: observe)",
        )
    return (ready, valid, target, signals)


def _valid(autoscaler: Autoscaler) -> Condition:
    if not autoscaler.problems:
        return Condition(kind=VALID, holds=True, reason="Valid", text="the spec is in force")
    what = "the last valid one stays in force" if autoscaler.spec else "nothing is scaled"
    text = f"{'; '.join(autoscaler.problems)}: {what}"
    return Condition(kind=VALID, holds=False, reason=Claim.INVALID.value, text=text[:LONGEST_TEXT])


def _signals(picture: Picture) -> Condition:
    endpoint = picture.endpoint
    if picture.signal_problem:
        return Condition(kind=SIGNALS, holds=False, reason="SourceFailed", text=picture.signal_problem[:LONGEST_TEXT])
    if endpoint is None or endpoint.decision is None:
        return Condition(kind=SIGNALS, holds=None, reason="NothingSeenYet", text="nothing was seen yet")
    if endpoint.is_unmatched:
        text = "no server of the backend is one of the Ready pods, by name or by address: their load is not known"
        return Condition(kind=SIGNALS, holds=False, reason="ServersUnmatched", text=text)
    reason = endpoint.decision.reason
    if reason in _BLIND:
        return Condition(
            kind=SIGNALS, holds=False, reason=reason.value, text="load is not known: nothing is taken away"
        )
    return Condition(kind=SIGNALS, holds=True, reason="Fresh", text="load is known")
