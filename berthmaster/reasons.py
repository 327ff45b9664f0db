"""What each reason of the scaler means, and what would change it: for people, in `explain` and in docs/scaling.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scaler.decision import Reason, TargetReason


@dataclass(frozen=True, slots=True)
class Meaning:
    """One reason in words.

    Attributes:
        says: What it means.
        helps: What would change it, or that nothing needs to.
    """

    says: str
    helps: str


HORIZONTAL: Final[dict[Reason, Meaning]] = {
    Reason.DEMAND: Meaning(
        "arrival rate x service time / target asks for more replicas than there are",
        "less traffic, shorter requests, or a higher target (learnt, or targetConcurrency)",
    ),
    Reason.SHADOW: Meaning(
        "a smaller fleet, fed the same arrivals in thought, would have been late in the last minutes",
        "smoother traffic, in which the margins vanish",
    ),
    Reason.BACKLOG: Meaning(
        "requests will still wait when new replicas are Ready: the extra ones drain the queue and then go",
        "nothing: they are given back once the queue is gone; a shorter start time makes them fewer",
    ),
    Reason.FORECAST: Meaning(
        "this hour of the day needs more by the time a new replica is Ready, and the forecast has earned its weight",
        "forecast.mode: observe or off",
    ),
    Reason.EXTRA_SIGNAL: Meaning(
        "a further signal asks for more than the requests do",
        "that signal falling, or its target in signals.extra",
    ),
    Reason.WAKE: Meaning(
        "a request waits while there is no replica", "nothing: it is served by the first that is Ready"
    ),
    Reason.MINIMUM: Meaning("minReplicas holds it up", "a lower minReplicas"),
    Reason.EXCESS: Meaning(
        "fewer replicas carry the load, and have done so for the whole window", "nothing: it is shrinking"
    ),
    Reason.BACKLOG_GONE: Meaning(
        "replicas that were ordered to drain a queue are given back", "nothing: it is shrinking"
    ),
    Reason.IDLE: Meaning(
        "no request for behavior.toZeroAfterSeconds: the last replicas go",
        "a request wakes it; minReplicas: 1 keeps it awake",
    ),
    Reason.MAXIMUM: Meaning("maxReplicas holds it down: more are needed", "a higher maxReplicas, or a higher target"),
    Reason.FITS: Meaning("the load fits the replicas there are", "nothing needs to"),
    Reason.NO_DATA: Meaning(
        "nothing usable came from the load's source: the count is held, in both directions",
        "the source: the condition SignalsKnown says what is wrong with it",
    ),
    Reason.PARTIAL_DATA: Meaning(
        "one signal is unknown: growing goes on, shrinking waits",
        "that signal coming back, or taking it out of signals",
    ),
    Reason.LATE: Meaning("requests wait too long: nothing shrinks meanwhile", "30 s without late requests"),
    Reason.HOLD_WINDOW: Meaning(
        "fewer would do now, but not for the whole window yet", "time: the window is told in the numbers"
    ),
    Reason.REVERSAL_WINDOW: Meaning(
        "it grew not long ago; shrinking now would be a reversal, and each one lengthens the wait",
        "time; behavior.mode: thrifty waits less",
    ),
    Reason.RESTARTED: Meaning(
        "the controller started not long ago and has not seen a full window: nothing shrinks",
        "time: one full window of samples",
    ),
    Reason.SURVIVORS_LATE: Meaning(
        "fewer replicas would have been late with the traffic of the last minutes", "smoother or less traffic"
    ),
    Reason.SURVIVORS_LATENCY: Meaning(
        "by the learnt curve the remaining replicas would break slo.latencySeconds",
        "less traffic, or another slo.latencySeconds",
    ),
    Reason.SURVIVORS_MEMORY: Meaning(
        "by the learnt curve the remaining replicas would pass 90 % of their memory",
        "less traffic, or replicas with more memory",
    ),
    Reason.BEFORE_FIRST_READY: Meaning(
        "no replica was Ready yet since it woke: it does not go back to zero", "the first replica being Ready"
    ),
    Reason.REQUEST_IN_FLIGHT: Meaning("a request is in progress: the last replica stays", "its end"),
    Reason.GROWTH_CAP: Meaning(
        "more are needed than one decision may add; the next one goes on in behavior.periodSeconds",
        "behavior.scaleUp.maxRatio and maxReplicas",
    ),
}

VERTICAL: Final[dict[TargetReason, Meaning]] = {
    TargetReason.FIXED: Meaning("it is not learnt: the person's figure stands", "targetConcurrency.learn: true"),
    TargetReason.IDLE: Meaning(
        "too few requests ended in the cycle: idle is no evidence",
        "traffic; with signals.prometheus alone an exporter: queries do not tell replicas apart",
    ),
    TargetReason.SHIFTED: Meaning(
        "latency left the learnt curve: held one cycle, forgotten and learnt anew if it lasts",
        "nothing: it settles within some cycles of 30 s",
    ),
    TargetReason.ERRORS_TIED_TO_LOAD: Meaning(
        "busy replicas fail far more often than idle ones: the limit went below the lowest load that failed",
        "nothing for ten cycles; the errors' cause in the replica",
    ),
    TargetReason.ERRORS_TRIAL: Meaning(
        "there are errors: a lower limit is on trial, the target for the replica count is untouched",
        "the verdict after sixteen expected errors",
    ),
    TargetReason.ERRORS_NOT_TIED: Meaning(
        "errors do not fall with the load: the limit was restored", "the errors' cause, elsewhere"
    ),
    TargetReason.MEMORY: Meaning("memory binds: by regression it reaches 90 % there", "replicas with more memory"),
    TargetReason.RESOURCE: Meaning(
        "a resource binds (GPU memory bandwidth, tensor activity, I/O wait, CPU): it reaches its threshold there",
        "replicas with more of it",
    ),
    TargetReason.UNREACHABLE: Meaning(
        "no load, however small, meets slo.latencySeconds: held", "another slo.latencySeconds, or a faster replica"
    ),
    TargetReason.AT_KNEE: Meaning("it stands at the knee of the fitted curve", "nothing needs to"),
    TargetReason.CONFIRMING: Meaning(
        "the fitted knee lies higher; a raise is asked for twice once the first cycles are over", "the next cycle"
    ),
    TargetReason.RAISED: Meaning("the fitted knee lies higher and the load was really held", "nothing: it is moving"),
    TargetReason.CUT: Meaning("the fitted knee lies lower", "nothing: it is moving"),
    TargetReason.AT_BOUND: Meaning(
        "targetConcurrency.min or max holds it", "another targetConcurrency.min or targetConcurrency.max"
    ),
    TargetReason.NOT_EXERCISED: Meaning(
        "no replica was busy enough to prove more", "traffic; from three replicas on a canary carries more"
    ),
    TargetReason.HELD_STARTING: Meaning(
        "replicas are starting: no raise meanwhile (a cut is always allowed)", "their being Ready"
    ),
    TargetReason.HELD_LATE: Meaning("requests are late: no raise meanwhile", "the queue being gone"),
    TargetReason.HELD_ROLLOUT: Meaning("a rollout ended less than 60 s ago: no raise meanwhile", "time"),
    TargetReason.LATENCY: Meaning(
        "slo.latencySeconds binds before the knee", "another slo.latencySeconds, or a faster replica"
    ),
}


def meaning(reason: str) -> Meaning | None:
    """Return the meaning of a reason of either axis; None for one that is not known here."""
    if reason in {known.value for known in Reason}:
        return HORIZONTAL.get(Reason(reason))
    return VERTICAL.get(TargetReason(reason)) if reason in {known.value for known in TargetReason} else None
