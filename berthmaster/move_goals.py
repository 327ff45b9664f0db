"""What `plan --moves` asks for, and the proposal for each goal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from berthmaster.view import View
from binpack.relocation.candidates import allowed_at_a_time, movables
from binpack.repack.propose import propose
from binpack.repack.values import EmptyNodes, FreeDevices, Goal, MakeRoom, MoveBudget, MovePlan
from binpack.solver.here import solver
from binpack.solver.instance import Budget
from fleet.budget import DisruptionBudget, budgets_of
from fleet.plan import Plan
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What moves are asked for.

    Attributes:
        openings: Pods for which devices are to be free beside those that are.
        devices: Of each of them, on one node.
        empty: Nodes to empty.
        budget: How many pods may be moved.
    """

    openings: int = 0
    devices: int = 1
    empty: tuple[str, ...] = ()
    budget: MoveBudget = MoveBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """One goal and the moves towards it."""

    title: str
    plan: MovePlan


def proposed(
    view: View,
    plan: Plan,
    batch: Sequence[Pod],
    budgets: Iterable[DisruptionBudget],
    wish: Wish,
    solver_time: Budget | None,
) -> list[Proposed]:
    """Return a proposal for the pods that a plan leaves waiting, one for free devices and one for nodes to empty.

    The plan is booked in the view, so that nothing is proposed on the berths that it gives away.

    Args:
        view: The cluster.
        plan: What is done without moves.
        batch: Its pods.
        budgets: All disruption budgets.
        wish: What is asked for.
        solver_time: None = the search alone.
    """
    pods = {pod.uid: pod for pod in batch}
    for placement in plan.placements:
        view.ledger.assume(pods[placement.pod_uid], placement.berth)
        view.desk.assume(placement.pod_uid, placement.berth.choices)
    view.refresh()
    known = tuple(budgets)
    covering = partial(budgets_of, budgets=known)
    placed = (pod for pod in view.pods.values() if pod.node_name)
    may_move = movables(placed, view.states, covering, claimed=view.desk.held_alone)
    budget = MoveBudget(
        pods_per_hour=wish.budget.pods_per_hour,
        per_service=wish.budget.per_service,
        per_node=wish.budget.per_node,
        allowed=allowed_at_a_time(may_move, covering),
    )
    solve = None if solver_time is None else solver(solver_time)
    return [
        Proposed(title=title, plan=propose(view.index, view.states, may_move, goal, budget, 0.0, solve=solve))
        for title, goal in _goals(plan, pods, wish)
    ]


def _goals(plan: Plan, pods: dict[str, Pod], wish: Wish) -> list[tuple[str, Goal]]:
    waiting = [pods[unplaced.pod_uid] for unplaced in plan.unplaced]
    gangs = sorted({(pod.namespace, pod.gang) for pod in waiting if pod.gang})
    goals: list[tuple[str, Goal]] = []
    for namespace, name in gangs:
        members = tuple(pod for pod in waiting if (pod.namespace, pod.gang) == (namespace, name))
        goals.append((f"room for gang {namespace}/{name}", MakeRoom(pods=members, is_gang=True)))
    alone = tuple(pod for pod in waiting if not pod.gang)
    if alone:
        what = alone[0].key if len(alone) == 1 else f"{len(alone)} waiting pods"
        goals.append((f"room for {what}", MakeRoom(pods=alone)))
    if wish.openings:
        what = (
            f"{wish.openings} device(s) free" if wish.devices == 1 else f"{wish.openings} x {wish.devices} devices free"
        )
        goals.append((f"{what}, beside those that are", FreeDevices(openings=wish.openings, devices=wish.devices)))
    if wish.empty:
        goals.append((f"nothing left on {', '.join(wish.empty)}", EmptyNodes(nodes=wish.empty)))
    return goals
