"""Berths for all members of a gang at once, by search with backtracking: exact where it ends within its budget.

Members are gone through kind by kind, the hardest kinds first, each kind filling the tightest nodes first. What must
not be tried twice is not: rooms that look alike count once, members of one kind are seated in the order of the nodes,
and a branch ends as soon as the nodes' upper limits say that some kind cannot be seated any more. A try that gives up
early is followed by one that starts with the kind on which it failed (as in squeaky-wheel optimisation, Joslin and
Clements, JAIR 10, 1999); the last try has the whole of what is left of the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from binpack.demand import hardest_first
from binpack.gangs.room import Room, booked, has_few_ways, most, room_of, ways
from binpack.state import NodeState
from fleet.pod import Berth, Pod

_SHORT_TRIES: Final = 6
_SHORT: Final = 10  # short tries have a tenth of the budget each


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


def seek(pods: Sequence[Pod], states: Sequence[NodeState], budget: int) -> Sought:
    """Return berths for all these pods at once, or none for any.

    Args:
        pods: At least one; each without problems.
        states: The nodes to look at, each name once.
        budget: Steps to make at most.
    """
    kinds = _kinds(pods)
    rooms = [room_of(state, [kind[0] for kind in kinds]) for state in states]
    order = list(range(len(kinds)))
    spent = 0
    for attempt in range(_SHORT_TRIES + 1):
        is_last = attempt == _SHORT_TRIES
        search = _Search(kinds, rooms, order, budget - spent if is_last else budget // _SHORT)
        is_found = search.run()
        spent += search.steps
        if is_found or not search.was_cut:
            is_proven = is_found or not (search.was_cut or search.left_ways_out)
            return Sought(berths=search.berths() if is_found else (), is_proven=is_proven, steps=spent)
        order.remove(search.worst)
        order.insert(0, search.worst)
    return Sought(berths=(), is_proven=False, steps=spent)


def _kinds(pods: Sequence[Pod]) -> list[list[Pod]]:
    """Return the pods in groups that nothing tells apart, the hardest first."""
    kinds: dict[tuple[object, ...], list[Pod]] = {}
    for pod in sorted(pods, key=hardest_first):
        kinds.setdefault((pod.requests, pod.ask, pod.constraints), []).append(pod)
    return list(kinds.values())


class _Search:
    """One try: depth first, in a given order of kinds.

    Attributes:
        steps: Made so far.
        was_cut: The budget ended it.
        left_ways_out: Some node had more ways to choose devices than were looked at.
        worst: The kind that stopped the deepest branch.
    """

    def __init__(
        self, kinds: Sequence[Sequence[Pod]], rooms: Sequence[Room], order: Sequence[int], budget: int
    ) -> None:
        self.steps = 0
        self.was_cut = self.left_ways_out = False
        self.worst = order[0]
        self._kinds = kinds
        self._rooms = list(rooms)
        self._order = [kind for kind in order for _ in kinds[kind]]
        self._budget = budget
        self._deepest = -1
        self._limits: dict[tuple[int, int], int] = {}
        self._kept: list[Room] = []  # keeps every room alive, so that its id stays its own
        self._seats: list[tuple[int, tuple[str, ...]]] = []
        self._needed = [len(kind) for kind in kinds]
        self._could = [sum(self._limit(kind, room) for room in rooms) for kind in range(len(kinds))]

    def run(self) -> bool:
        """Return True if all pods found a seat."""
        for kind, needed in enumerate(self._needed):
            if self._could[kind] < needed:
                self.worst = kind
                return False
        return self._seat(0, [], 0)

    def berths(self) -> tuple[tuple[Pod, Berth], ...]:
        """Return the seats that were found."""
        waiting = [iter(kind) for kind in self._kinds]
        return tuple(
            (next(waiting[kind]), Berth(node=self._rooms[place].state.node.name, devices=devices))
            for kind, (place, devices) in zip(self._order, self._seats, strict=True)
        )

    def _seat(self, at: int, ranked: list[int], floor: int) -> bool:
        """Seat the pods from `at` on; `ranked` are the kind's nodes by tightness, those below `floor` are behind it."""
        if at == len(self._order):
            return True
        kind = self._order[at]
        if at == 0 or self._order[at - 1] != kind:
            ranked, floor = self._ranked(kind), 0
        left = self._needed[kind]
        open_seats = sum(self._limit(kind, self._rooms[place]) for place in ranked[floor:])
        seen: set[tuple[object, ...]] = set()
        for rank in range(floor, len(ranked)):
            place = ranked[rank]
            room = self._rooms[place]
            limit = self._limit(kind, room)
            if open_seats < left:
                break
            open_seats -= limit
            if not limit or room.looks in seen:
                continue
            seen.add(room.looks)
            if self._on(at, kind, place, ranked, rank):
                return True
            if self.was_cut:
                return False
        if at > self._deepest:
            self._deepest, self.worst = at, kind
        return False

    def _on(self, at: int, kind: int, place: int, ranked: list[int], rank: int) -> bool:
        """Seat the pod on one node in every way that differs, and go on from there."""
        room, pod = self._rooms[place], self._kinds[kind][0]
        self.left_ways_out = self.left_ways_out or not has_few_ways(pod, room.state)
        for devices in ways(pod, room.state):
            if self.steps >= self._budget:
                self.was_cut = True
                return False
            self.steps += 1
            state = booked(pod, Berth(node=room.state.node.name, devices=devices), room.state)
            after = Room(state=state, allowed=room.allowed)
            self._kept.append(after)
            if self._enter(kind, place, room, after):
                self._seats.append((place, devices))
                if self._seat(at + 1, ranked, rank):
                    return True
                self._seats.pop()
            self._leave(kind, place, room, after)
        return False

    def _enter(self, kind: int, place: int, before: Room, after: Room) -> bool:
        """Book a node's new room; return False if some kind cannot be seated any more."""
        self._rooms[place] = after
        self._needed[kind] -= 1
        is_hopeful = True
        for other in range(len(self._kinds)):
            self._could[other] += self._limit(other, after) - self._limit(other, before)
            is_hopeful = is_hopeful and self._could[other] >= self._needed[other]
        return is_hopeful

    def _leave(self, kind: int, place: int, before: Room, after: Room) -> None:
        self._rooms[place] = before
        self._needed[kind] += 1
        for other in range(len(self._kinds)):
            self._could[other] += self._limit(other, before) - self._limit(other, after)

    def _ranked(self, kind: int) -> list[int]:
        places = [place for place, room in enumerate(self._rooms) if self._limit(kind, room)]
        return sorted(places, key=lambda place: (self._rooms[place].tightness, place))

    def _limit(self, kind: int, room: Room) -> int:
        """Return an upper limit of the kind's pods that the room can take, as far as they are needed at all."""
        asked = kind, id(room)
        found = self._limits.get(asked)
        if found is None:
            found = most(self._kinds[kind][0], room.state) if room.allowed[kind] else 0
            found = self._limits[asked] = min(found, len(self._kinds[kind]))
        return found
