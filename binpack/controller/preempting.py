"""Gangs, seats and preemption, read out of the planner's world: what is decided about them, and nothing done. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from binpack.books import Holding
from binpack.check import check
from binpack.controller.crews import crew_of
from binpack.controller.proof import Proofs, is_leaving
from binpack.controller.shares import standing_of
from binpack.controller.waiting import CAPACITY
from binpack.controller.world import World
from binpack.dra.desk import Desk
from binpack.dra.floor import Floor
from binpack.dra.pools import PoolId
from binpack.gangs.place import Effort, Refusal, place
from binpack.gangs.roll import Key
from binpack.preemption.bonds import Bonds, Crew
from binpack.preemption.choice import BudgetsOf
from binpack.preemption.propose import Proposal, propose
from binpack.preemption.seats import SeatStanding, settle
from binpack.tenants import Tenants, node_of
from fleet.dra import Allocation, ClaimChoice
from fleet.node import Node
from fleet.plan import Placement, Plan, Reason, Unplaced, Violation
from fleet.pod import Pod

_EFFORT: Final = Effort(steps=2_500)  # other pods wait meanwhile
_MOST_AT_ONCE: Final = 4096  # members: about as many as are placed in the time after which a leader is given up
_MOST_KINDS_TO_PREEMPT: Final = 8  # every kind looks at every node
_MOST_TO_PREEMPT: Final = 256  # members


class WorldView:
    """The cluster as a proposal needs it: without those who leave, without nodes that keep seats or claims."""

    def __init__(self, world: World, now_s: float) -> None:
        self.tenants: Tenants = world.tenants
        self.desk: Desk = world.desk
        self._world = world
        self._going = world.together.going(now_s)
        self._taken = world.together.seats_by_node()
        self._now_s = now_s

    def open_nodes(self) -> Iterator[str]:
        """Return the nodes that may be planned on and keep no seat yet."""
        for name in self._world.ledger.known():
            is_shunned = self._world.together.is_shunned(name, self._now_s)
            if name not in self._taken and not is_shunned and self.open_node(name) is not None:
                yield name

    def open_node(self, name: str) -> Node | None:
        """Return a node as pods see it that may be planned there; warm ones are drawn, not emptied."""
        state = self._world.node(name)
        if state is None or state.blocked or self._world.yard.is_warm(name):
            return None
        return state.node

    def staying(self, name: str) -> Mapping[str, Holding]:
        """Return what is held on a node by uid, without those who leave already."""
        tenants = self.tenants.on(name)
        return {
            uid: holding
            for uid, holding in self._world.ledger.holdings_on(name).items()
            if uid not in self._going and not (uid in tenants and tenants[uid].is_terminating)
        }

    def leaves(self, uid: str) -> bool:
        """Return True if a pod leaves already, or is gone."""
        return is_leaving(self._world, uid, self._going)

    def allows(self, pod: Pod, name: str) -> bool:
        """Return True if no rule between pods forbids the node as it is now."""
        return self._world.is_welcome(pod, name)

    def crew(self, pod: Pod) -> Crew | None:
        """Return what runs of a pod's gang; None where the pod needs nobody else and nobody needs it."""
        return crew_of(self._world, pod, self._going)


def gangs_due(world: World, now_s: float) -> list[Key]:
    """Return the gangs to try now: by priority, then by what their namespaces hold over their weights, then by age."""
    ranked: list[tuple[int, float, float, Key]] = []
    standing = standing_of(world) if world.weights and world.together.due else None
    for key in world.together.due:
        unit = world.together.roll.standing(key).unit
        # Seats that are kept already are taken back first, where they are not to be pinned.
        is_busy = any(pod.uid in world.away or pod.seat is not None for pod in unit)
        if unit and not is_busy and not world.together.rests(key, now_s):
            share = 0.0 if standing is None else standing.share(key[0])
            ranked.append((-min(pod.priority for pod in unit), share, min(pod.created_at_s for pod in unit), key))
    return [key for *_, key in sorted(ranked)]


def plan_gang(world: World, unit: Sequence[Pod]) -> tuple[tuple[Placement, ...] | Refusal, tuple[Violation, ...]]:
    """Return berths for all of a gang's unit, verified, or why there are none, and what was wrong with them."""
    if len(unit) > _MOST_AT_ONCE:
        text = f"{len(unit)} members would have to be placed at once, and more than {_MOST_AT_ONCE} are not"
        return _refused(unit, Reason.GANG_DOES_NOT_FIT, text), ()
    answer = place(world.index, world.node, unit, _EFFORT)
    if isinstance(answer, Refusal):
        return answer, ()
    states = world.states({placement.berth.node for placement in answer})
    plan = Plan(placements=answer)
    wrong = check(states, unit, plan, together=[{pod.uid for pod in unit}], register=world.register)
    wrong += world.desk.violations(plan, unit)
    if not wrong:
        return answer, ()
    text = f"no way was found that holds: {wrong[0].rule}"
    return _refused(unit, Reason.GANG_DOES_NOT_FIT, text), wrong


def _refused(unit: Sequence[Pod], reason: Reason, text: str) -> Refusal:
    unplaced = tuple(Unplaced(pod_uid=pod.uid, reason=reason, detail=text) for pod in unit)
    return Refusal(unplaced=unplaced, fitted=0, is_proven=False)


def preemptors(world: World, now_s: float) -> Iterator[tuple[Pod, ...]]:
    """Yield the pods and gangs that wait for room and might make others go: the most urgent, the oldest first."""
    units: list[tuple[int, float, str, tuple[Pod, ...]]] = []
    for uid, pod in world.pods.items():
        record = world.waiting.get(uid)
        if record is None or record.reason not in CAPACITY or uid in world.away or uid in world.queue:
            continue
        if pod.never_preempts:
            continue
        if not world.together.rests(("preempt", (pod.namespace, pod.gang)) if pod.gang else uid, now_s):
            units.append((-pod.priority, pod.created_at_s, uid, (pod,)))
    for key in world.together.without_room - world.together.due:
        unit = world.together.roll.standing(key).unit
        if not unit or world.together.rests(("preempt", key), now_s):
            continue
        if not any(pod.never_preempts or pod.uid in world.away for pod in unit):
            urgency, age_s = min(pod.priority for pod in unit), min(pod.created_at_s for pod in unit)
            units.append((-urgency, age_s, unit[0].uid, unit))
    for *_, unit in sorted(units, key=lambda one: one[:3]):
        yield unit


def has_lesser_tenants(world: World, priority: int) -> bool:
    """Return True if anybody less important holds anything: only then can preemption help."""
    return world.tenants.least_priority < priority


def seat_by_preemption(
    world: World, unit: Sequence[Pod], budgets_of: BudgetsOf, now_s: float, *, may_break: bool
) -> tuple[Proposal | None, tuple[Violation, ...]]:
    """Return seats for the unit, verified, with the fewest others to go, and what was wrong with them.

    None where there is no way, it takes too long, or what was found does not hold.
    """
    kinds = {(pod.requests, pod.ask, pod.constraints, pod.guest) for pod in unit}
    if len(unit) > _MOST_TO_PREEMPT or len(kinds) > _MOST_KINDS_TO_PREEMPT:
        return None, ()
    view = WorldView(world, now_s)
    proposal = propose(unit, view, budgets_of, may_break=may_break)
    if proposal is None:
        return None, ()
    wrong = Proofs(world, world.together.going(now_s)).unproven(proposal.seats, proposal.victims)
    return (None if wrong else proposal), wrong


def unlisted(world: World) -> frozenset[str]:
    """Return the seats on nodes of which it is not known yet what a seat's claims hold there, by the uid of the pod."""
    if world.desk.is_synced:
        return frozenset()
    by_node = world.together.seats_by_node().values()
    beside = [pods for pods in by_node if any(pod.resource_claims for pod in pods)]
    return frozenset(pod.uid for pods in beside for pod in pods)


def seat_standings(
    world: World, budgets_of: BudgetsOf, now_s: float, *, may_break: bool, apart: Collection[str] = ()
) -> dict[str, SeatStanding]:
    """Return how every seat stands, by the uid of its pod; seats on nodes that are gone are left out.

    Nodes from which gangs go that are on other nodes, too, come first: nobody else leaves for what that frees there.

    Args:
        world: The planner's.
        budgets_of: The budgets that cover a pod.
        now_s: Monotonic time.
        may_break: Whether budgets may be broken where nothing else makes room.
        apart: Uids of pods whose seats' nodes are left out.
    """
    all_nodes = world.together.seats_by_node()
    by_node = {name: pods for name, pods in all_nodes.items() if not any(pod.uid in apart for pod in pods)}
    found = _settled(world, by_node, budgets_of, now_s, may_break=may_break)
    first = {node for one in found.values() if (node := _takes_along(one))}
    if not first or len(by_node) == 1:
        return found
    in_order = {name: by_node[name] for name in sorted(by_node, key=lambda name: name not in first)}
    return _settled(world, in_order, budgets_of, now_s, may_break=may_break)


def _settled(
    world: World, by_node: Mapping[str, Sequence[Pod]], budgets_of: BudgetsOf, now_s: float, *, may_break: bool
) -> dict[str, SeatStanding]:
    found: dict[str, SeatStanding] = {}
    taken = _Taken(world.desk)
    going = world.together.going(now_s)
    bonds = Bonds(lambda pod: crew_of(world, pod, going))
    chosen = set(going)
    for name, pods in by_node.items():
        state = world.node(name)
        if state is None:
            continue
        mine = {pod.uid for pod in pods}
        held = {uid: holding for uid, holding in world.ledger.holdings_on(name).items() if uid not in mine}
        leaving = frozenset(chosen)
        floor = Floor(state.node, world.desk, leaves=partial(is_leaving, world, going=leaving), apart=mine)
        standings = settle(
            floor,
            held,
            world.tenants,
            pods,
            budgets_of,
            leaving=leaving,
            may_break=may_break,
            taken=taken.of(name, pods),
            bonds=bonds,
        )
        for standing in standings:
            found[standing.pod.uid] = standing
            taken.add(standing.choices)
            chosen.update(victim.uid for victim in standing.victims if node_of(victim) != name)
    return found


class _Taken:
    """What claims get by seats, found by where it matters: there may be seats on thousands of nodes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._by_claim: dict[str, Allocation] = {}
        self._in_pool: dict[PoolId, dict[str, Allocation]] = {}

    def add(self, choices: Sequence[ClaimChoice]) -> None:
        """Count what a seat's claims get."""
        for choice in choices:
            self._by_claim[choice.claim_uid] = choice.allocation
            for result in choice.allocation.results:
                self._in_pool.setdefault(result.id[:2], {})[choice.claim_uid] = choice.allocation

    def of(self, node: str, pods: Sequence[Pod]) -> dict[str, Allocation]:
        """Return what claims of these pods got, and whoever got devices of a pool that the node reaches."""
        found: dict[str, Allocation] = {}
        if not self._by_claim:
            return found
        for pool in {cell.id[:2] for cell in self._desk.pools.reach(node).cells}:
            found |= self._in_pool.get(pool, {})
        own = {claim.uid for pod in pods for claim in self._desk.claims_of(pod)}
        return found | {uid: self._by_claim[uid] for uid in own if uid in self._by_claim}


def _takes_along(standing: SeatStanding) -> str:
    """Return the node of a seat for which pods of other nodes go as well; "" = none do."""
    seat = standing.pod.seat
    here = "" if seat is None else seat.node
    return here if any(node_of(victim) != here for victim in standing.victims) else ""


def keep_devices(world: World, standings: Mapping[str, SeatStanding]) -> None:
    """Keep for every seat the devices that its pod's claims are to have, from nobody who has them now."""
    for uid, standing in standings.items():
        if uid not in world.away:
            world.desk.keep(uid, standing.choices)
