"""What the members of a gang want by resource claims, for the gang's search: exact, on the books of the desk.

The search books members one by one and takes them back. A device that its member holds by a claim is booked on the
desk meanwhile, so that whoever comes next, and whoever shares the claim, finds it. Members whose claims ask the same
are of one kind; nodes and devices that no claim of the gang can tell apart look alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from binpack.dra.desk import Desk
from binpack.dra.shown import recorded_on, with_held
from binpack.dra.wants import Want, Way
from binpack.dra.wishes import MOST_RESERVERS, Pending
from binpack.gangs.alike import Alike
from binpack.state import NodeState
from fleet import labels
from fleet.dra import Allocation, ClaimChoice, DeviceId
from fleet.plan import Placement, Reason
from fleet.pod import Pod

# Ways to choose devices on one node that are looked at.
_MOST_WAYS: Final = 16


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


def _joined(members: Sequence[Pod]) -> Pod:
    requests, claims = members[0].requests, {one.claim: one for one in members[0].resource_claims}
    for pod in members[1:]:
        requests += pod.requests
        claims |= {one.claim: one for one in pod.resource_claims}
    return replace(members[0], requests=requests, ask=None, resource_claims=tuple(claims.values()))


def _counted(want: Want) -> list[tuple[Way, ...]]:
    """Return the requests of a claim that take devices: access as an administrator takes none."""
    return [ways for ways in want.ways if not any(way.option.is_admin for way in ways)]


def _fewest(ways: Sequence[Way]) -> int:
    return min(max(1, way.option.count) for way in ways)


class GangClaims:
    """The claims of one gang's unit, all of which can be planned.

    Attributes:
        alike: Tells the search which nodes and devices are as good as each other.
    """

    def __init__(self, desk: Desk, unit: Sequence[Pod]) -> None:
        """Read what the claims want, and which of them several members use."""
        self._desk = desk
        users = Counter(claim.uid for pod in unit for claim in desk.claims_of(pod))
        self._shared = {uid for uid, many in users.items() if many > 1}
        self._wants: dict[str, tuple[Want, ...]] = {}
        self._shared_wants: dict[str, Want] = {}
        self._shared_by: dict[str, tuple[str, ...]] = {}
        numbers: dict[Way, int] = {}
        attributes: set[str] = set()
        for pod in unit:
            wish = desk.wish(pod) if pod.resource_claims else None
            if wish is None or isinstance(wish, Pending):
                continue
            self._wants[pod.uid] = tuple(want for want in wish.wants if want.uid not in self._shared)
            self._shared_wants |= {want.uid: want for want in wish.wants if want.uid in self._shared}
            self._shared_by[pod.uid] = tuple(want.uid for want in wish.wants if want.uid in self._shared)
            for want in wish.wants:
                attributes.update(one.attribute for one in want.constraints)
                for ways in want.ways:
                    for way in ways:
                        numbers.setdefault(way, len(numbers))
        # Cards that pods hold by record are nobody's by claim, so their names count where members do both.
        self._by_name = any(pod.ask is not None for pod in unit)
        self._taken: list[tuple[Sequence[ClaimChoice], NodeState]] = []
        self._bound: dict[str, Allocation] = {}
        self.alike = Alike(desk, numbers, sorted(attributes), by_name=self._by_name)

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
            for ways in _counted(want):
                needs += _fewest(ways)
                for cell in (cell for way in ways for cell in self._desk.suitable(node, way)):
                    if cell.device.is_multiple or cell.where.node != node:
                        return enough  # it serves more than one, or other nodes as well
                    if not self._desk.books.is_held(cell.id):
                        free.add(cell.id)
        return min(enough, len(free) // needs) if needs else enough

    def sums(self, nodes: Iterable[str]) -> tuple[int, int]:
        """Return how many devices the claims still ask, a shared claim once, and how many such are free on nodes.

        A request of several ways, or for all devices, counts with the fewest that it may get; a device that several
        claims may have is free while none has any of it.
        """
        wants = [*self._shared_wants.values(), *(want for own in self._wants.values() for want in own)]
        requests = [ways for want in wants for ways in _counted(want)]
        looked_for = {way for ways in requests for way in ways}
        free = {
            cell.id
            for node in nodes
            for way in looked_for
            for cell in self._desk.suitable(node, way)
            if not self._desk.books.is_held(cell.id)
        }
        return sum(map(_fewest, requests)), len(free)

    def _reaches(self, pod: Pod, node: str) -> bool:
        """Return False where a claim of the pod has devices already, and the node does not reach them."""
        node_labels = self._desk.pools.labels(node)
        allocations = [claim.allocation for claim in self._desk.claims_of(pod)] if pod.resource_claims else []
        return all(one is None or one.reaches(node, node_labels) for one in allocations)

    # -- nodes -------------------------------------------------------------------------------------------------

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
        numbers = self.alike.numbers(node)
        found = self._desk.each(node, wish, lambda cell: numbers.get(cell.id, cell.id), _MOST_WAYS)
        return found.choices, found.is_all

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
