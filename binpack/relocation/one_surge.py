"""Whose turn it is where several replicas of one workload are to move by a replica more: one at a time. Pure.

The count of a Deployment says how many replicas are wanted, not for whom the one too many is, and its controller drops
the replicas that are not Ready before any other: of two moves at once the first could only end when the successor of
the second is Ready too, and either could take back what the other ordered. So a workload has one surge at a time. It
belongs to the first in an order that follows from the API alone, so that any process that looks finds the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from binpack.relocation.record import Way, WayKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Surging:
    """An open move that has a replica more ordered for it, or will have.

    Attributes:
        uid: Of the pod that moves.
        owner: Uid of its controller; "" = not known.
        is_leaving: It is gone or going.
    """

    uid: str
    namespace: str
    owner: str
    way: Way
    has_successor: bool = False
    is_leaving: bool = False


def shares_surge(one: Surging, other: Surging) -> bool:
    """Return True if both have the count of one workload raised."""
    if WayKind.EVICTION in (one.way.kind, other.way.kind) or one.namespace != other.namespace:
        return False
    is_same_count = (one.way.kind, one.way.name) == (other.way.kind, other.way.name)
    return is_same_count or bool(one.owner and one.owner == other.owner)


def out_of_turn(moves: Iterable[Surging]) -> frozenset[str]:
    """Return the uids of those that wait for another move of their workload to be over.

    First is who has a successor, for that is where the surge is, of these who leaves already. Before anybody has a
    successor the surge that is there is as good for one as for another: it goes to the lowest uid of those that stay.
    """
    first: list[Surging] = []
    waiting: set[str] = set()
    for move in sorted(moves, key=_place):
        if any(shares_surge(move, other) for other in first):
            waiting.add(move.uid)
        elif move.way.kind is not WayKind.EVICTION:
            first.append(move)
    return frozenset(waiting)


def _place(move: Surging) -> tuple[bool, bool, str]:
    return (not move.has_successor, move.has_successor != move.is_leaving, move.uid)
