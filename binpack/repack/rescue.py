"""Room for arrivals that fit nowhere, one after another, over a cluster that somebody else keeps filling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from binpack.index import Index
from binpack.repack.allowance import Allowance
from binpack.repack.occupants import Kind, Occupants, kind_of
from binpack.repack.room import Effort, make_room
from binpack.repack.trial import Seating, Shift, Trial
from binpack.repack.values import Movable, MoveBudget
from fleet.plan import Placement
from fleet.pod import Berth, Pod


class Rescue:
    """Moves pods for those that fit nowhere, where that gains more GPU than it spoils.

    What it gains is the GPU that the pod asks; what it spoils is the worth of what is free, by the index's potential,
    and a price per move. A kind of pod for which nothing was found is not tried again before something has left or
    moved: further bookings make no room.
    """

    def __init__(self, index: Index, movables: Iterable[Movable] = (), effort: Effort | None = None) -> None:
        """Start with the pods that the index has booked."""
        self._index = index
        self._effort = effort or Effort()
        self._occupants = Occupants(index, movables)
        self._hopeless: set[Kind] = set()

    def took(self, pod: Pod, berth: Berth) -> None:
        """Note that the index has booked a pod."""
        self._occupants.add(Movable(pod=pod, berth=berth))

    def gave_back(self, uid: str) -> None:
        """Note that a pod has left and the index has given back what it held."""
        self._occupants.remove(uid)
        self._hopeless.clear()

    def berth_of(self, uid: str) -> Berth:
        """Return where a pod is now."""
        return self._occupants.movable(uid).berth

    def make_room(self, pod: Pod, most: int) -> tuple[Placement, tuple[Shift, ...]] | None:
        """Return the pod's berth and the moves that came before, all of them booked; None if nothing changed.

        Args:
            pod: A pod that fits nowhere now.
            most: Moves that may be made.
        """
        kind = kind_of(pod)
        if most < 1 or pod.ask is None or kind in self._hopeless:
            return None
        trial = Trial(self._index, self._occupants, Allowance(MoveBudget(pods_per_hour=most, per_node=most)))
        room = make_room(trial, pod, self._effort)
        if room is None or room.cost >= pod.ask.total_milli_gpu:
            self._hopeless.add(kind)
            return None
        trial.redo(room.steps)
        (placement,) = (step.placement for step in room.steps if isinstance(step, Seating))
        self.took(pod, placement.berth)
        shifts = tuple(step for step in room.steps if isinstance(step, Shift))
        for shift in shifts:
            self._occupants.add(replace(shift.movable, berth=shift.target))
        self._hopeless.clear()
        return placement, shifts
