"""What holds for every proposal of moves, whatever the cluster, the goal and the budget."""

from collections import Counter
from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpack.check_moves import check_moves
from binpack.demand import demand_milli
from binpack.repack.propose import propose
from binpack.repack.values import EmptyNodes, FreeDevices, MakeRoom, MoveBudget, Verdict
from binpack.solver.instance import Budget
from binpack.solver.solve import solve
from fleet.plan import Placement
from tests.support.repacking import scenes

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
AMPLE = MoveBudget(pods_per_hour=1000, per_service=1000, per_node=1000)

budgets = st.builds(
    MoveBudget, pods_per_hour=st.integers(0, 4), per_service=st.integers(1, 2), per_node=st.integers(1, 3)
)


@st.composite
def goals(draw, scene):
    match draw(st.integers(0, 3)):
        case 0:
            return EmptyNodes(nodes=tuple(draw(st.permutations([node.name for node in scene.nodes]))))
        case 1:
            return FreeDevices(openings=draw(st.integers(1, 2)), devices=draw(st.integers(1, 2)))
        case _:
            return MakeRoom(pods=scene.waiting, is_gang=draw(st.booleans()))


def run(scene, goal, budget, index=None, solve=None):
    return propose(index or scene.index(), scene.states(), scene.movables, goal, budget, 0.0, solve=solve)


def by_patterns(question):
    return solve(question, Budget(deterministic_s=0.05))


@MANY
@given(st.data(), scenes(), budgets)
def test_a_proposal_breaks_no_rule_and_leaves_the_index_as_it_was(data, scene, budget):
    goal = data.draw(goals(scene))
    index = scene.index()
    before = [index.place(pod) for pod in scene.waiting], index.potential()
    plan = run(scene, goal, budget, index)
    assert ([index.place(pod) for pod in scene.waiting], index.potential()) == before
    assert "did not hold" not in plan.detail
    waiting = scene.waiting if isinstance(goal, MakeRoom) else ()
    assert not check_moves(scene.states(), scene.movables, waiting, plan, budget)


@FEW
@given(st.data(), scenes(), budgets)
def test_the_solver_breaks_no_rule_either_and_never_makes_it_worse(data, scene, budget):
    goal = data.draw(goals(scene))
    first, plan = run(scene, goal, budget), run(scene, goal, budget, solve=by_patterns)
    waiting = scene.waiting if isinstance(goal, MakeRoom) else ()
    assert "did not hold" not in plan.detail
    assert not check_moves(scene.states(), scene.movables, waiting, plan, budget)
    assert left_out(goal, plan) <= left_out(goal, first)
    if left_out(goal, plan) == left_out(goal, first) and plan.freed_nodes == first.freed_nodes:
        assert plan.objective <= first.objective + 1e-6
    assert plan.bound is None or plan.bound <= plan.objective + 1e-6


def left_out(goal, plan):
    placed = {placement.pod_uid for placement in plan.placements}
    pods = goal.pods if isinstance(goal, MakeRoom) else ()
    return sum(demand_milli(pod) for pod in pods if pod.uid not in placed)


@MANY
@given(st.data(), scenes(), budgets)
def test_a_proposal_keeps_to_the_budget(data, scene, budget):
    goal = data.draw(goals(scene))
    plan = run(scene, goal, budget)
    service = {one.pod.uid: one.service for one in scene.movables}
    assert len(plan.moves) <= budget.pods_per_hour
    moved = Counter(service[move.pod_uid] for move in plan.moves)
    assert all(n <= budget.per_service for name, n in moved.items() if name)
    emptied = set(goal.nodes) if isinstance(goal, EmptyNodes) else set()
    touched = Counter(name for move in plan.moves for name in {move.source.node, move.target.node} - emptied)
    assert all(n <= budget.per_node for n in touched.values())


@MANY
@given(scenes())
def test_a_pod_that_one_move_would_help_is_helped(scene):
    index, pod = scene.index(), scene.waiting[0]
    if isinstance(index.place(pod), Placement) or not one_move_helps(scene, pod):
        return
    plan = run(scene, MakeRoom(pods=(pod,)), AMPLE)
    assert plan.verdict is Verdict.REACHED
    assert [placement.pod_uid for placement in plan.placements] == [pod.uid]


def one_move_helps(scene, pod):
    """Try every movable pod on every other node, by the definition of fitting and not by the index's search."""
    index = scene.index()
    for movable, node in product(scene.movables, scene.nodes):
        if node.name == movable.berth.node:
            continue
        options = [o for o in index.options(movable.pod, len(scene.nodes)) if o.berth.node == node.name]
        if not options:
            continue
        index.take(movable.pod, options[0].berth)
        index.give_back(movable.pod, movable.berth)
        helps = isinstance(index.place(pod), Placement)
        index.take(movable.pod, movable.berth)
        index.give_back(movable.pod, options[0].berth)
        if helps:
            return True
    return False


@MANY
@given(scenes())
def test_gangs_are_seated_as_a_whole_or_nothing_is_moved(scene):
    plan = run(scene, MakeRoom(pods=scene.waiting, is_gang=True), AMPLE)
    assert len(plan.placements) in (0, len(scene.waiting))
    if not plan.placements:
        assert not plan.moves
        assert plan.verdict is Verdict.NOTHING_FOUND


@MANY
@given(scenes())
def test_emptied_nodes_are_empty_of_whatever_may_be_moved(scene):
    names = tuple(node.name for node in scene.nodes)
    plan = run(scene, EmptyNodes(nodes=names), AMPLE)
    now = {one.pod.uid: one.berth.node for one in scene.movables} | {m.pod_uid: m.target.node for m in plan.moves}
    assert not set(now.values()) & set(plan.freed_nodes)
    left = {m.source.node for m in plan.moves}
    assert left <= set(plan.freed_nodes), "a node that is not emptied is left alone"


@MANY
@given(scenes(), st.integers(1, 2), st.integers(1, 3))
def test_freed_devices_are_counted_as_they_are(scene, seats, devices):
    index = scene.index()
    plan = run(scene, FreeDevices(openings=seats, devices=devices), AMPLE, index)
    by_uid = {one.pod.uid: one.pod for one in scene.movables}
    before = int(index.arrays.untouched.sum())
    for move in plan.moves:
        index.take(by_uid[move.pod_uid], move.target)
        index.give_back(by_uid[move.pod_uid], move.source)
    assert int(index.arrays.untouched.sum()) - before == plan.freed_devices
    if plan.verdict is Verdict.REACHED:
        assert plan.freed_devices >= 0
