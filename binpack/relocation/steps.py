"""One move, one look: what is seen of it goes in, the next step comes out. Pure.

Nothing is remembered but since when a stage lasts: every step follows from what the API shows, may be tried again
without harm, and leads to the next or back. A move whose process dies is taken up by the next one, or undone.

    marked -> surge -> successor has the seat -> Ready -> the old one leaves first -> surge taken back -> gone
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from binpack.relocation.record import Way, WayKind
from fleet import labels
from fleet.pod import Pod

# A controller makes a pod within seconds; a model may load for half an hour.
CREATED_WITHIN_S = 120.0
READY_WITHIN_S = 2400.0
GONE_WITHIN_S = 120.0
EVICTED_WITHIN_S = 900.0
OTHERS_READY_WITHIN_S = 900.0


class Surge(StrEnum):
    """Whether a replica more is ordered for this move."""

    ABSENT = "absent"
    PRESENT = "present"
    OVERRULED = "overruled"  # somebody has set another count since
    UNKNOWN = "unknown"  # the API did not say


class Do(StrEnum):
    """What to do next."""

    SURGE = "surge"  # order one replica more
    WAIT = "wait"
    MARK = "mark"  # let the controller choose the old pod first
    SETTLE = "settle"  # take the surge back
    EVICT = "evict"
    CLEAR = "clear"  # take the marks off the pod: it stays
    FINISH = "finish"  # take the record off the successor: it is over


class Stage(StrEnum):
    """How a move stands, or how it ended; what people and metrics see."""

    SURGING = "Surging"
    AWAITS_TURN = "AwaitsTurn"  # another replica of its workload moves; a workload has one surge at a time
    AWAITS_SUCCESSOR = "AwaitsSuccessor"
    AWAITS_READY = "AwaitsReady"
    AWAITS_OTHERS = "AwaitsOthers"  # while another replica is not Ready the controller would drop that one
    LEAVING = "Leaving"
    AWAITS_EVICTION = "AwaitsEviction"
    AWAITS_API = "AwaitsApi"
    MOVED = "Moved"
    OTHER_WENT = "OtherWent"  # the controller dropped another replica
    WITHDRAWN = "Withdrawn"  # moves were switched off
    OVERRULED = "Overruled"
    OWNER_CHANGED = "OwnerChanged"  # a roll-out began
    SUCCESSOR_MISSING = "SuccessorMissing"
    SUCCESSOR_LATE = "SuccessorLate"
    OTHERS_LATE = "OthersLate"
    NOT_EVICTED = "NotEvicted"  # its budget did not let it go in time
    UNREADABLE = "Unreadable"  # nobody can tell what was begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is seen of one move.

    Attributes:
        old: The pod that moves; None = its object is gone.
        successor: The live pod that says it takes its place; None = there is none.
        others: Live pods of the same controller beside these two, none of them on its way out.
        is_wanted: Moves may be made, and nothing speaks against this one.
        is_out_of_turn: The surge that its workload may have is for another move: whatever the count is, none of it is
            for this one.
        is_of_old_template: Its controller makes pods of another template now.
        for_s: How long the move has stood as it does, by the clock of whoever looks.
    """

    way: Way
    old: Pod | None
    successor: Pod | None
    others: tuple[Pod, ...]
    surge: Surge
    is_wanted: bool = True
    is_out_of_turn: bool = False
    is_of_old_template: bool = False
    for_s: float = 0.0

    @property
    def is_leaving(self) -> bool:
        """Return True if the old pod is gone or going."""
        return self.old is None or self.old.is_terminating or not self.old.is_live

    @property
    def is_succeeded(self) -> bool:
        """Return True if the successor serves."""
        return self.successor is not None and self.successor.is_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do, and how the move stands."""

    do: Do
    stage: Stage


def surge_of(way: Way, *, count: int | None, is_listed: bool | None) -> Surge:
    """Return whether the surge is there.

    Args:
        way: Of the move.
        count: Replicas that the Deployment is set to; None = not known.
        is_listed: Whether the autoscaler's annotation names the pod; None = not known.
    """
    match way.kind:
        case WayKind.EVICTION:
            return Surge.ABSENT
        case WayKind.AUTOSCALER:
            return Surge.UNKNOWN if is_listed is None else Surge.PRESENT if is_listed else Surge.ABSENT
        case WayKind.SCALE if count is None:
            return Surge.UNKNOWN
        case WayKind.SCALE:
            return {way.base: Surge.ABSENT, way.base + 1: Surge.PRESENT}.get(count, Surge.OVERRULED)


def next_step(facts: Facts) -> Step:
    """Return the next step of a move."""
    if facts.is_out_of_turn and facts.surge is not Surge.ABSENT:
        return next_step(replace(facts, surge=Surge.ABSENT))
    if facts.surge is Surge.UNKNOWN:
        return Step(do=Do.WAIT, stage=Stage.AWAITS_API)
    if facts.way.kind is WayKind.EVICTION:
        return _evicted_first(facts)
    if facts.is_leaving:
        return _left(facts)
    why = _why_undone(facts)
    if why is not None:
        return Step(do=Do.SETTLE if facts.surge is Surge.PRESENT else Do.CLEAR, stage=why)
    if facts.is_out_of_turn:
        return Step(do=Do.WAIT, stage=Stage.AWAITS_TURN)
    return _with_surge(facts) if facts.surge is Surge.PRESENT else _without_surge(facts)


def _left(facts: Facts) -> Step:
    """The old pod is gone or going: by our doing, or by an accident on the way."""
    if facts.surge is Surge.PRESENT:
        return Step(do=Do.SETTLE, stage=Stage.LEAVING)
    return Step(do=Do.FINISH, stage=Stage.MOVED if facts.successor is not None else Stage.SUCCESSOR_MISSING)


def _why_undone(facts: Facts) -> Stage | None:
    if facts.surge is Surge.OVERRULED:
        return Stage.OVERRULED
    if facts.is_succeeded:
        return None  # to go on is as clean as to go back, and nearer
    if not facts.is_wanted:
        return Stage.WITHDRAWN
    if facts.is_of_old_template:
        return Stage.OWNER_CHANGED
    if facts.surge is Surge.PRESENT and facts.successor is None and facts.for_s > CREATED_WITHIN_S:
        return Stage.SUCCESSOR_MISSING
    return Stage.SUCCESSOR_LATE if facts.successor is not None and facts.for_s > READY_WITHIN_S else None


def _with_surge(facts: Facts) -> Step:
    if facts.successor is None:
        return Step(do=Do.WAIT, stage=Stage.AWAITS_SUCCESSOR)
    if not facts.successor.is_ready:
        return Step(do=Do.WAIT, stage=Stage.AWAITS_READY)
    if not _is_marked(facts):
        return Step(do=Do.MARK, stage=Stage.LEAVING)
    if any(not pod.is_ready for pod in facts.others):
        if facts.for_s > OTHERS_READY_WITHIN_S:
            return Step(do=Do.SETTLE, stage=Stage.OTHERS_LATE)
        return Step(do=Do.WAIT, stage=Stage.AWAITS_OTHERS)
    return Step(do=Do.SETTLE, stage=Stage.LEAVING)


def _without_surge(facts: Facts) -> Step:
    if facts.successor is None:
        return Step(do=Do.SURGE, stage=Stage.SURGING)
    if not (facts.successor.is_ready and _is_marked(facts)):
        return Step(do=Do.CLEAR, stage=Stage.OVERRULED)
    # The old pod, the successor and the others are as many as are wanted: somebody went, and it was not the old one.
    is_one_fewer = facts.way.kind is WayKind.SCALE and len(facts.others) + 2 <= facts.way.base
    if is_one_fewer or facts.for_s > GONE_WITHIN_S:
        return Step(do=Do.CLEAR, stage=Stage.OTHER_WENT)
    return Step(do=Do.WAIT, stage=Stage.LEAVING)


def _is_marked(facts: Facts) -> bool:
    return facts.old is not None and facts.old.deletion_cost == labels.LEAVES_FIRST


def _evicted_first(facts: Facts) -> Step:
    if not facts.is_leaving:
        if not facts.is_wanted:
            return Step(do=Do.CLEAR, stage=Stage.WITHDRAWN)
        if facts.for_s > EVICTED_WITHIN_S:
            return Step(do=Do.CLEAR, stage=Stage.NOT_EVICTED)
        return Step(do=Do.EVICT, stage=Stage.AWAITS_EVICTION)
    if facts.is_succeeded:
        return Step(do=Do.FINISH, stage=Stage.MOVED)
    if facts.successor is None:
        is_late = facts.for_s > CREATED_WITHIN_S
        return (
            Step(do=Do.FINISH, stage=Stage.SUCCESSOR_MISSING)
            if is_late
            else Step(do=Do.WAIT, stage=Stage.AWAITS_SUCCESSOR)
        )
    is_late = facts.for_s > READY_WITHIN_S
    return Step(do=Do.FINISH, stage=Stage.SUCCESSOR_LATE) if is_late else Step(do=Do.WAIT, stage=Stage.AWAITS_READY)
