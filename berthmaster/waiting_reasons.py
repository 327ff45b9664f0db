"""What each reason of a pod without a berth means, and what helps: for people, in `explain` and in docs/operate.md."""

from __future__ import annotations

from typing import Final

from berthmaster.reasons import Meaning
from fleet.plan import Reason

WAITING: Final[dict[Reason, Meaning]] = {
    Reason.INSUFFICIENT: Meaning(
        "allowed nodes exist, not enough is free now",
        "the sentence names the nearest node and what it lacks; "
        "berthmaster plan --dry-run --moves says whose moves would make room",
    ),
    Reason.NO_LEGAL_START: Meaning(
        "memory slices of MIG devices are free, and at none of them may the profile start",
        "time; berthmaster explain node shows how an empty card could be cut",
    ),
    Reason.TOPOLOGY_SPREAD: Meaning(
        "nodes have room, and its topology spread would be broken on all of them; the sentence says by how much",
        "room in the emptiest domain; a larger maxSkew",
    ),
    Reason.POD_AFFINITY: Meaning(
        "nodes have room, and none is where the pods are that it must join", "those pods, or room beside them"
    ),
    Reason.POD_ANTI_AFFINITY: Meaning(
        "nodes have room, and on all of them are pods that it must avoid, or that avoid it", "another node or zone"
    ),
    Reason.HOST_PORT: Meaning(
        "nodes have room, and on all of them a host port is taken that it wants", "another node; no host port"
    ),
    Reason.VOLUME: Meaning(
        "a volume claim that it mounts does not exist or is not bound, and no node is chosen before that",
        "the claim, its storage class, its provisioner",
    ),
    Reason.NO_SUCH_DEVICE: Meaning(
        "no allowed node could ever hold it", "another model, another count, more of one node"
    ),
    Reason.NO_NODE_ALLOWED: Meaning(
        "selector, affinity, taints or cordon exclude every node", "the pod's rules or the nodes'"
    ),
    Reason.NO_NODES: Meaning("the cluster is empty", "nodes"),
    Reason.NO_WARM_NODE: Meaning(
        "no room, and no warm node in the pool that serves it; the pool orders one, nobody else does",
        "time; berthmaster explain pool NAME: more warm nodes, if it happens often",
    ),
    Reason.MALFORMED: Meaning("a request or annotation cannot be read", "the sentence quotes it"),
    Reason.GANG_INCOMPLETE: Meaning(
        "members of its gang are missing, or nobody says how many there are", "the other members, or their PodGroup"
    ),
    Reason.GANG_DOES_NOT_FIT: Meaning(
        "the members of its gang do not all fit at once; the sentence says how many do, what is asked and what is free",
        "room in the pieces asked; a higher priority",
    ),
    Reason.SEAT_AWAITED: Meaning("a berth is kept for it, and whoever holds it still leaves", "time"),
    Reason.CLAIM_UNSATISFIED: Meaning(
        "nodes have room, and none has the devices that its resource claims ask",
        "the sentence names the nearest node and how many are free there",
    ),
    Reason.CLAIM_PENDING: Meaning(
        "a resource claim or its device class is missing, going or unreadable",
        "the claim; kubectl get resourceclaims",
    ),
    Reason.LEFT_TO_SCHEDULER: Meaning(
        "it asks for devices in a way that only kube-scheduler can allocate; un-gated un-pinned",
        "kube-scheduler's own condition says how it goes on",
    ),
    Reason.UNMODELLED_CONSTRAINT: Meaning(
        "its gang is told in a way that is not planned (workloadRef of Kubernetes 1.35), "
        "or has a claim that only kube-scheduler can allocate; with status False: "
        "it was placed, steered by candidates because of a constraint that is not planned, which the message names",
        "the labels of a gang, or a PodGroup; nothing where it was placed",
    ),
    Reason.FOREIGN_GATE: Meaning("another controller's gate is still on it", "that controller"),
    Reason.PLANNER_FAULT: Meaning(
        "planning it failed by a fault of ours; it is tried again", "report it, with the planner's log"
    ),
}

HANDED_OVER: Final = Meaning(
    "it waited for room as long as BERTHMASTER_SETTING_HAND_OVER_AFTER_S says, "
    "and was un-gated un-pinned so that a node autoscaler can order a node",
    "a node: kube-scheduler places it there",
)


def meaning_of(reason: str) -> Meaning | None:
    """Return the meaning of a reason as it is written; None for one that is not known here."""
    if reason == "HandedOver":
        return HANDED_OVER
    return WAITING.get(Reason(reason)) if reason in {known.value for known in Reason} else None
