"""Seats for which others are to go, verified against the planner's world before anybody is asked. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

from binpack.check_seats import Gang, check_seats
from binpack.controller.world import World
from binpack.dra.excerpts import Excerpts
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


class Proofs:
    """Judges seats by the planner's world as it is now; what all of them need of it is read once.

    Args:
        world: The planner's.
        going: Pods made to go of which the watch does not show it yet.
        found: How all seats stand that are kept: whoever goes for one of them counts for nothing at the others.
    """

    def __init__(
        self, world: World, going: Collection[str], found: Mapping[str, SeatStanding] = MappingProxyType({})
    ) -> None:
        self._world = world
        self._going = going
        self._found = found
        self._apart = {victim.uid for standing in found.values() for victim in standing.victims}
        self._leaves: dict[str, bool] = {}

    def unproven(
        self, seats: Sequence[tuple[Pod, Berth]], victims: Sequence[Pod], *, beside: Collection[str] = ()
    ) -> tuple[Violation, ...]:
        """Return what is wrong with seats once these victims are gone; empty = they may be asked.

        Args:
            seats: (pod, berth) of one unit.
            victims: Who is to go for it.
            beside: Uids of pods that count for nothing, the unit's own: its seats are held already.
        """
        world, going, mine = self._world, self._going, {victim.uid for victim in victims}

        def is_out(uid: str) -> bool:
            return uid in beside or (uid in self._apart and uid not in mine)

        states = {berth.node: state for _, berth in seats if (state := world.node(berth.node)) is not None}
        staying = {
            name: {
                uid: holding
                for uid, holding in world.ledger.holdings_on(name).items()
                if uid not in going and not is_out(uid) and not _is_terminating(world, uid)
            }
            for name in states
        }
        published = self._excerpts.about(states, seats)
        users = {one.uid for claim in published.claims.values() for one in claim.reserved_for}
        unit = {pod.uid for pod, _ in seats}
        published = replace(
            published,
            node_labels={name: world.desk.pools.labels(name) for name in states},
            going=frozenset(uid for uid in users - unit if is_out(uid) or self._is_leaving(uid)),
        )
        nodes = {name: state.node for name, state in states.items()}
        return check_seats(seats, victims, nodes, staying, published, _gangs(world, victims, going))

    def unproven_step(self, pods: Sequence[Pod]) -> tuple[Violation, ...]:
        """Return what is wrong with the kept seats of a unit as they stand, each counting on those who go for it.

        Args:
            pods: Of the unit, each with its seat.
        """
        found = self._found
        seats = [(pod, replace(pod.seat, choices=found[pod.uid].choices)) for pod in pods if pod.seat is not None]
        victims = {victim.uid: victim for pod in pods for victim in found[pod.uid].victims}
        return self.unproven(seats, list(victims.values()), beside={pod.uid for pod in pods})

    @cached_property
    def _excerpts(self) -> Excerpts:
        return Excerpts(self._world.desk.published(()))

    def _is_leaving(self, uid: str) -> bool:
        known = self._leaves.get(uid)
        if known is None:
            known = self._leaves[uid] = is_leaving(self._world, uid, self._going)
        return known


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
