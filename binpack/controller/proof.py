"""Seats for which others are to go, verified against the planner's world before anybody is asked. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from binpack.check_seats import Gang, check_seats
from binpack.controller.world import World
from binpack.preemption.seats import SeatStanding
from fleet.plan import Violation
from fleet.pod import Berth, Pod


def is_leaving(world: World, uid: str, going: Collection[str]) -> bool:
    """Return True for a pod that is on its way out, or of which nothing is known any more: its claims become free.

    Args:
        world: The planner's.
        uid: Of the pod.
        going: Pods made to go of which the watch does not show it yet.
    """
    if uid in going:
        return True
    tenant = world.tenants.get(uid)
    if tenant is not None:
        return tenant.is_terminating
    return uid not in world.pods and world.ledger.berth_of(uid) is None


def unproven(
    world: World,
    seats: Sequence[tuple[Pod, Berth]],
    victims: Sequence[Pod],
    going: Collection[str],
    *,
    apart: Iterable[str] = (),
) -> tuple[Violation, ...]:
    """Return what is wrong with seats once these victims are gone; empty = they may be asked.

    Args:
        world: The planner's.
        seats: (pod, berth) of one unit.
        victims: Who is to go for it.
        going: Pods made to go of which the watch does not show it yet.
        apart: Further uids that count for nothing: the unit's own seats, and whoever goes for other seats.
    """
    out = set(apart)
    states = {berth.node: state for _, berth in seats if (state := world.node(berth.node)) is not None}
    staying = {
        name: {
            uid: holding
            for uid, holding in world.ledger.holdings_on(name).items()
            if uid not in out and uid not in going and not _is_terminating(world, uid)
        }
        for name in states
    }
    users = {one.uid for claim in world.desk.claims.values() for one in claim.reserved_for}
    leaving = {uid for uid in users if uid in out or is_leaving(world, uid, going)}
    published = world.desk.published(states, going=leaving - {pod.uid for pod, _ in seats})
    nodes = {name: state.node for name, state in states.items()}
    return check_seats(seats, victims, nodes, staying, published, _gangs(world, victims, going))


def unproven_step(
    world: World, pods: Sequence[Pod], found: Mapping[str, SeatStanding], going: Collection[str]
) -> tuple[Violation, ...]:
    """Return what is wrong with the seats of a unit as they stand now, each counting on those who are to go for it.

    Args:
        world: The planner's.
        pods: Of the unit, each with its seat.
        found: How all seats stand.
        going: Pods made to go of which the watch does not show it yet.
    """
    seats = [(pod, replace(pod.seat, choices=found[pod.uid].choices)) for pod in pods if pod.seat is not None]
    victims = {victim.uid: victim for pod in pods for victim in found[pod.uid].victims}
    mine = victims.keys()
    others = {victim.uid for standing in found.values() for victim in standing.victims} - mine
    return unproven(world, seats, list(victims.values()), going, apart={*others, *(pod.uid for pod in pods)})


def _gangs(world: World, victims: Sequence[Pod], going: Collection[str]) -> list[Gang]:
    """Return the gangs of the victims, as they are before any of these goes."""
    roll = world.together.roll
    keys = {(victim.namespace, victim.gang) for victim in victims if victim.gang}
    return [
        Gang(members=tuple(one for one in roll.members(key) if one.uid not in going), size=roll.size(key))
        for key in sorted(keys)
    ]


def _is_terminating(world: World, uid: str) -> bool:
    pod = world.tenants.get(uid)
    return pod is not None and pod.is_terminating
