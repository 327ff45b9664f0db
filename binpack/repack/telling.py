"""A trial told as a plan: each move with its reason and gain, what is freed, what it costs; the trial is taken back."""

from __future__ import annotations

from collections.abc import Sequence

from binpack.index import Index
from binpack.repack.large import Proof
from binpack.repack.room import Effort
from binpack.repack.trial import Seating, Shift, Step, Trial
from binpack.repack.values import EmptyNodes, FreeDevices, Goal, MakeRoom, Move, MovePlan, MoveReason, Verdict
from fleet.plan import Unplaced


def told(
    trial: Trial,
    goal: Goal,
    effort: Effort,
    proof: Proof,
    *,
    wanted: int,
    missed: int,
    unplaced: tuple[Unplaced, ...] = (),
    freed: tuple[str, ...] = (),
) -> MovePlan:
    """Return the plan of a trial's steps, which are taken back.

    Args:
        trial: Steps from the first one on.
        goal: What they are for.
        effort: Says what a move costs.
        proof: What the solver said of the steps.
        wanted: Pods, openings or nodes that the goal names; missed: of them not reached.
        missed: See `wanted`.
        unplaced: Waiting pods left out.
        freed: Nodes emptied.
    """
    steps = trial.undo(0)
    free_before, phi_before = _free(trial.index), trial.index.potential()
    moves = [
        _move(trial, step, _reason(goal, steps, place)) for place, step in enumerate(steps) if isinstance(step, Shift)
    ]
    freed_devices = _free(trial.index) - free_before
    seats = [step for step in steps if isinstance(step, Seating)] if isinstance(goal, MakeRoom) else []
    for step in seats:
        trial.seat(step.pod, step.placement)
    cost = trial.index.potential() - phi_before + effort.move_price * len(moves)
    trial.undo(0)
    verdict = Verdict.REACHED if moves else Verdict.NOT_NEEDED
    if missed:
        verdict = Verdict.PARTLY if moves else Verdict.NOTHING_FOUND
    return MovePlan(
        verdict=verdict,
        moves=tuple(moves),
        placements=tuple(step.placement for step in seats),
        unplaced=unplaced,
        freed_devices=freed_devices,
        freed_nodes=freed,
        objective=cost,
        bound=None if proof.gap_milli_gpu is None else cost - proof.gap_milli_gpu,
        solve_status=proof.status,
        detail=f"{wanted - missed} of {wanted} reached",
    )


def _free(index: Index) -> int:
    return int(index.arrays.untouched[: index.arrays.count].sum())


def _move(trial: Trial, shift: Shift, reason: MoveReason) -> Move:
    before = trial.index.potential()
    trial.shift(shift.movable, shift.target)
    return Move(
        pod_uid=shift.movable.pod.uid,
        source=shift.movable.berth,
        target=shift.target,
        reason=reason,
        gain_milli=before - trial.index.potential(),
    )


def _reason(goal: Goal, steps: Sequence[Step], place: int) -> MoveReason:
    """Return what the move at this place is for: who takes what it held."""
    shift = steps[place]
    assert isinstance(shift, Shift)
    node = shift.movable.berth.node
    if isinstance(goal, EmptyNodes) and node in goal.nodes:
        return MoveReason.EMPTIES_NODE
    for later in steps[place + 1 :]:
        if isinstance(later, Shift) and later.target.node == node:
            return MoveReason.GIVES_WAY
        if isinstance(later, Seating) and later.placement.berth.node == node:
            return MoveReason.FREES_DEVICES if isinstance(goal, FreeDevices) else MoveReason.MAKES_ROOM
    return MoveReason.LEAVES_LESS_WASTE
