"""Which pods to move to reach a goal: the search of the index first, then a solver over the nodes it touched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from binpack.check_moves import check_moves
from binpack.index import Index
from binpack.repack.allowance import Allowance
from binpack.repack.goals import empty_nodes, free_devices, seat_all
from binpack.repack.occupants import Occupants
from binpack.repack.room import Effort
from binpack.repack.telling import told
from binpack.repack.trial import Trial
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
    """
    emptied = goal.nodes if isinstance(goal, EmptyNodes) else ()
    allowance = Allowance(budget, past, now_s, emptied=emptied, closed=closed)
    has_budget = allowance.pods > 0
    known = index.arrays.slots
    trial = Trial(index, Occupants(index, (one for one in pods if one.berth.node in known)), allowance)
    plan = _reach(trial, goal, effort or Effort())
    if plan.verdict is Verdict.NOTHING_FOUND and not has_budget:
        plan = replace(plan, verdict=Verdict.NO_BUDGET)
    violations = check_moves(states, pods, goal.pods if isinstance(goal, MakeRoom) else (), plan)
    if violations:
        first = violations[0]
        why = f"the plan did not hold: {first.rule} for {first.pod_uid} on {first.node}"
        return MovePlan(verdict=Verdict.NOTHING_FOUND, unplaced=plan.unplaced, detail=why)
    return plan


def _reach(trial: Trial, goal: Goal, effort: Effort) -> MovePlan:
    if isinstance(goal, MakeRoom):
        unplaced = seat_all(trial, goal, effort)
        return told(trial, goal, effort, wanted=len(goal.pods), missed=len(unplaced), unplaced=unplaced)
    if isinstance(goal, FreeDevices):
        found = free_devices(trial, goal, effort)
        if found is None:
            trial.undo(0)
            return MovePlan(verdict=Verdict.NOT_NEEDED, detail="there are thousands of such seats already")
        return told(trial, goal, effort, wanted=goal.seats, missed=goal.seats - found)
    freed = empty_nodes(trial, goal)
    return told(trial, goal, effort, wanted=len(set(goal.nodes)), missed=len(set(goal.nodes)) - len(freed), freed=freed)
