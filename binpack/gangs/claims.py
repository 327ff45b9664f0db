"""What the members of a gang want by resource claims, for the gang's search: exact, on the books of the desk.

The search books members one by one and takes them back. A device that its member holds by a claim is booked on the
desk meanwhile, so that whoever comes next, and whoever shares the claim, finds it. Members whose claims ask the same
are of one kind; nodes and devices that no claim of the gang can tell apart look alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

from binpack.dra.desk import Desk
from binpack.dra.pools import Cell, PoolId, Reach
from binpack.dra.shown import recorded_on, with_held
from binpack.dra.wants import Want, Way
from binpack.dra.wishes import MOST_RESERVERS, Pending
from binpack.state import NodeState
from fleet import labels
from fleet.dra import Allocation, ClaimChoice, DeviceId
from fleet.plan import Placement, Reason
from fleet.pod import Pod

# Ways to choose devices on one node that are looked at.
_MOST_WAYS: Final = 16
_CELLS_PER_STEP: Final = 4


def pending(desk: Desk, unit: Sequence[Pod]) -> Pending | None:
    """Return why the claims of a unit cannot be planned now; None = they can."""
    users = Counter[str]()
    for pod in unit:
        wish = desk.wish(pod) if pod.resource_claims else None
        if isinstance(wish, Pending):
            if wish.reason is not Reason.LEFT_TO_SCHEDULER:
                return Pending(wish.reason, f"member {pod.name}: {wish.detail}")
            text = f"member {pod.name}: {wish.detail}, so that only kube-scheduler could allocate it, pod by pod"
            return Pending(Reason.UNMODELLED_CONSTRAINT, text)
        users.update(claim.uid for claim in desk.claims_of(pod))
    members = {pod.uid for pod in unit}
    for uid, many in users.items():
        claim = desk.claims[uid]
        many += sum(one.uid not in members for one in claim.reserved_for)
        if many > MOST_RESERVERS:
            text = f"claim {claim.name} would be in use by {many} pods, and it may be by {MOST_RESERVERS}"
            return Pending(Reason.GANG_DOES_NOT_FIT, text)
    return None


def clashes(placements: Iterable[Placement]) -> bool:
    """Return True if a card that one member has by its claim is given to another by record."""
    claimed: set[tuple[str, str]] = set()
    recorded: set[tuple[str, str]] = set()
    for placement in placements:
        berth = placement.berth
        recorded.update((berth.node, device) for device in berth.devices)
        for choice in berth.choices:
            cards = (one for one in choice.allocation.results if one.driver.startswith(labels.DRA_GPU_DRIVERS))
            claimed.update((berth.node, card.device) for card in cards)
    return not claimed.isdisjoint(recorded)


@dataclass(slots=True, kw_only=True)
class _Known:
    """What does not change about a node's devices: which look alike to the gang's claims, by a number for each look.

    Attributes:
        reach: The devices that this is about.
        number_of: By device that some claim could have.
        own: Those of them that no other node reaches.
        pools: With counters on which devices here draw.
        common: What counts beside `own`.
    """

    reach: Reach
    number_of: dict[DeviceId, int] = field(default_factory=dict)
    own: list[tuple[Cell, int]] = field(default_factory=list)
    pools: tuple[PoolId, ...] = ()
    common: Hashable = None


def _joined(members: Sequence[Pod]) -> Pod:
    requests, claims = members[0].requests, {one.claim: one for one in members[0].resource_claims}
    for pod in members[1:]:
        requests += pod.requests
        claims |= {one.claim: one for one in pod.resource_claims}
    return replace(members[0], requests=requests, ask=None, resource_claims=tuple(claims.values()))


class GangClaims:
    """The claims of one gang's unit, all of which can be planned."""

    def __init__(self, desk: Desk, unit: Sequence[Pod]) -> None:
        """Read what the claims want, and which of them several members use."""
        self._desk = desk
        users = Counter(claim.uid for pod in unit for claim in desk.claims_of(pod))
        self._shared = {uid for uid, many in users.items() if many > 1}
        self._wants: dict[str, tuple[Want, ...]] = {}
        self._shared_by: dict[str, tuple[str, ...]] = {}
        self._ways: dict[Way, int] = {}
        attributes: set[str] = set()
        for pod in unit:
            wish = desk.wish(pod) if pod.resource_claims else None
            if wish is None or isinstance(wish, Pending):
                continue
            self._wants[pod.uid] = tuple(want for want in wish.wants if want.uid not in self._shared)
            self._shared_by[pod.uid] = tuple(want.uid for want in wish.wants if want.uid in self._shared)
            for want in wish.wants:
                attributes.update(one.attribute for one in want.constraints)
                for ways in want.ways:
                    for way in ways:
                        self._ways.setdefault(way, len(self._ways))
        self._attributes = tuple(sorted(attributes))
        # Cards that pods hold by record are nobody's by claim, so their names count where members do both.
        self._by_name = any(pod.ask is not None for pod in unit)
        self._taken: list[tuple[Sequence[ClaimChoice], NodeState]] = []
        self._bound: dict[str, Allocation] = {}
        self._numbers: dict[Hashable, int] = {}
        self._nodes: dict[str, _Known] = {}

    # -- members -----------------------------------------------------------------------------------------------

    def kind(self, pod: Pod) -> tuple[Hashable, ...]:
        """Return what members have in common whose claims are as good as each other's."""
        found: list[Hashable] = []
        for claim in self._desk.claims_of(pod) if pod.resource_claims else ():
            given = self._desk.allocation(claim)
            if given is not None:
                found.append((given.terms,))
            else:
                found.append(claim.uid if claim.uid in self._shared else claim.demand)
        return tuple(found)

    def as_one(self, unit: Sequence[Pod]) -> list[Pod]:
        """Return, for members that share claims which have no devices yet, a pod that asks what all of them ask.

        Where devices are a node's own, such members go to one node: it must have room for all of it.
        """
        groups: list[tuple[set[str], list[Pod]]] = []
        for pod in (pod for pod in unit if self._shared_by.get(pod.uid)):
            shared, members = set(self._shared_by[pod.uid]), [pod]
            for group in [group for group in groups if not group[0].isdisjoint(shared)]:
                groups.remove(group)
                shared, members = shared | group[0], [*group[1], *members]
            groups.append((shared, members))
        return [_joined(members) for _, members in groups]

    def most(self, pod: Pod, node: str, enough: int) -> int:
        """Return an upper limit of how many members like this one the node's devices can serve, `enough` at most."""
        if not self._reaches(pod, node):
            return 0
        needs, free = 0, set[DeviceId]()
        for want in self._wants.get(pod.uid, ()):
            for ways in want.ways:
                if any(way.option.is_admin for way in ways):
                    continue
                needs += min(max(1, way.option.count) for way in ways)
                for cell in (cell for way in ways for cell in self._desk.suitable(node, way)):
                    if cell.device.is_multiple or cell.where.node != node:
                        return enough  # it serves more than one, or other nodes as well
                    if not self._desk.books.is_held(cell.id):
                        free.add(cell.id)
        return min(enough, len(free) // needs) if needs else enough

    def _reaches(self, pod: Pod, node: str) -> bool:
        """Return False where a claim of the pod has devices already, and the node does not reach them."""
        node_labels = self._desk.pools.labels(node)
        allocations = [claim.allocation for claim in self._desk.claims_of(pod)] if pod.resource_claims else []
        return all(one is None or one.reaches(node, node_labels) for one in allocations)

    # -- nodes -------------------------------------------------------------------------------------------------

    def looks(self, node: str) -> Hashable:
        """Return everything that counts of a node's devices for these claims, as they are now."""
        books, known = self._desk.books, self._known(node)
        cards: Counter[Hashable] = Counter()
        for cell, look in known.own:
            if books.is_held(cell.id):
                cards[look, books.is_whole_held(cell.id), frozenset(books.consumed(cell.id).items())] += 1
            else:
                cards[look] += 1
        drawn = tuple(frozenset(books.counters(pool_id).items()) for pool_id in known.pools)
        return frozenset(cards.items()), drawn, known.common

    def bound(self, node: str) -> tuple[bool, ...]:
        """Return which of the shared claims that were given devices in the search can be used on the node."""
        if not self._bound:
            return ()
        node_labels = self._desk.pools.labels(node)
        return tuple(one.reaches(node, node_labels) for _, one in sorted(self._bound.items(), key=itemgetter(0)))

    def is_bound(self, pod: Pod) -> bool:
        """Return True if a claim that the pod shares was given devices in the search."""
        return any(uid in self._bound for uid in self._shared_by.get(pod.uid, ()))

    def is_open(self, pod: Pod, node: str) -> bool:
        """Return True if the node reaches what the claims that the pod shares were given in the search."""
        node_labels = self._desk.pools.labels(node)
        given = (self._bound.get(uid) for uid in self._shared_by.get(pod.uid, ()))
        return all(one is None or one.reaches(node, node_labels) for one in given)

    @property
    def has_just_bound(self) -> bool:
        """Return True if the last member taken was the first of those who share a claim."""
        return bool(self._taken) and any(choice.claim_uid in self._shared for choice in self._taken[-1][0])

    def ways(self, pod: Pod, node: str) -> tuple[tuple[tuple[ClaimChoice, ...], ...], bool]:
        """Return the choices of devices for a member that differ in what they leave, and whether these are all."""
        if not pod.resource_claims:
            return ((),), True
        wish = self._desk.wish(pod)
        if isinstance(wish, Pending):
            return (), True
        numbers = self._known(node).number_of
        found = self._desk.each(node, wish, lambda cell: numbers.get(cell.id, cell.id), _MOST_WAYS)
        return found.choices, found.is_all

    def cards(self, node: str) -> dict[str, int]:
        """Return by id which of a node's cards look how to claims, where members hold cards by record, too."""
        if not self._by_name:
            return {}
        numbers = self._known(node).number_of
        return {name: n for (driver, _, name), n in numbers.items() if driver.startswith(labels.DRA_GPU_DRIVERS)}

    def steps(self, node: str) -> int:
        """Return what a member costs the search on a node, in steps of a member without claims."""
        return 1 + len(self._desk.pools.reach(node).cells) // _CELLS_PER_STEP

    def _known(self, node: str) -> _Known:
        """Return what does not change about a node's devices while they are the same."""
        reach = self._desk.pools.reach(node)
        known = self._nodes.get(node)
        if known is None or known.reach is not reach:
            known = self._nodes[node] = self._looked_at(node, reach)
        return known

    def _looked_at(self, node: str, reach: Reach) -> _Known:
        fits: dict[DeviceId, list[int]] = {}
        for way, number in self._ways.items():
            for cell in self._desk.suitable(node, way):
                fits.setdefault(cell.id, []).append(number)
        known = _Known(reach=reach)
        common: Counter[int] = Counter()
        places: dict[PoolId, int] = {}
        for cell in reach.cells:
            device = cell.device
            if device.uses:
                places.setdefault(cell.pool.id, len(places))
            if cell.id not in fits:
                continue
            values = [device.attributes.get(one) for one in self._attributes]
            is_own = cell.where.node == node
            is_card = self._by_name and cell.id[0].startswith(labels.DRA_GPU_DRIVERS)
            look = (
                tuple(fits[cell.id]),
                tuple((type(value).__name__, value) for value in values),
                device.is_multiple,
                tuple(sorted((name, one.value) for name, one in device.capacity.items())),
                (places[cell.pool.id], device.uses) if device.uses else (),
                (cell.id[2] if is_card else "") if is_own else cell.id,
            )
            number = known.number_of[cell.id] = self._numbers.setdefault(look, len(self._numbers))
            if is_own:
                known.own.append((cell, number))
            else:
                common[number] += 1  # it is in the same state for all who reach it
        known.pools = tuple(places)
        totals = tuple(
            frozenset((name, frozenset(amounts.items())) for name, amounts in pool.counters.items())
            for pool in (self._desk.pools.pool(pool_id) for pool_id in places)
            if pool is not None
        )
        known.common = (frozenset(common.items()), totals)
        return known

    # -- books -------------------------------------------------------------------------------------------------

    def take(self, choices: Sequence[ClaimChoice], before: NodeState, after: NodeState) -> NodeState:
        """Book a member's devices.

        Args:
            choices: For its claims.
            before: Its node without it.
            after: Its node with everything else of it booked.

        Returns:
            The node, with the cards in use that its claims have.
        """
        self._taken.append((choices, before))
        self._bound |= {one.claim_uid: one.allocation for one in choices if one.claim_uid in self._shared}
        self._desk.take(choices)
        self._record(after)
        return with_held(after, self._desk.held_on(after.node.name)) if self._by_name else after

    def give_back(self) -> None:
        """Undo the last `take`."""
        choices, before = self._taken.pop()
        for choice in choices:
            self._bound.pop(choice.claim_uid, None)
        self._desk.give_back(choices)
        self._record(before)

    def give_all_back(self) -> None:
        """Undo whatever is taken."""
        while self._taken:
            self.give_back()

    def _record(self, state: NodeState) -> None:
        if self._by_name and state.node.is_sharing:
            held = self._desk.held_on(state.node.name)
            recorded = [one for one in recorded_on(state) if one not in held]
            self._desk.set_node(state.node.name, state.node.labels, recorded)
