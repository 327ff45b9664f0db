"""What a pool's node is to the planner: read from taints and annotations, which the pool's controller writes."""

from __future__ import annotations

from enum import Enum

from fleet import labels
from fleet.claim import read_claim
from fleet.node import Node


class Standing(Enum):
    """The kinds of nodes."""

    ORDINARY = "ordinary"  # no pool's
    SERVING = "serving"  # a pool's, drawn before: its room is like any other's
    OPEN = "open"  # warm, and nobody's
    OURS = "ours"  # warm, and claimed by this planner
    CLAIMED = "claimed"  # claimed by somebody else, or by a planner that is gone
    CLOSED = "closed"  # being made, given up, or closed by a person


def standing(node: Node, set_ids: frozenset[str] = frozenset()) -> Standing:
    """Return what the node is.

    A pod that tolerates everything is no exception: nobody goes to a warm node without a claim.

    Args:
        node: As the API shows it.
        set_ids: The claims that this planner may use.
    """
    if not node.pool:
        return Standing.ORDINARY
    if node.is_cordoned or any(taint.key.startswith(labels.READINESS_PREFIX) for taint in node.taints):
        return Standing.CLOSED
    if not node.warm:  # the pool's controller closes it to claims once pods are there, and keeps the claim for a while
        return Standing.SERVING
    claim = read_claim(node.claim)
    if claim is None:
        return Standing.OPEN
    return Standing.OURS if claim.set_id in set_ids else Standing.CLAIMED
