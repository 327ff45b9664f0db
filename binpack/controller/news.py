"""What happened that may help pods which wait: room on nodes, devices for claims, others who came or went. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from binpack.company import Company
from binpack.controller.nodes import Nodes
from binpack.dra.desk import Desk
from binpack.state import NodeState
from fleet.company import Guest


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """All that happened between two looks at those who wait.

    Attributes:
        grown: Nodes on which room appeared.
        joined: Guests that found their company wrong, and it has changed.
        has_claim_room: Whether devices became free for resource claims, or claims came.
    """

    grown: tuple[NodeState, ...]
    joined: frozenset[Guest]
    has_claim_room: bool


class News:
    """Gathers what happens until somebody looks at those who wait."""

    def __init__(self, nodes: Nodes, desk: Desk, company: Company) -> None:
        self._nodes = nodes
        self._desk = desk
        self._company = company
        self._has_claim_room = False
        self._lonely: dict[Guest, tuple[int, ...]] = {}
        self._joined: set[Guest] = set()

    def await_company(self, guest: Guest) -> None:
        """Note that pods like this guest wait for others' sake: it is news when these come or go."""
        self._lonely[guest] = self._company.stamp(guest)

    def gather(self) -> bool:
        """Look whether anything happened; return True if something has since `take`."""
        self._has_claim_room = self._desk.changes.take_room() or self._has_claim_room
        moved = [guest for guest, stamp in self._lonely.items() if self._company.stamp(guest) != stamp]
        for guest in moved:
            del self._lonely[guest]
        self._joined.update(moved)
        return bool(self._joined) or self._nodes.has_grown or self._has_claim_room

    def take(self) -> Occasion:
        """Return what happened since the last call."""
        joined, self._joined = self._joined, set()
        has_claim_room, self._has_claim_room = self._has_claim_room, False
        return Occasion(grown=tuple(self._nodes.take_grown()), joined=frozenset(joined), has_claim_room=has_claim_room)
