"""Which nodes of warm pools can be given back: everything on them fits elsewhere. Pure.

A pool's node that serves costs money for as long as a single replica sits on it. Nodes are weighed one after the other,
those that free the most devices per move first, each seeing the pods of those before it as moved: what is found spare
can be emptied together. The what-if is the index's own, berth by berth, on serving nodes alone: a warm node is nobody's
elsewhere, neither is one that stands empty, and no node that is found spare counts as room for another.

A node must have been spare at every look for a while before it is marked, and loses the mark at the first look at which
it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from binpack.demand import hardest_first
from binpack.fit import mismatch, missing
from binpack.index import Index
from binpack.moving import Stays, afresh, stays
from binpack.state import NodeState
from fleet.plan import Placement
from fleet.pod import Pod

Ints = npt.NDArray[np.int64]

# At most so many pods are weighed in one look, and so many nodes are spare at a time: a look is some milliseconds.
_MOST_PODS = 64
_MOST_NODES = 32
# A node that could not be emptied is weighed again after those that were not weighed for longer.
_NEVER_S = float("-inf")


class SpareReason(StrEnum):
    """What was found of a node."""

    FITS_ELSEWHERE = "FitsElsewhere"
    NO_ROOM_ELSEWHERE = "NoRoomElsewhere"
    POD_STAYS = "PodStays"  # one of its pods may not be moved
    BUDGET = "DisruptionBudget"  # a budget of one of its pods lets nobody go, however healthy all are
    WANTED = "WaitingPodFits"  # a pod that waits could use it
    KEPT = "Kept"  # a person wants it left alone
    CLAIMED = "Claimed"  # somebody is on the way to it
    EMPTY = "Empty"  # nobody uses it: its pool sees that for itself
    TAKES_IN = "TakesIn"  # the pods of another spare node would go here
    NOT_WEIGHED = "NotWeighed"  # its turn comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """A pool's node that serves.

    Attributes:
        state: What is free on it, as pods see it while it is open: no cordon, no taint of the pool.
        pods: Those that use it.
        strangers: Keys of pods that use it and are not known any closer: they stay.
        guarded: Why pods on it could never be evicted: what their disruption budgets say, in words.
        in_index: Whether the index has it: one that is being given up is in no index.
    """

    state: NodeState
    pods: tuple[Pod, ...]
    strangers: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    in_index: bool = True

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.state.node.name

    @property
    def is_empty(self) -> bool:
        """Return True if nobody uses it."""
        return not self.pods and not self.strangers


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one node.

    Attributes:
        placements: Where its pods would go; empty unless it is spare.
        detail: Of the reason, for people.
    """

    node: str
    reason: SpareReason
    placements: tuple[Placement, ...] = ()
    detail: str = ""

    @property
    def is_spare(self) -> bool:
        """Return True if everything on it fits elsewhere."""
        return self.reason is SpareReason.FITS_ELSEWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What earlier looks say of a node, on the caller's clock.

    Attributes:
        spare_since_s: Since when every look found it spare; None = the last one did not.
        weighed_at_s: When it was weighed last.
    """

    spare_since_s: float | None = None
    weighed_at_s: float = _NEVER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at all nodes.

    Attributes:
        findings: One per node, in the order in which they were weighed.
        marks: Nodes to mark, spare for long enough and not marked yet.
        unmarks: Nodes that are marked and not spare.
        records: For the next look.
    """

    findings: tuple[Finding, ...] = ()
    marks: tuple[Finding, ...] = ()
    unmarks: tuple[Finding, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)


def look(
    index: Index,
    tenancies: Iterable[Tenancy],
    waiting: Sequence[Pod],
    records: Mapping[str, Record],
    now_s: float,
    *,
    after_s: float,
) -> Look:
    """Return which nodes are spare now, and which marks follow.

    Args:
        index: Of all nodes that take pods without a claim; left as it was.
        tenancies: The pools' nodes that serve, or did a moment ago.
        waiting: Pods that wait for room, one of each kind is enough.
        records: Of the last look.
        now_s: On any clock.
        after_s: How long a node must have been spare before it is marked.
    """
    ranked = sorted(tenancies, key=lambda one: _rank(one, records))
    findings = _weighed(index, ranked, waiting)
    # One that is being given up and stands empty keeps its mark: it goes as it is.
    closing = {one.name for one in ranked if one.is_empty and not one.in_index}
    is_marked = {one.name: one.state.node.is_spare for one in ranked}
    new = {one.node: _record(records.get(one.node, Record()), one, now_s) for one in findings}
    marks = tuple(
        one
        for one in findings
        if one.is_spare and not is_marked[one.node] and _spare_for_s(new[one.node], now_s) >= after_s
    )
    unmarks = tuple(one for one in findings if is_marked[one.node] and one.node not in closing and not one.is_spare)
    return Look(findings=findings, marks=marks, unmarks=unmarks, records=new)


def _rank(tenancy: Tenancy, records: Mapping[str, Record]) -> tuple[object, ...]:
    """Order nodes: what was spare stays spare if it can, then whose turn it is, then most freed per move."""
    node, record = tenancy.state.node, records.get(tenancy.name, Record())
    freed = max(1, len(node.devices))
    return (
        not node.is_spare,
        record.spare_since_s is None,
        _NEVER_S if record.spare_since_s is not None else record.weighed_at_s,
        len(tenancy.pods) / freed,
        -freed,
        node.name,
    )


def _record(before: Record, finding: Finding, now_s: float) -> Record:
    if finding.reason is SpareReason.NOT_WEIGHED:
        return Record(weighed_at_s=before.weighed_at_s)
    if not finding.is_spare:
        return Record(weighed_at_s=now_s)
    since_s = now_s if before.spare_since_s is None else before.spare_since_s
    return Record(spare_since_s=since_s, weighed_at_s=now_s)


def _spare_for_s(record: Record, now_s: float) -> float:
    return 0.0 if record.spare_since_s is None else now_s - record.spare_since_s


def _weighed(index: Index, tenancies: Sequence[Tenancy], waiting: Sequence[Pod]) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    booked: list[tuple[Pod, Placement]] = []
    rank = _room(index, tenancies)
    pods_left, nodes_left = _MOST_PODS, _MOST_NODES
    takers: set[str] = set()
    try:
        for tenancy in tenancies:
            finding = _obstacle(tenancy, waiting)
            if finding is None and tenancy.name in takers:
                finding = Finding(node=tenancy.name, reason=SpareReason.TAKES_IN)
            if finding is None and (len(tenancy.pods) > pods_left or not nodes_left):
                finding = Finding(node=tenancy.name, reason=SpareReason.NOT_WEIGHED)
            if finding is None:
                pods_left -= len(tenancy.pods)
                finding = _what_if(index, tenancy, rank, booked)
                nodes_left -= finding.is_spare
                takers.update(placement.berth.node for placement in finding.placements)
            findings.append(finding)
    finally:
        for pod, placement in reversed(booked):
            index.give_back(pod, placement.berth)
    return tuple(findings)


_CLOSED, _FIRST, _LATER = -1, 0, 1


def _room(index: Index, tenancies: Sequence[Tenancy]) -> Ints:
    """Return the rank of every slot: nodes that may be given back themselves are filled last."""
    rank = np.full(index.slots_used, _FIRST, np.int64)
    for tenancy in tenancies:
        if tenancy.in_index:
            is_out = tenancy.state.node.is_spare or tenancy.is_empty
            rank[index.slot(tenancy.name)] = _CLOSED if is_out else _LATER
    return rank


def _obstacle(tenancy: Tenancy, waiting: Sequence[Pod]) -> Finding | None:
    """Return why the node is not weighed at all."""
    node, name = tenancy.state.node, tenancy.name
    if node.is_kept:
        return Finding(node=name, reason=SpareReason.KEPT)
    if node.claim:
        return Finding(node=name, reason=SpareReason.CLAIMED)
    if tenancy.is_empty:
        return Finding(node=name, reason=SpareReason.EMPTY)
    if tenancy.strangers:
        return Finding(node=name, reason=SpareReason.POD_STAYS, detail=f"{tenancy.strangers[0]} is not ours to move")
    for pod in tenancy.pods:
        why = stays(pod)
        if why is not None and not (why is Stays.NOT_RUNNING and pod.is_terminating):
            return Finding(node=name, reason=SpareReason.POD_STAYS, detail=f"{pod.key} stays: {why.value}")
    if tenancy.guarded:
        return Finding(node=name, reason=SpareReason.BUDGET, detail=tenancy.guarded[0])
    for pod in waiting:
        if mismatch(pod, node) is None and not missing(pod, tenancy.state):
            return Finding(node=name, reason=SpareReason.WANTED, detail=f"{pod.key} waits and fits here")
    return None


def _what_if(index: Index, tenancy: Tenancy, rank: Ints, booked: list[tuple[Pod, Placement]]) -> Finding:
    """Return whether all pods of a node fit elsewhere; where they do, they are left booked there."""
    if tenancy.in_index:
        slot = index.slot(tenancy.name)
        before, rank[slot] = int(rank[slot]), _CLOSED
    placements: list[Placement] = []
    begun = len(booked)
    for pod in sorted((pod for pod in tenancy.pods if not pod.is_terminating), key=hardest_first):
        wish = afresh(pod)
        placement = index.place_first(wish, rank)
        if placement is None:
            while len(booked) > begun:
                moved, berth = booked.pop()
                index.give_back(moved, berth.berth)
            if tenancy.in_index:
                rank[slot] = before
            detail = f"{pod.key} has no room elsewhere"
            return Finding(node=tenancy.name, reason=SpareReason.NO_ROOM_ELSEWHERE, detail=detail)
        index.take(wish, placement.berth)
        booked.append((wish, placement))
        placements.append(placement)
    return Finding(node=tenancy.name, reason=SpareReason.FITS_ELSEWHERE, placements=tuple(placements))
