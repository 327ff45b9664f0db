"""A batch's decision while the cluster goes on: what the solver thought of may no longer hold when it has thought."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from binpack.check_register import Register
from binpack.config import PlannerSettings
from binpack.controller.deciding import Decider
from binpack.controller.metrics import PlannerMetrics
from binpack.dra.desk import Desk
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.solver.question import Answer
from binpack.solver.solve import solve
from fleet.plan import SolveStatus, Source
from tests.support.berths import chosen, pod, seat, share


class World:
    """States and index, moved by hand."""

    def __init__(self, *states):
        self.states_now = {state.node.name: state for state in states}
        self.index = Index(states)
        self.register, self.desk, self.ledger = Register(states), Desk(), Ledger()
        self.waiting, self.weights = {}, {}
        self.coming = []

    def waited_s(self, uid):
        return 0.0

    def refresh(self):
        for state in self.coming:
            self.states_now[state.node.name] = state
            self.index.set_node(state)
        self.coming = []

    def states(self, names):
        return {name: self.states_now[name] for name in names if name in self.states_now}


class Solver:
    """Answers at once, after letting the cluster go on."""

    def __init__(self, meanwhile=lambda: None, answer=None):
        self.meanwhile, self.answer, self.asked = meanwhile, answer, 0

    async def solve(self, question, budget):
        self.asked += 1
        self.meanwhile()
        return self.answer or solve(question, budget)


def metrics():
    return PlannerMetrics(CollectorRegistry())


# One device each that the index, largest first, fills worse than the solver: see the planner's own tests.
PODS = [
    pod("p0", ask=share(500), cpu=5),
    pod("p1", ask=share(600), cpu=6),
    pod("p2", ask=share(400), cpu=2),
    pod("p3", ask=share(500), cpu=4),
    pod("p4", ask=share(600), cpu=2),
]


def two_nodes():
    return World(seat("n0", [1000], cpu=10), seat("n1", [1000], cpu=6))


async def test_the_solvers_plan_is_used_where_it_holds():
    plan = await Decider(Solver(), PlannerSettings(), metrics())(two_nodes(), PODS)
    assert (plan.source, len(plan.placements)) == (Source.SOLVER, 4)


async def test_without_solver_time_nobody_is_asked():
    solver = Solver()
    plan = await Decider(solver, PlannerSettings(solve_s=0.0), metrics())(two_nodes(), PODS)
    assert (solver.asked, plan.source, len(plan.placements)) == (0, Source.INDEX, 3)


@pytest.mark.parametrize("status", [SolveStatus.LATE_OR_DEAD, SolveStatus.UNKNOWN])
async def test_without_an_answer_the_index_decides(status):
    decider = Decider(Solver(answer=Answer(status=status, detail="gone")), PlannerSettings(), metrics())
    plan = await decider(two_nodes(), PODS)
    assert (plan.source, plan.solve_status, len(plan.placements)) == (Source.INDEX, status, 3)


async def test_a_pod_whose_berth_was_taken_meanwhile_gets_another_at_once():
    """Else it would wait until room appears somewhere, though there is room already."""
    world = World(seat("n1", [1000]), seat("n2", [1000]), seat("n3", [1000]))
    pods = [pod("a", ask=chosen(1), cpu=1), pod("b", ask=chosen(1), cpu=2)]
    first = await Decider(Solver(), PlannerSettings(solve_s=0.0), metrics())(world, pods)
    taken = first.placements[0].berth.node

    def another_scheduler():
        world.coming = [seat(taken, [0])]

    noted = metrics()
    plan = await Decider(Solver(another_scheduler), PlannerSettings(), noted)(world, pods)
    assert {placement.pod_uid for placement in plan.placements} == {"a", "b"}
    assert taken not in {placement.berth.node for placement in plan.placements}
    assert noted.violations._value.get() > 0
