"""Berths for all members of a gang at once, by search with backtracking: exact where it ends within its budget.

Members are seated kind by kind, next always the kind that has the fewest nodes left for what it needs, weighed by how
often it was the one that stopped a branch (dom/wdeg, Boussemart et al., ECAI 2004); each kind fills the tightest nodes
first. What must not be tried twice is not: rooms that look alike count once, members of one kind are seated in the
order of the nodes, and a branch ends as soon as the nodes' upper limits say that some kind cannot be seated any more.
Short tries learn the weights; the last one has all that is left of the budget.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from binpack.demand import hardest_first
from binpack.gangs.claims import GangClaims
from binpack.gangs.room import Room, Want, booked, has_few_ways, room_of, ways
from binpack.state import NodeState
from fleet.dra import ClaimChoice
from fleet.pod import Berth, Pod

_FIRST_TRY: Final = 250
_LONGER: Final = 1.5  # each try has this many times the steps of the one before


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """How a search ended.

    Attributes:
        berths: (pod, berth) of every member; empty where no way was found.
        is_proven: All ways over these nodes were looked at, so where `berths` is empty there is none.
        steps: Members seated or tried, of the budget.
    """

    berths: tuple[tuple[Pod, Berth], ...]
    is_proven: bool
    steps: int


def seek(pods: Sequence[Pod], states: Sequence[NodeState], budget: int, claims: GangClaims | None = None) -> Sought:
    """Return berths for all these pods at once, or none for any.

    Args:
        pods: At least one; each without problems.
        states: The nodes to look at, each name once.
        budget: Steps to make at most.
        claims: What the pods want by resource claims; None = nothing. Its books are left as they were.
    """
    search = _Search(_kinds(pods, claims), states, claims)
    allowance = float(_FIRST_TRY)
    while True:
        left = budget - search.steps
        is_found = search.run(left if allowance * (1 + _LONGER) > left else round(allowance))
        if is_found or not search.was_cut or search.steps >= budget:
            is_proven = is_found or not (search.was_cut or search.left_ways_out)
            return Sought(berths=search.berths() if is_found else (), is_proven=is_proven, steps=search.steps)
        allowance *= _LONGER


def _kinds(pods: Sequence[Pod], claims: GangClaims | None) -> list[list[Pod]]:
    """Return the pods in groups that nothing tells apart, the hardest first."""
    kinds: dict[tuple[object, ...], list[Pod]] = {}
    for pod in sorted(pods, key=hardest_first):
        claimed = claims.kind(pod) if claims is not None else ()
        kinds.setdefault((pod.requests, pod.ask, pod.constraints, claimed), []).append(pod)
    return list(kinds.values())


@dataclass(frozen=True, slots=True)
class _Seat:
    """A member of a kind on one node: which of the search's nodes, which devices, what for its claims."""

    kind: int
    place: int
    devices: tuple[str, ...]
    choices: tuple[ClaimChoice, ...]


class _Search:
    """Depth first, again and again; what stopped a branch is remembered from try to try.

    Attributes:
        steps: Made so far, in all tries.
        was_cut: The last try ended for want of steps.
        left_ways_out: Some node had more ways to choose devices than were looked at.
    """

    def __init__(self, kinds: Sequence[Sequence[Pod]], states: Sequence[NodeState], claims: GangClaims | None) -> None:
        self.steps = 0
        self.was_cut = self.left_ways_out = False
        self._kinds = kinds
        self._claims = claims
        self._wants = [Want(kind[0]) for kind in kinds]
        self._weights = [1.0] * len(kinds)
        self._all_kinds = tuple(range(len(kinds)))
        examples = [kind[0] for kind in kinds]
        self._first_rooms = [room_of(state, examples, self._looks(state)) for state in states]
        self._stop_at = 0
        self._start()

    def _start(self) -> None:
        self._rooms = list(self._first_rooms)
        self._seats: list[_Seat] = []
        self._needed = [len(kind) for kind in self._kinds]
        self._could = [sum(self._limit(kind, room) for room in self._rooms) for kind in self._all_kinds]
        self.was_cut = False

    def run(self, steps: int) -> bool:
        """Return True if all pods found a seat within so many steps."""
        self._start()
        self._stop_at = self.steps + steps
        if any(self._could[kind] < self._needed[kind] for kind in self._all_kinds):
            return False
        try:
            return self._next_kind(self._all_kinds)
        finally:
            if self._claims is not None:
                self._claims.give_all_back()

    def berths(self) -> tuple[tuple[Pod, Berth], ...]:
        """Return the seats that were found."""
        waiting = [iter(kind) for kind in self._kinds]
        return tuple((next(waiting[seat.kind]), self._berth(seat)) for seat in self._seats)

    def _berth(self, seat: _Seat) -> Berth:
        node = self._rooms[seat.place].state.node.name
        return Berth(node=node, devices=seat.devices, choices=seat.choices)

    def _looks(self, state: NodeState) -> Hashable:
        """Return what counts of a node's devices for resource claims."""
        return self._claims.alike.looks(state.node.name) if self._claims is not None else None

    def _next_kind(self, open_kinds: tuple[int, ...]) -> bool:
        """Seat the kinds that are left, the one with the fewest nodes for its need first."""
        if not open_kinds:
            return True
        kind = min(open_kinds, key=lambda one: self._open_seats(one) / (self._needed[one] * self._weights[one]))
        places = [place for place, room in enumerate(self._rooms) if self._limit(kind, room)]
        places.sort(key=lambda place: self._rank(kind, place))
        others = tuple(one for one in open_kinds if one != kind)
        return self._seat(kind, places, 0, open_kinds, others)

    def _rank(self, kind: int, place: int) -> tuple[object, ...]:
        """Return what the kind's nodes are ordered by: for claims those first that can serve the fewest members."""
        room = self._rooms[place]
        claimable = 0 if self._claims is None else self._limit(kind, room)
        return claimable, room.tightness, place

    def _open_seats(self, kind: int) -> int:
        """Return an upper limit of how many of the kind can be seated."""
        claims, example = self._claims, self._kinds[kind][0]
        if claims is None or not claims.is_bound(example):
            return self._could[kind]
        return sum(self._limit(kind, room) for room in self._rooms if claims.is_open(example, room.state.node.name))

    def _seat(
        self, kind: int, ranked: list[int], floor: int, open_kinds: tuple[int, ...], others: tuple[int, ...]
    ) -> bool:
        """Seat what is left of a kind; `ranked` are its nodes by tightness, those below `floor` are behind it."""
        left = self._needed[kind]
        if not left:
            return self._next_kind(others)
        claims, example = self._claims, self._kinds[kind][0]
        is_bound = claims is not None and claims.is_bound(example)
        open_seats = sum(self._limit(kind, self._rooms[place]) for place in ranked[floor:])
        seen: set[tuple[object, ...]] = set()
        for rank in range(floor, len(ranked)):
            room = self._rooms[ranked[rank]]
            limit = self._limit(kind, room)
            if open_seats < left:
                break
            open_seats -= limit
            if not limit or (is_bound and claims is not None and not claims.is_open(example, room.state.node.name)):
                continue
            looks = room.looks if claims is None else (room.looks, claims.bound(room.state.node.name))
            if looks in seen:
                continue
            seen.add(looks)
            if self._on(kind, ranked, rank, open_kinds, others):
                return True
            if self.was_cut:
                return False
        return False

    def _on(
        self, kind: int, ranked: list[int], rank: int, open_kinds: tuple[int, ...], others: tuple[int, ...]
    ) -> bool:
        """Seat one of the kind on one node in every way that differs, and go on from there."""
        place, pod = ranked[rank], self._kinds[kind][-self._needed[kind]]
        room = self._rooms[place]
        apart = self._claims.alike.cards(room.state.node.name) if self._claims is not None else {}
        self.left_ways_out = self.left_ways_out or not has_few_ways(pod, room.state, apart)
        for devices in ways(pod, room.state, apart):
            state = booked(pod, Berth(node=room.state.node.name, devices=devices), room.state)
            for choices in self._choices(pod, room):
                if self.steps >= self._stop_at:
                    self.was_cut = True
                    return False
                self.steps += 1 if self._claims is None else self._claims.alike.steps(room.state.node.name)
                after = self._booked(room, state, choices)
                if self._enter(kind, place, room, after, open_kinds):
                    self._seats.append(_Seat(kind, place, devices, choices))
                    if self._seat(kind, ranked, rank, open_kinds, others):
                        return True
                    self._seats.pop()
                self._leave(kind, place, room, after, open_kinds)
                if self._claims is not None:
                    self._claims.give_back()
        return False

    def _choices(self, pod: Pod, room: Room) -> tuple[tuple[ClaimChoice, ...], ...]:
        """Return the ways to satisfy a member's claims on a node."""
        if self._claims is None:
            return ((),)
        found, is_all = self._claims.ways(pod, room.state.node.name)
        self.left_ways_out = self.left_ways_out or not is_all
        return found

    def _booked(self, room: Room, state: NodeState, choices: tuple[ClaimChoice, ...]) -> Room:
        """Book a member's claims and return its node's room as it is then."""
        if self._claims is not None:
            state = self._claims.take(choices, room.state, state)
        limits = [-1 if limit else 0 for limit in room.limits]
        return Room(state=state, allowed=room.allowed, limits=limits, claimable=self._looks(state))

    def _enter(self, kind: int, place: int, before: Room, after: Room, open_kinds: tuple[int, ...]) -> bool:
        """Book a node's new room; return False if some kind cannot be seated any more."""
        self._rooms[place] = after
        self._needed[kind] -= 1
        stuck, had_limits, could, needed = -1, before.limits, self._could, self._needed
        for other in open_kinds:
            had = had_limits[other]
            if had:
                could[other] += self._limit(other, after) - had
                if could[other] < needed[other]:
                    stuck = other
        if stuck < 0 and self._claims is not None and self._claims.has_just_bound:
            bound = (one for one in open_kinds if needed[one] and self._claims.is_bound(self._kinds[one][0]))
            stuck = next((one for one in bound if self._open_seats(one) < needed[one]), -1)
        if stuck >= 0:
            self._weights[stuck] += 1.0
        return stuck < 0

    def _leave(self, kind: int, place: int, before: Room, after: Room, open_kinds: tuple[int, ...]) -> None:
        self._rooms[place] = before
        self._needed[kind] += 1
        had_limits, has_limits, could = before.limits, after.limits, self._could
        for other in open_kinds:
            if had_limits[other]:
                could[other] += had_limits[other] - has_limits[other]

    def _limit(self, kind: int, room: Room) -> int:
        """Return an upper limit of the kind's pods that the room can take, as far as they are needed at all."""
        found = room.limits[kind]
        if found < 0:
            found = self._wants[kind].most(room, len(self._kinds[kind])) if room.allowed[kind] else 0
            if found and self._claims is not None:
                found = self._claims.most(self._kinds[kind][0], room.state.node.name, found)
            room.limits[kind] = found
        return found
