"""A seat for a pod that waits, or for a whole gang: where the fewest others must go for it. Nobody goes without one.

A node is considered only with the devices that its pieces really make: the pod is fitted beside what would be left, by
the definition of feasible (`binpack.fit`), the ledger's own arithmetic (`binpack.books`) and, where claims hold devices
or are to, the choice of devices that every claim is given by (`binpack.dra.floor`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from binpack.books import Holding, holding_at
from binpack.demand import hardest_first
from binpack.dra.choose import Refused
from binpack.dra.desk import Desk
from binpack.dra.floor import Floor
from binpack.dra.wishes import Pending, Wish
from binpack.fit import devices_for, mismatch, serves
from binpack.gangs.roll import Key, key_of
from binpack.preemption.bonds import Asker, Bonds, Crew
from binpack.preemption.choice import Along, BudgetsOf, Fits, Price, fewest, price, spared
from binpack.tenants import Tenants, node_of
from fleet.device import WHOLE_MILLI
from fleet.dra import Allocation, ClaimChoice
from fleet.node import Node
from fleet.pod import Berth, Pod

# Nodes on which it is worked out who could stay, the nearest to fitting first, and those gone through set by set.
_MOST_NODES: Final = 256
_MOST_CLOSELY: Final = 8
# Holdings summed up for one unit, in either way of looking: half a second each, and everybody else waits meanwhile.
_MOST_SUMMED: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Seats for all pods of a unit, and who must go for them.

    Attributes:
        seats: (pod, berth) of every member.
        victims: Who must go, those of other nodes included who are of no use without one of them; empty where it is
            enough to wait for pods that leave already.
    """

    seats: tuple[tuple[Pod, Berth], ...]
    victims: tuple[Pod, ...]


class View(Protocol):
    """The cluster as a proposal needs it."""

    tenants: Tenants
    desk: Desk

    def open_nodes(self) -> Iterable[str]:
        """Return the nodes that may be planned on and keep no seat yet."""
        ...

    def open_node(self, name: str) -> Node | None:
        """Return a node as pods see it that may be planned there."""
        ...

    def staying(self, name: str) -> Mapping[str, Holding]:
        """Return what is held on a node by uid, without those who leave already."""
        ...

    def leaves(self, uid: str) -> bool:
        """Return True if a pod leaves already, or is gone."""
        ...

    def allows(self, pod: Pod, name: str) -> bool:
        """Return True if no rule between pods forbids the node as it is now."""
        ...

    def crew(self, pod: Pod) -> Crew | None:
        """Return what runs of a pod's gang; None where the pod needs nobody else and nobody needs it."""
        ...


def propose(unit: Sequence[Pod], view: View, budgets_of: BudgetsOf, *, may_break: bool = False) -> Proposal | None:
    """Return seats for all pods of the unit, with the fewest pods to go for each; None where there is no way.

    Args:
        unit: One pod, or the members of a gang; the least important of them decides who may be made to go.
        view: The cluster now.
        budgets_of: The budgets that cover a pod.
        may_break: Whether budgets may be broken where nothing else makes room.
    """
    if any(pod.never_preempts or pod.problems for pod in unit):
        return None
    if len(unit) > 1 and any(pod.guest.has_rules for pod in unit):
        return None  # rules between its own members are not weighed here
    found = _seated(unit, view, budgets_of, (), may_break=may_break)
    if found is None or len(unit) == 1:
        return found
    # What a gang that goes for the last seat frees on many nodes may spare those who were to go for the first.
    along = [pod for pod in found.victims if pod.gang]
    again = _seated(unit, view, budgets_of, along, may_break=may_break) if len(along) > 1 else None
    if again is None or price(again.victims, budgets_of) >= price(found.victims, budgets_of):
        return found
    return again


def _seated(
    unit: Sequence[Pod], view: View, budgets_of: BudgetsOf, gone: Sequence[Pod], *, may_break: bool
) -> Proposal | None:
    """Return seats for all pods of the unit where these pods go in any case; None where there is no way."""
    search = _Search(view, budgets_of, min(pod.priority for pod in unit), may_break=may_break)
    search.leave(gone)
    for pod in sorted(unit, key=hardest_first):
        if not search.seat(pod):
            return None
    return Proposal(seats=tuple(search.seats), victims=tuple(search.victims))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    devices: tuple[str, ...]
    choices: tuple[ClaimChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    node: str
    seat: _Seat
    victims: tuple[Pod, ...]
    price: Price


def _shortage(pod: Pod, node: Node, holdings: Iterable[Holding]) -> int:
    """Return how far the node is from having room now, milli-GPU and milli-CPU in one sum: to try the nearest first."""
    milli_cpu = node.allocatable.milli_cpu - pod.requests.milli_cpu
    milli_gpu = WHOLE_MILLI * len(node.devices) - (pod.ask.total_milli_gpu if pod.ask is not None else 0)
    for holding in holdings:
        milli_cpu -= holding.requests.milli_cpu
        milli_gpu -= holding.ask.total_milli_gpu if holding.ask is not None else 0
    return max(0, -milli_cpu) + max(0, -milli_gpu)


_Choose = Callable[[Sequence[Pod], Fits, Along], tuple[Pod, ...] | None]


class _Search:
    """The cluster while a unit is being seated."""

    def __init__(self, view: View, budgets_of: BudgetsOf, priority: int, *, may_break: bool) -> None:
        self.seats: list[tuple[Pod, Berth]] = []
        self.victims: list[Pod] = []
        self._view = view
        self._budgets_of = budgets_of
        self._bonds = Bonds(view.crew)
        self._priority = priority
        self._may_break = may_break
        self._names = sorted(view.open_nodes())
        self._floors: dict[str, Floor] = {}
        self._taken: dict[str, Allocation] = {}
        self._wish: Wish | None = None
        self._asker = Asker(priority=priority, sharers=frozenset(), gang=None)
        self._changed: dict[str, dict[str, Holding]] = {}
        self._known: dict[tuple[object, ...], dict[str, _Offer]] = {}
        self._stale: dict[tuple[object, ...], set[str]] = {}
        self._summed = 0
        self._left_rough = self._left_closely = _MOST_SUMMED

    def seat(self, pod: Pod) -> bool:
        """Seat one pod where it costs least; False where it cannot be seated."""
        wish = self._view.desk.wish(pod) if pod.resource_claims else None
        if isinstance(wish, Pending):
            return False
        self._wish = wish
        self._asker = Asker(priority=self._priority, sharers=self._view.desk.sharers(pod), gang=key_of(pod))
        rough = sorted(self._offers(pod), key=lambda offer: (offer.price, offer.node))
        offers: list[_Offer] = []
        for place, offer in enumerate(rough):
            if place < _MOST_CLOSELY and self._left_closely > 0:
                exact = self._closely(pod, offer)
                offers += [exact] if exact is not None else []
            elif self._may_break or not offer.price[0]:
                offers.append(offer)
        if not offers:
            return False
        best = min(offers, key=lambda offer: (offer.price, offer.node))
        berth = self._berth(pod, best)
        self._taken |= {choice.claim_uid: choice.allocation for choice in berth.choices}
        self.leave(best.victims)
        self._changed[best.node] = {
            **self._held(best.node),
            pod.uid: holding_at(pod, best.node, berth.devices or None),
        }
        self._outdate({best.node, *map(node_of, best.victims)}, {key for one in best.victims if (key := key_of(one))})
        self.seats.append((pod, berth))
        return True

    def leave(self, victims: Sequence[Pod]) -> None:
        """Count these as gone."""
        for name in {node_of(victim) for victim in victims}:
            self._changed[name] = dict(self._held(name))
        for victim in victims:
            self._changed[node_of(victim)].pop(victim.uid, None)
        self._bonds.leave(victims)
        self.victims += victims

    def _outdate(self, names: set[str], gangs: set[Key]) -> None:
        """Have offers looked at again: of nodes that changed, and where members of these gangs would go."""
        for kind, offers in self._known.items():
            old = names | {
                name for name, one in offers.items() if gangs and any(key_of(pod) in gangs for pod in one.victims)
            }
            for name in old:
                offers.pop(name, None)
            self._stale[kind] |= old

    def _berth(self, pod: Pod, offer: _Offer) -> Berth:
        """Return the berth of an offer with devices for this pod's own claims: it may have been made to one like it."""
        node, seat = self._view.open_node(offer.node), offer.seat
        if self._wish is not None and node is not None:
            gone = {victim.uid for victim in offer.victims}
            seat = self._seat(pod, node, self._held(offer.node), gone) or seat
        return Berth(node=offer.node, devices=seat.devices, choices=seat.choices)

    def _held(self, name: str) -> Mapping[str, Holding]:
        return self._changed[name] if name in self._changed else self._view.staying(name)

    def _offers(self, pod: Pod) -> list[_Offer]:
        """Return what `_rough` does; for pods of one kind only nodes that changed since are looked at again."""
        kind = (pod.requests, pod.ask, pod.constraints, pod.guest, self._wish.key if self._wish is not None else ())
        known = self._known.get(kind)
        if known:
            for name in sorted(self._stale[kind]):
                offer = self._offer(pod, name, self._spared) if self._may_go(pod, name) else None
                if offer is not None:
                    known[name] = offer
        self._stale[kind] = set()
        if not known:
            known = self._known[kind] = {offer.node: offer for offer in self._rough(pod)}
        # What went meanwhile has used up budgets.
        return [replace(one, price=price(one.victims, self._budgets_of, self.victims)) for one in known.values()]

    def _may_go(self, pod: Pod, name: str) -> bool:
        node = self._view.open_node(name)
        if node is None or (pod.ask is not None and not serves(pod.ask, node)) or mismatch(pod, node) is not None:
            return False
        return self._view.allows(pod, name)

    def _rough(self, pod: Pod) -> list[_Offer]:
        """Return offers of the nodes nearest to fitting, with nobody to go who could stay."""
        near: list[tuple[int, str]] = []
        for name in self._names:
            node = self._view.open_node(name)
            if node is None or not self._may_go(pod, name):
                continue
            held = self._held(name)
            going = {victim.uid for victim in self._below(name)}
            if self._seat(pod, node, held, going) is not None:
                near.append((_shortage(pod, node, held.values()) + self._lacking(node, held), name))
        offers: list[_Offer] = []
        before = self._summed
        for _, name in sorted(near)[:_MOST_NODES]:
            if self._summed - before > self._left_rough and len(offers) >= _MOST_CLOSELY:
                break
            offer = self._offer(pod, name, self._spared)
            offers += [offer] if offer is not None else []
        self._left_rough -= self._summed - before
        return offers

    def _closely(self, pod: Pod, rough: _Offer) -> _Offer | None:
        before = self._summed
        found = self._offer(pod, rough.node, self._fewest)
        self._left_closely -= self._summed - before
        return found

    def _spared(self, candidates: Sequence[Pod], fits: Fits, along: Along) -> tuple[Pod, ...] | None:
        found = spared(candidates, fits, self._budgets_of, gone=self.victims, along=along)
        return self._fewest(candidates, fits, along) if found is None else found

    def _fewest(self, candidates: Sequence[Pod], fits: Fits, along: Along) -> tuple[Pod, ...] | None:
        may_break = self._may_break
        return fewest(candidates, fits, self._budgets_of, gone=self.victims, may_break=may_break, along=along)

    def _offer(self, pod: Pod, name: str, choose: _Choose) -> _Offer | None:
        node = self._view.open_node(name)
        if node is None:
            return None
        held = self._held(name)
        candidates = [one for one in self._below(name) if one.uid in held]
        along = self._bonds.along_with(candidates, self._asker)
        victims = choose(candidates, lambda uids: self._seat(pod, node, held, set(uids)) is not None, along)
        if victims is None:
            return None
        seat = self._seat(pod, node, held, {victim.uid for victim in victims})
        if seat is None:
            return None
        cost = price(victims, self._budgets_of, self.victims)
        return _Offer(node=name, seat=seat, victims=victims, price=cost)

    def _below(self, name: str) -> list[Pod]:
        """Return who may be made to go; nobody who shares a claim with the pod, for its devices would go with him."""
        asker, bonds = self._asker, self._bonds
        below = self._view.tenants.below(name, self._priority)
        return [one for one in below if one.uid not in asker.sharers and bonds.may_go(one, asker)]

    def _floor(self, node: Node) -> Floor:
        floor = self._floors.get(node.name)
        if floor is None:
            floor = self._floors[node.name] = Floor(node, self._view.desk, leaves=self._view.leaves)
        return floor

    def _seat(self, pod: Pod, node: Node, held: Mapping[str, Holding], uids: set[str]) -> _Seat | None:
        """Return what the pod would get once these pods are gone; None where that makes no room."""
        floor = self._floor(node)
        self._summed += len(held) + floor.width
        gone = uids | {victim.uid for victim in self.victims}
        scene = floor.later([holding for uid, holding in held.items() if uid not in uids], gone, self._taken)
        devices = devices_for(pod, scene.state)
        if devices is None:
            return None
        choices = floor.choices(self._wish, scene) if self._wish is not None else ()
        return None if choices is None else _Seat(devices=devices, choices=choices)

    def _lacking(self, node: Node, held: Mapping[str, Holding]) -> int:
        """Return how many milli-devices the node lacks for the claims now."""
        if self._wish is None:
            return 0
        floor = self._floor(node)
        scene = floor.later(list(held.values()), {victim.uid for victim in self.victims}, self._taken)
        answer = self._view.desk.offer(node.name, self._wish, scene.books)
        return WHOLE_MILLI * max(1, answer.wanted - answer.free) if isinstance(answer, Refused) else 0
