"""Which pods may be moved at all, and what one would be if its controller made it anew. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from fleet import labels
from fleet.constraints import NodeConstraints, NodeTerm
from fleet.pod import Pod

# A Job counts a deleted pod as a failure.
_NOT_RECREATED_FREELY = frozenset({"Job", "DaemonSet", "Node"})


class Stays(StrEnum):
    """Why a pod stays where it is."""

    NO_CONTROLLER = "NoController"  # nobody would make it anew
    OWNER_KIND = "OwnerKind"  # a Job's, a DaemonSet's, the node's own
    KEPT = "Kept"  # an annotation of its own says so
    OTHER_SCHEDULER = "OtherScheduler"  # another scheduler would choose the place of its successor
    UNMODELLED = "UnmodelledConstraint"  # nobody can prove that its successor fits elsewhere
    UNREADABLE = "Unreadable"
    GANG = "Gang"  # the others of its gang would be left with one fewer
    HAND_MADE_CLAIM = "HandMadeClaim"  # its successor would have the same claim, and no devices of its own
    NOT_RUNNING = "NotRunning"  # not bound yet, or on its way out


def stays(pod: Pod) -> Stays | None:
    """Return why the pod may not be moved; None = it may, as far as it says itself."""
    if pod.problems:
        return Stays.UNREADABLE
    if not pod.node_name or pod.is_terminating or not pod.is_live:
        return Stays.NOT_RUNNING
    if pod.keeps_still:
        return Stays.KEPT
    if pod.owner is None:
        return Stays.NO_CONTROLLER
    if pod.owner.kind in _NOT_RECREATED_FREELY:
        return Stays.OWNER_KIND
    if pod.scheduler_name != labels.SCHEDULER_NAME:
        return Stays.OTHER_SCHEDULER
    if pod.gang:
        return Stays.GANG
    if any(not one.template and not one.is_none for one in pod.resource_claims):
        return Stays.HAND_MADE_CLAIM
    return Stays.UNMODELLED if pod.unmodelled else None


def afresh(pod: Pod) -> Pod:
    """Return the pod as its controller would make it anew: gated, with no berth, and without the planner's pin.

    Its claims are like those that it has, and still to be made.
    """
    return replace(
        pod,
        resource_claims=tuple(replace(one, claim="", like=one.claim) for one in pod.resource_claims),
        node_name="",
        pinned_node="",
        is_pin_ours=False,
        devices=None,
        candidates=(),
        gates=(labels.PLAN_GATE,),
        is_ready=False,
        constraints=_unpinned(pod.constraints, pod.pinned_node) if pod.is_pin_ours else pod.constraints,
    )


def _unpinned(constraints: NodeConstraints, node: str) -> NodeConstraints:
    """Return the constraints without one requirement per term that names the node.

    Where nothing is left of a term the planner made it: one that was empty before matches no node and gets no pin.
    """
    terms = tuple(_without_pin(term, node) for term in constraints.terms or ())
    left = tuple(term for term in terms if term.labels or term.fields)
    return replace(constraints, terms=left or None)


def _without_pin(term: NodeTerm, node: str) -> NodeTerm:
    fields = list(term.fields)
    for position, field in enumerate(fields):
        if field.key == labels.NODE_NAME_FIELD and field.operator == "In" and field.values == (node,):
            del fields[position]
            break
    return replace(term, fields=tuple(fields))
