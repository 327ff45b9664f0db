"""Where a gated pod belongs that nobody is deciding on: to be planned, with its gang, or to wait. Pure."""

from __future__ import annotations

from enum import Enum

from binpack.controller.triage import Handling, handling, is_gang
from binpack.controller.waiting import CAPACITY
from fleet import labels
from fleet.plan import Reason, Unplaced
from fleet.pod import Pod


class Place(Enum):
    """Where it goes, unless it waits for something else than room."""

    QUEUE = "queue"  # to be planned
    TOGETHER = "together"  # with the others of its gang, or to its seat
    STAY = "stay"  # it waits for room, and nothing new was said of it


def place_of(pod: Pod, before: Pod | None, waits_for: Reason | None, *, lack: str, is_alone: bool) -> Place | Unplaced:
    """Return where the pod belongs, or what it must wait for before it can be planned.

    Args:
        pod: As it is now.
        before: As it was when it was looked at last; None = it was not.
        waits_for: Why it waits; None = it does not.
        lack: What must be looked up first, in words; "" = nothing.
        is_alone: Whether it may be planned without others.
    """
    match handling(pod):
        case Handling.HOLD:
            reason = Reason.UNMODELLED_CONSTRAINT if is_gang(pod) and not pod.problems else Reason.MALFORMED
            return Unplaced(pod_uid=pod.uid, reason=reason, detail="; ".join(pod.problems))
        case Handling.FOREIGN_GATE:
            others = ", ".join(gate for gate in pod.gates if gate != labels.PLAN_GATE)
            return Unplaced(pod_uid=pod.uid, reason=Reason.FOREIGN_GATE, detail=others)
    if lack:
        return Unplaced(pod_uid=pod.uid, reason=Reason.VOLUME, detail=lack)
    if not is_alone:
        return Place.TOGETHER
    is_news = waits_for not in CAPACITY or before is None or wish(pod) != wish(before)
    return Place.QUEUE if is_news else Place.STAY


def wish(pod: Pod) -> tuple[object, ...]:
    """Return everything on which a decision about the pod rests: equal wishes, equal answers."""
    claims = pod.resource_claims
    return (handling(pod), pod.requests, pod.ask, pod.constraints, pod.guest, pod.preferred_nodes, pod.images, claims)
