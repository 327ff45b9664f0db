"""Which pods to move to reach a goal: the search of the index first, then a solver over the nodes it touched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from binpack.check_moves import check_moves
from binpack.index import Index
from binpack.repack.allowance import Allowance
from binpack.repack.goals import empty_nodes, free_devices, free_ones_taken, imaginary, seat_all
from binpack.repack.large import Aim, Proof, Solve, improved, neighbourhoods
from binpack.repack.occupants import Occupants, is_known
from binpack.repack.room import Effort
from binpack.repack.telling import told
from binpack.repack.trial import Seating, Trial
from binpack.repack.values import (
    EmptyNodes,
    FreeDevices,
    Goal,
    MakeRoom,
    Movable,
    MoveBudget,
    MovePlan,
    PastMove,
    Verdict,
)
from binpack.state import NodeState
from fleet.plan import Reason, SolveStatus, Unplaced

_MISSED = frozenset({Verdict.PARTLY, Verdict.NO_BUDGET, Verdict.NOTHING_FOUND})


def propose(
    index: Index,
    states: Mapping[str, NodeState],
    pods: Sequence[Movable],
    goal: Goal,
    budget: MoveBudget,
    now_s: float,
    *,
    past: Iterable[PastMove] = (),
    closed: Collection[str] = (),
    effort: Effort | None = None,
    solve: Solve | None = None,
) -> MovePlan:
    """Return moves that lead to the goal, or as near as the budget allows; nothing is left booked.

    Args:
        index: What is free; it holds the same nodes as `states`.
        states: What is free, for the independent check of the answer.
        pods: The pods that may be moved, and no others, each booked where it says.
        goal: What for.
        budget: How many may be moved.
        now_s: The present, on the clock of `past`.
        past: Moves of the last hour, and those still under way.
        closed: Nodes that no pod may be moved to.
        effort: How far to search.
        solve: The solver that may improve what the index's search finds, and proves how good it is; None = neither.
    """
    emptied = goal.nodes if isinstance(goal, EmptyNodes) else ()
    allowance = Allowance(budget, past, now_s, emptied=emptied, closed=closed)
    has_budget = allowance.pods > 0
    trial = Trial(index, Occupants(index, (one for one in pods if is_known(index, one))), allowance)
    plan = _reach(trial, goal, effort or Effort(), solve)
    if plan.verdict is Verdict.NOTHING_FOUND and not has_budget:
        plan = replace(plan, verdict=Verdict.NO_BUDGET)
    held_back = allowance.held_back()
    if held_back and plan.verdict in _MISSED:
        plan = replace(plan, detail=f"{plan.detail}; the budget kept pods where they are: {held_back}")
    waiting = goal.pods if isinstance(goal, MakeRoom) else ()
    published = None if index.desk is None else index.desk.published(states)
    violations = check_moves(states, pods, waiting, plan, budget, published)
    if violations:
        first = violations[0]
        why = f"the plan did not hold: {first.rule} for {first.pod_uid} on {first.node}"
        return MovePlan(verdict=Verdict.NOTHING_FOUND, unplaced=plan.unplaced, detail=why)
    return plan


def _reach(trial: Trial, goal: Goal, effort: Effort, solve: Solve | None) -> MovePlan:
    match goal:
        case MakeRoom():
            return _room(trial, goal, effort, solve)
        case FreeDevices():
            with free_ones_taken(trial.index, goal) as is_worth_it:
                if not is_worth_it:
                    return MovePlan(verdict=Verdict.NOT_NEEDED, detail="there are thousands of such openings already")
                seated = free_devices(trial, imaginary(goal), effort)
                proof = _improved(trial, Aim(waiting=seated, is_gang=True), effort, solve)
                return told(trial, goal, effort, proof, wanted=goal.openings, missed=goal.openings - len(seated))
        case EmptyNodes():
            freed = empty_nodes(trial, goal)
            proof = _improved(trial, Aim(shut=frozenset(freed)), effort, solve)
            wanted = len(set(goal.nodes))
            return told(trial, goal, effort, proof, wanted=wanted, missed=wanted - len(freed), freed=freed)


def _room(trial: Trial, goal: MakeRoom, effort: Effort, solve: Solve | None) -> MovePlan:
    unplaced = {one.pod_uid: one for one in seat_all(trial, goal, effort)}
    readable = tuple(pod for pod in goal.pods if not pod.problems)
    proof = Proof(status=SolveStatus.NOT_ASKED)
    if unplaced or trial.shifts:
        proof = _improved(trial, Aim(waiting=readable, is_gang=goal.is_gang), effort, solve)
    seated = {step.pod.uid for step in trial.steps if isinstance(step, Seating)}
    left_out = tuple(
        unplaced.get(pod.uid)
        or Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, detail="others of the batch take its room")
        for pod in goal.pods
        if pod.uid not in seated
    )
    return told(trial, goal, effort, proof, wanted=len(goal.pods), missed=len(left_out), unplaced=left_out)


def _improved(trial: Trial, aim: Aim, effort: Effort, solve: Solve | None) -> Proof:
    """Ask the solver, first about the nodes touched and those nearest to fitting a waiting pod, then further ones."""
    if solve is None or not (trial.steps or aim.waiting):
        return Proof(status=SolveStatus.NOT_ASKED)
    proof = Proof(status=SolveStatus.NOT_ASKED)
    for nodes in neighbourhoods(trial, aim, effort):
        proof = improved(trial, nodes, aim, effort, solve)
        seated = {step.pod.uid for step in trial.steps if isinstance(step, Seating)}
        if all(pod.uid in seated for pod in aim.waiting):
            break
    return proof
