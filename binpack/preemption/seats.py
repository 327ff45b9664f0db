"""Seats on one node, settled together: which are free, which wait for pods that leave, and who must go for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from binpack.books import Holding, account, holding_at
from binpack.fit import refusal
from binpack.preemption.choice import BudgetsOf, fewest
from binpack.tenants import Tenants
from fleet.node import Node
from fleet.pod import Berth, Pod


class Seating(Enum):
    """How a seat stands."""

    FREE = "free"  # its pod may be pinned to it
    LEAVING = "leaving"  # it is, once those who leave already are gone
    HELD = "held"  # others must be made to go first
    LOST = "lost"  # nobody who may be made to go stands in its way alone: it cannot be kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatStanding:
    """One seat as it stands now.

    Attributes:
        victims: Who must go, where it is HELD.
        detail: Why it is LOST.
    """

    pod: Pod
    seating: Seating
    victims: tuple[Pod, ...] = ()
    detail: str = ""


def fits_beside(pod: Pod, berth: Berth, node: Node, holdings: Collection[Holding]) -> bool:
    """Return True if the pod could have exactly this berth beside these holdings."""
    return not refusal(pod, berth, account(node, holdings).state)


def settle(
    node: Node,
    held: Mapping[str, Holding],
    tenants: Tenants,
    seats: Sequence[Pod],
    budgets_of: BudgetsOf,
    *,
    leaving: Collection[str] = (),
    may_break: bool = False,
) -> tuple[SeatStanding, ...]:
    """Return how all seats of one node stand, each counting on what the ones before it leave.

    The least important first: whoever stands in its way stands in the way of the more important, too, so each finds
    what was planned for it.

    Args:
        node: As pods see it that may be planned there.
        held: What pods really hold there, by uid; no seats.
        tenants: The pods behind that.
        seats: Gated pods with a seat on this node.
        budgets_of: The budgets that cover a pod.
        leaving: Pods made to go of which the watch does not show it yet.
        may_break: Whether budgets may be broken where nothing else makes room.
    """
    on_node = tenants.on(node.name)
    gone = {uid for uid in held if uid in leaving or (uid in on_node and on_node[uid].is_terminating)}
    now = dict(held)
    later = {uid: holding for uid, holding in held.items() if uid not in gone}
    found: list[SeatStanding] = []
    for pod in sorted(seats, key=lambda pod: (pod.priority, pod.created_at_s, pod.uid)):
        seat = pod.seat
        assert seat is not None
        standing = _one(pod, seat, node, now, later, tenants, budgets_of, may_break=may_break)
        for victim in standing.victims:
            later.pop(victim.uid, None)
        if standing.seating is not Seating.LOST:
            now[pod.uid] = later[pod.uid] = holding_at(pod, node.name, seat.devices or None)
        found.append(standing)
    return tuple(found)


def _one(
    pod: Pod,
    seat: Berth,
    node: Node,
    now: Mapping[str, Holding],
    later: Mapping[str, Holding],
    tenants: Tenants,
    budgets_of: BudgetsOf,
    *,
    may_break: bool,
) -> SeatStanding:
    if fits_beside(pod, seat, node, now.values()):
        return SeatStanding(pod=pod, seating=Seating.FREE)
    if fits_beside(pod, seat, node, later.values()):
        return SeatStanding(pod=pod, seating=Seating.LEAVING)
    candidates = [] if pod.never_preempts else [t for t in tenants.below(node.name, pod.priority) if t.uid in later]
    victims = fewest(
        candidates,
        lambda uids: fits_beside(pod, seat, node, [h for uid, h in later.items() if uid not in uids]),
        budgets_of,
        may_break=may_break,
    )
    if victims is None:
        why = refusal(pod, seat, account(node, later.values()).state)
        return SeatStanding(pod=pod, seating=Seating.LOST, detail=why)
    return SeatStanding(pod=pod, seating=Seating.HELD, victims=victims)
