"""Room for one pod that fits nowhere: clear the node nearest to fitting it, others giving way in turn if need be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from binpack.repack.nearest import Clearing, Nearest, Prices
from binpack.repack.trial import Seating, Shift, Step, Trial
from binpack.repack.values import Movable
from fleet.plan import Placement
from fleet.pod import Pod

_MOST_MOVES_OF_A_NODE: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How far the search goes; all limits are counts, so that it ends the same way everywhere.

    Attributes:
        nodes: Nodes that are tried exactly for the pod itself.
        nodes_in_turn: The same for each pod that has to make room for itself.
        depth: How often in a row a pod that gives way may make another one give way.
        move_price: What every move must gain beside its cost, milli-GPU.
    """

    nodes: int = 8
    nodes_in_turn: int = 2
    depth: int = 1
    move_price: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Steps that end with the pod in its berth, taken back again.

    Attributes:
        cost: By how much the potential rises, with the price of the moves, milli-GPU.
    """

    steps: tuple[Step, ...]
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """What one search keeps: the prices as they were when it began serve all of it."""

    effort: Effort
    prices: Prices

    def nearest(self, trial: Trial, pod: Pod, depth: int) -> Nearest:
        return Nearest(
            trial.index, trial.occupants, self.prices, pod, move_price=self.effort.move_price, is_deep=depth > 0
        )


def make_room(trial: Trial, pod: Pod, effort: Effort) -> Room | None:
    """Return the cheapest way found to fit the pod in, None if none was found; everything is as it was before."""
    before = trial.index.potential()
    mark = len(trial.steps)
    best: Room | None = None
    search = _Search(effort=effort, prices=Prices.of(trial.index, trial.occupants))
    for clearing in search.nearest(trial, pod, effort.depth).clearings(effort.nodes):
        if best is not None and clearing.estimate > best.cost + 1000.0:
            break
        if _clear(trial, pod, clearing, search, effort.depth, frozenset((clearing.slot,))):
            cost = trial.index.potential() - before
            steps = trial.undo(mark)
            cost += effort.move_price * sum(isinstance(step, Shift) for step in steps)
            if best is None or cost < best.cost:
                best = Room(steps=tuple(steps), cost=cost)
    return best


def _clear(
    trial: Trial, pod: Pod, clearing: Clearing, search: _Search, depth: int, touched: frozenset[int]
) -> Placement | None:
    """Move pods off one node until the pod fits there and seat it; return its berth. On failure nothing is changed."""
    mark = len(trial.steps)
    members = list(clearing.members[:_MOST_MOVES_OF_A_NODE])
    while (chosen := _needed(trial, pod, clearing.slot, members)) is not None:
        stays = next((one for one in chosen if not _move_away(trial, one, search, depth, touched)), None)
        placement = trial.berth_for(pod, only=clearing.slot) if stays is None else None
        if placement is not None:
            trial.seat(pod, placement)
            return placement
        trial.undo(mark)
        if stays is None:
            return None
        members.remove(stays)
    return None


def _needed(trial: Trial, pod: Pod, slot: int, members: Sequence[Movable]) -> list[Movable] | None:
    """Return which of the pods must go for this one to fit, as few as leaving one out after another finds."""
    index = trial.index
    gone: list[Movable] = []
    try:
        for movable in members:
            if trial.berth_for(pod, only=slot) is not None:
                break
            if trial.allowance.may_leave(movable):
                index.give_back(movable.pod, movable.berth)
                gone.append(movable)
        if trial.berth_for(pod, only=slot) is None:
            return None
        for movable in gone[:-1]:
            index.take(movable.pod, movable.berth)
            if trial.berth_for(pod, only=slot) is not None:
                gone.remove(movable)
            else:
                index.give_back(movable.pod, movable.berth)
        return list(gone)
    finally:
        for movable in reversed(gone):
            index.take(movable.pod, movable.berth)


def _move_away(trial: Trial, movable: Movable, search: _Search, depth: int, touched: frozenset[int]) -> bool:
    """Move a pod to its best berth on no touched node; if there is none, make others give way to it."""
    if not trial.allowance.may_leave(movable):
        return False
    placement = trial.berth_for(movable.pod, without=touched | trial.closed())
    if placement is not None:
        trial.shift(movable, placement.berth)
        return True
    if depth == 0:
        return False
    nearest = search.nearest(trial, movable.pod, depth - 1)
    for clearing in nearest.clearings(search.effort.nodes_in_turn + len(touched)):
        if clearing.slot in touched:
            continue
        mark = len(trial.steps)
        if _clear(trial, movable.pod, clearing, search, depth - 1, touched | {clearing.slot}) is None:
            continue
        if _turned_into_shift(trial, movable, clearing.slot):
            return True
        trial.undo(mark)
    return False


def _turned_into_shift(trial: Trial, movable: Movable, slot: int) -> bool:
    """Replace the seat that `_clear` gave the pod, its last step, by a move of it; False where that is one too many."""
    (seating,) = trial.undo(len(trial.steps) - 1)
    assert isinstance(seating, Seating)
    if not trial.allowance.may_leave(movable) or slot in trial.closed():
        return False
    trial.shift(movable, seating.placement.berth)
    return True
