"""From a goal to steps that reach it, as far as the allowance goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from binpack.demand import hardest_first
from binpack.index import Index
from binpack.repack.room import Effort, make_room
from binpack.repack.trial import Trial
from binpack.repack.values import EmptyNodes, FreeDevices, MakeRoom
from fleet.device import AskKind, DeviceAsk
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod
from fleet.resources import Resources

_MOST_FREE_OPENINGS: Final = 2000
_KINDS: Final = (AskKind.CHOSEN, AskKind.CLASSIC)


def seat_all(trial: Trial, goal: MakeRoom, effort: Effort) -> tuple[Unplaced, ...]:
    """Seat the waiting pods, the hardest first, moving others where needed; return those left out.

    Of a gang all are left out as soon as one has to be, and nothing is moved.
    """
    mark = len(trial.steps)
    left_out: list[Unplaced] = []
    for pod in sorted(goal.pods, key=hardest_first):
        answer = trial.index.place(pod)
        if isinstance(answer, Placement):
            trial.seat(pod, answer)
            continue
        room = None if pod.problems else make_room(trial, pod, effort)
        if room is not None:
            trial.redo(room.steps)
            continue
        left_out.append(answer)
        if goal.is_gang:
            trial.undo(mark)
            missing = (trial.index.place(other) for other in goal.pods if other is not pod)
            others = [one for one in missing if isinstance(one, Unplaced)]
            return (answer, *others)
    return tuple(left_out)


def free_devices(trial: Trial, openings: Iterable[Sequence[Pod]], effort: Effort) -> tuple[Pod, ...]:
    """Clear devices for imaginary pods, one of each group; return those that were seated."""
    seated: list[Pod] = []
    for ways in openings:
        found = [
            (room.cost, number, room) for number, way in enumerate(ways) if (room := make_room(trial, way, effort))
        ]
        if not found:
            break
        _, number, room = min(found, key=lambda one: one[:2])
        trial.redo(room.steps)
        seated.append(ways[number])
    return tuple(seated)


def imaginary(goal: FreeDevices) -> tuple[tuple[Pod, ...], ...]:
    """Return for each opening of the goal the pods that would fill it: of a node for sharing, and of any other."""
    return tuple(tuple(_imaginary(goal, kind, number) for kind in _KINDS) for number in range(goal.openings))


@contextmanager
def free_ones_taken(index: Index, goal: FreeDevices) -> Iterator[bool]:
    """Let imaginary pods take all openings of the goal that are there already, so that none of them counts.

    Yields False where there are more than 2,000.
    """
    taken: list[tuple[Pod, Berth]] = []
    try:
        yield all(_all_taken(index, goal, kind, taken) for kind in _KINDS)
    finally:
        for pod, berth in reversed(taken):
            index.give_back(pod, berth)


def _all_taken(index: Index, goal: FreeDevices, kind: AskKind, taken: list[tuple[Pod, Berth]]) -> bool:
    for number in range(_MOST_FREE_OPENINGS):
        pod = _imaginary(goal, kind, goal.openings + number)
        answer = index.place(pod, with_shortfall=False)
        if not isinstance(answer, Placement):
            return True
        index.take(pod, answer.berth)
        taken.append((pod, answer.berth))
    return False


def empty_nodes(trial: Trial, goal: EmptyNodes) -> tuple[str, ...]:
    """Move everything movable off the nodes, each as a whole or not at all; return those that are empty of it."""
    slots = trial.index.arrays.slots
    known = [name for name in dict.fromkeys(goal.nodes) if name in slots]
    freed: list[str] = []
    for place, name in enumerate(known):
        if any(shift.target.node == name for shift in trial.shifts):
            continue  # it serves those that left another one
        done = {slots[other] for other in freed} | {slots[name]}
        later = {slots[other] for other in known[place:]}
        if any(_empty(trial, name, frozenset(without)) for without in (done | later, done)):
            freed.append(name)
    return tuple(freed)


def _empty(trial: Trial, name: str, without: frozenset[int]) -> bool:
    mark = len(trial.steps)
    for movable in sorted(trial.occupants.on(name), key=lambda one: hardest_first(one.pod)):
        placement = None
        if trial.allowance.may_leave(movable):
            placement = trial.berth_for(movable.pod, without=without | trial.closed())
        if placement is None:
            trial.undo(mark)
            return False
        trial.shift(movable, placement.berth)
    return True


def _imaginary(goal: FreeDevices, kind: AskKind, number: int) -> Pod:
    ask = DeviceAsk(kind=kind, count=goal.devices, models=goal.models)
    return Pod(uid=f"opening {number}", name=f"opening-{number}", requests=Resources(), ask=ask)
