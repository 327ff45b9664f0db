"""What is to be done with one pod, judged from the pod alone."""

from __future__ import annotations

from enum import Enum

from fleet import labels
from fleet.device import AskKind
from fleet.pod import Pod

# A Job counts a deleted pod as a failure, so its pods are steered instead of pinned: a pin may need a deletion to mend.
_NOT_RECREATED_FREELY = frozenset({"Job"})


class Handling(Enum):
    """The five ways to treat a pod."""

    NONE = "none"  # not gated by us: nothing to do
    PIN = "pin"  # plan it, pin it to one node
    STEER = "steer"  # plan it, un-gate it un-pinned with candidates
    FOREIGN_GATE = "foreign-gate"  # somebody else holds it: plan it when they let go
    HOLD = "hold"  # it cannot be planned (malformed, gang): it stays gated and says why


def handling(pod: Pod) -> Handling:
    """Return how the planner treats the pod (ARCHITECTURE.md, the way of a pod)."""
    if labels.PLAN_GATE not in pod.gates or pod.node_name or pod.is_terminating or not pod.is_live:
        return Handling.NONE
    if pod.problems or is_gang(pod):
        return Handling.HOLD
    if len(pod.gates) > 1:
        return Handling.FOREIGN_GATE
    if pod.unmodelled or pod.owner is None or pod.owner.kind in _NOT_RECREATED_FREELY:
        return Handling.STEER
    return Handling.PIN


def is_gang(pod: Pod) -> bool:
    """Return True for a member of a gang: planning it alone would break all-or-nothing."""
    return any(name.startswith("gang") for name in pod.unmodelled)


def can_be_handed_over(pod: Pod) -> bool:
    """Return True if a node autoscaler could understand what the pod waits for: no shares, no chosen devices."""
    if pod.problems or is_gang(pod) or pod.gang:
        return False
    return pod.ask is None or pod.ask.kind is AskKind.CLASSIC
