"""A company as one index sees it: by the index's slots, which are its own numbering of some of the nodes."""

from __future__ import annotations

import numpy as np

from binpack.company.company import Company
from binpack.company.roster import Floats, Ints
from binpack.state import NodeState
from fleet.plan import Reason
from fleet.pod import Berth, Pod


class CompanyBySlot:
    """Maps slots of an index to rows of a company; feeds the company with the index's nodes unless somebody else does.

    Args:
        company: Fed by somebody else, with more nodes than this index has; None = one of its own.
    """

    def __init__(self, company: Company | None = None) -> None:
        self.company = Company() if company is None else company
        self._feeds = company is None
        self._row_of: Ints = np.full(64, -1, np.int64)
        self._slot_of: Ints = np.full(64, -1, np.int64)

    def set_node(self, state: NodeState, slot: int) -> None:
        """Take note that a node is in this slot."""
        name = state.node.name
        if self._feeds or self.company.row(name) < 0:
            self.company.set_node(state)
        row = self.company.row(name)
        self._row_of = _grown(self._row_of, slot)
        self._slot_of = _grown(self._slot_of, row)
        self._row_of[slot] = row
        self._slot_of[row] = slot

    def remove_node(self, name: str, slot: int) -> None:
        """Take note that a node is no more in the index."""
        row = int(self._row_of[slot])
        self._row_of[slot] = -1
        if row >= 0:
            self._slot_of[row] = -1
        if self._feeds:
            self.company.remove_node(name)

    def take(self, pod: Pod, berth: Berth) -> None:
        """Count a booked pod in."""
        self.company.enter(pod, berth.node)

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`."""
        self.company.leave(pod, berth.node)

    def charge(self, pod: Pod, cost: Floats) -> None:
        """Add to each slot's cost, (count,), what the pod's company there costs; inf where a rule forbids it."""
        found = self.company.cost(pod)
        if found is None:
            return
        if found.everywhere is not None:
            cost += found.everywhere[self._row_of[: len(cost)]]
        if len(found.rows):
            slots = self._slot_of[found.rows]
            is_here = slots >= 0
            cost[slots[is_here]] += found.more[is_here]

    def why_not(self, pod: Pod, slots: Ints) -> tuple[Reason, str]:
        """Return the rule that keeps the pod from all of these slots, in words too; see `Company.why_not`."""
        return self.company.why_not(pod, self._row_of[slots])


def _grown(array: Ints, place: int) -> Ints:
    """Return the array, long enough for this place."""
    if place < len(array):
        return array
    return np.concatenate((array, np.full(max(place + 1 - len(array), len(array)), -1, np.int64)))
