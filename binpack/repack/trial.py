"""What-if on the index: moves and seats that are booked for real and taken back in reverse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.index import Index
from binpack.index.columns import Ints
from binpack.repack.allowance import Allowance
from binpack.repack.occupants import Occupants
from binpack.repack.values import Movable
from fleet.plan import Placement
from fleet.pod import Berth, Pod

_NOT_THERE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A pod that was moved: as it was before, and where it is now."""

    movable: Movable
    target: Berth


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """A waiting pod that was given a berth."""

    pod: Pod
    placement: Placement


Step = Shift | Seating


class Trial:
    """Books steps in index, occupants and allowance, in the order in which they would be carried out.

    A pod that moves takes its new berth before it gives the old one back, so whatever can be booked here has room at
    every moment of being carried out.
    """

    def __init__(self, index: Index, occupants: Occupants, allowance: Allowance) -> None:
        self.index = index
        self.occupants = occupants
        self.allowance = allowance
        self.steps: list[Step] = []

    @property
    def shifts(self) -> list[Shift]:
        """Return the moves so far."""
        return [step for step in self.steps if isinstance(step, Shift)]

    def berth_for(
        self, pod: Pod, *, only: int | None = None, without: frozenset[int] = frozenset()
    ) -> Placement | None:
        """Return the best berth now, None if there is none.

        Args:
            pod: The pod.
            only: The one slot to look at; None = all.
            without: Slots to leave out.
        """
        rank: Ints = np.full(self.index.slots_used, 0 if only is None else _NOT_THERE, np.int64)
        if only is not None:
            rank[only] = 0
        if without:
            rank[list(without)] = _NOT_THERE
        return self.index.place_first(pod, rank)

    def closed(self) -> frozenset[int]:
        """Return the slots that no further pod may be moved to."""
        slots = self.index.arrays.slots
        return frozenset(slots[name] for name in self.allowance.closed() if name in slots)

    def seat(self, pod: Pod, placement: Placement) -> None:
        """Give a waiting pod a berth."""
        self.index.take(pod, placement.berth)
        self.steps.append(Seating(pod=pod, placement=placement))

    def shift(self, movable: Movable, target: Berth) -> None:
        """Move a pod; it is not moved a second time."""
        self.index.take(movable.pod, target)
        self.index.give_back(movable.pod, movable.berth)
        self.occupants.remove(movable.pod.uid)
        self.allowance.spend(movable, target.node)
        self.steps.append(Shift(movable=movable, target=target))

    def undo(self, mark: int) -> list[Step]:
        """Take back all steps but the first `mark`; return them in the order in which they were made."""
        undone = self.steps[mark:]
        for step in reversed(undone):
            if isinstance(step, Seating):
                self.index.give_back(step.pod, step.placement.berth)
            else:
                movable = step.movable
                self.index.take(movable.pod, movable.berth)
                self.index.give_back(movable.pod, step.target)
                self.occupants.add(movable)
                self.allowance.refund(movable, step.target.node)
        del self.steps[mark:]
        return undone

    def redo(self, steps: Iterable[Step]) -> None:
        """Make steps again that were taken back."""
        for step in steps:
            if isinstance(step, Seating):
                self.seat(step.pod, step.placement)
            else:
                self.shift(step.movable, step.target)
