"""Seats on one node, settled together: which are free, which wait for pods that leave, and who must go for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from binpack.books import Holding, holding_at
from binpack.dra.floor import NOTHING_TAKEN, Floor, Scene, Taken
from binpack.dra.wishes import Pending, Wish
from binpack.fit import refusal
from binpack.gangs.roll import key_of
from binpack.preemption.bonds import Asker, Bonds, no_crew
from binpack.preemption.choice import BudgetsOf, fewest
from binpack.tenants import Tenants
from fleet.dra import Allocation, ClaimChoice
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
        victims: Who must go, where it is HELD; those of other nodes included who go with them.
        choices: Devices for its claims, once it is FREE; nobody else's until then.
        detail: Why it is LOST.
    """

    pod: Pod
    seating: Seating
    victims: tuple[Pod, ...] = ()
    choices: tuple[ClaimChoice, ...] = ()
    detail: str = ""


def settle(
    floor: Floor,
    held: Mapping[str, Holding],
    tenants: Tenants,
    seats: Sequence[Pod],
    budgets_of: BudgetsOf,
    *,
    leaving: Collection[str] = (),
    may_break: bool = False,
    taken: Taken = NOTHING_TAKEN,
    bonds: Bonds | None = None,
) -> tuple[SeatStanding, ...]:
    """Return how all seats of one node stand, each counting on what the ones before it leave.

    The least important first: whoever stands in its way stands in the way of the more important, too, so each finds
    what was planned for it.

    Args:
        floor: The node, with what is kept for these seats apart.
        held: What pods really hold there, by uid; no seats.
        tenants: The pods behind that.
        seats: Gated pods with a seat on this node.
        budgets_of: The budgets that cover a pod.
        leaving: Pods made to go of which the watch does not show it yet, or that go for a seat of another node.
        may_break: Whether budgets may be broken where nothing else makes room.
        taken: What claims get by seats on other nodes, by uid: a gang may share one.
        bonds: Which of the pods are of use only together, and who of them goes for other seats; None = none are.
    """
    on_node = tenants.on(floor.node.name)
    gone = {uid for uid in held if uid in leaving or (uid in on_node and on_node[uid].is_terminating)}
    sums = _Sums(
        floor=floor,
        tenants=tenants,
        budgets_of=budgets_of,
        may_break=may_break,
        now=dict(held),
        later={uid: holding for uid, holding in held.items() if uid not in gone},
        gone=gone,
        taken=dict(taken),
        bonds=Bonds(no_crew) if bonds is None else bonds,
    )
    in_order = sorted(seats, key=lambda pod: (pod.priority, pod.created_at_s, pod.uid))
    return tuple(sums.stands(pod, pod.seat) for pod in in_order if pod.seat is not None)


@dataclass(slots=True, kw_only=True)
class _Sums:
    """One node while its seats are settled one after another.

    Attributes:
        now: What is held there, with the seats so far.
        later: The same without those who leave, or are made to go for the seats so far.
        gone: The uids of those.
        taken: What the claims of the seats so far are given, by uid.
    """

    floor: Floor
    tenants: Tenants
    budgets_of: BudgetsOf
    may_break: bool
    now: dict[str, Holding]
    later: dict[str, Holding]
    gone: set[str]
    taken: dict[str, Allocation]
    bonds: Bonds

    def stands(self, pod: Pod, seat: Berth) -> SeatStanding:
        """Return how one seat stands, and count on what it takes."""
        wish = self.floor.wish(pod)
        standing = self._judged(pod, seat, wish) if not isinstance(wish, Pending) else _lost(pod, wish.detail)
        self.bonds.spend(standing.victims)
        for victim in standing.victims:
            self.later.pop(victim.uid, None)
            self.gone.add(victim.uid)
        if standing.seating is not Seating.LOST:
            self.now[pod.uid] = self.later[pod.uid] = holding_at(pod, self.floor.node.name, seat.devices or None)
            self.taken |= {choice.claim_uid: choice.allocation for choice in standing.choices}
        return standing

    def _judged(self, pod: Pod, seat: Berth, wish: Wish | None) -> SeatStanding:
        floor = self.floor
        choices = self._choices(pod, seat, wish, floor.now(self.now.values(), self.taken))
        if choices is not None:
            return SeatStanding(pod=pod, seating=Seating.FREE, choices=choices)
        choices = self._choices(pod, seat, wish, self._after(()))
        if choices is not None:
            return SeatStanding(pod=pod, seating=Seating.LEAVING, choices=choices)
        below = [] if pod.never_preempts else self.tenants.below(floor.node.name, pod.priority)
        asker = Asker(priority=pod.priority, sharers=floor.sharers(pod), gang=key_of(pod))
        candidates = [one for one in below if self._may_go(one, asker)]
        victims = fewest(
            candidates,
            lambda uids: self._choices(pod, seat, wish, self._after(uids)) is not None,
            self.budgets_of,
            may_break=self.may_break,
            along=self.bonds.along_with(candidates, asker),
        )
        if victims is None:
            return _lost(pod, self._why_not(pod, seat, self._after(())))
        choices = self._choices(pod, seat, wish, self._after([victim.uid for victim in victims]))
        return SeatStanding(pod=pod, seating=Seating.HELD, victims=victims, choices=choices or ())

    def _may_go(self, tenant: Pod, asker: Asker) -> bool:
        is_there = tenant.uid in self.later and tenant.uid not in asker.sharers
        return is_there and self.bonds.may_go(tenant, asker)

    def _after(self, uids: Collection[str]) -> Scene:
        """Return the node once those who leave and these pods are gone."""
        staying = [holding for uid, holding in self.later.items() if uid not in uids]
        return self.floor.later(staying, self.gone | set(uids), self.taken)

    def _choices(self, pod: Pod, seat: Berth, wish: Wish | None, scene: Scene) -> tuple[ClaimChoice, ...] | None:
        """Return devices for the pod's claims where it could have exactly this berth; None = it could not."""
        if refusal(pod, seat, scene.state):
            return None
        return () if wish is None else self.floor.choices(wish, scene)

    def _why_not(self, pod: Pod, seat: Berth, scene: Scene) -> str:
        return refusal(pod, seat, scene.state) or "others hold the devices that its claims want"


def _lost(pod: Pod, why: str) -> SeatStanding:
    return SeatStanding(pod=pod, seating=Seating.LOST, detail=why)
