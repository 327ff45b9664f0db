"""From a goal to steps that reach it, as far as the allowance goes."""

from __future__ import annotations

from binpack.demand import hardest_first
from binpack.repack.room import Effort, Room, make_room
from binpack.repack.trial import Trial
from binpack.repack.values import EmptyNodes, FreeDevices, MakeRoom
from fleet.device import AskKind, DeviceAsk
from fleet.plan import Placement, Unplaced
from fleet.pod import Pod
from fleet.resources import Resources

_MOST_FREE_SEATS = 2000


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


def free_devices(trial: Trial, goal: FreeDevices, effort: Effort) -> int | None:
    """Clear devices for imaginary pods; return for how many, None where there are thousands of such seats already.

    Devices that are free already are taken by imaginary pods first, so that none of them counts.
    """
    for kind in (AskKind.CHOSEN, AskKind.CLASSIC):
        for number in range(_MOST_FREE_SEATS):
            pod = _imaginary(goal, kind, number)
            answer = trial.index.place(pod, with_shortfall=False)
            if not isinstance(answer, Placement):
                break
            trial.seat(pod, answer)
        else:
            return None
    for found in range(goal.seats):
        rooms: list[Room] = []
        for kind in (AskKind.CHOSEN, AskKind.CLASSIC):
            room = make_room(trial, _imaginary(goal, kind, _MOST_FREE_SEATS + found), effort)
            if room is not None:
                rooms.append(room)
        if not rooms:
            return found
        trial.redo(min(rooms, key=lambda room: room.cost).steps)
    return goal.seats


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
    return Pod(uid=f"seat {number}", name=f"seat-{number}", requests=Resources(), ask=ask)
