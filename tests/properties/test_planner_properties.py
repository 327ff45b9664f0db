"""What holds for every plan, whatever the cluster and the batch."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpack.check import check
from binpack.demand import demand_milli
from binpack.index import Index
from binpack.planner import draft, improve, plan_batch, question_of, verified
from binpack.solver.instance import Budget
from binpack.solver.solve import solve
from fleet.plan import Placement, Plan, SolveStatus, Source, Unplaced
from fleet.pod import Berth
from tests.support.worlds import batches, clusters

BUDGET = Budget(deterministic_s=0.05)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def by_name(states):
    return {state.node.name: state for state in states}


def berths(plan):
    return {placement.pod_uid: placement.berth for placement in plan.placements}


@FEW
@given(clusters(), batches())
def test_the_draft_breaks_no_rule_and_leaves_the_index_as_it_was(states, pods):
    index = Index(states)
    before = [index.place(pod) for pod in pods]
    plan = draft(index, pods)
    assert not check(by_name(states), pods, plan)
    assert [index.place(pod) for pod in pods] == before


@FEW
@given(clusters(), batches())
def test_the_solvers_plan_breaks_no_rule_and_is_never_worse(states, pods):
    index = Index(states)
    first = draft(index, pods)
    question = question_of(index, pods, first)
    if question is None:
        return
    answer = solve(question, BUDGET)
    plan = improve(first, pods, question, answer)
    assert not check(by_name(states), pods, plan)
    assert plan.objective <= first.objective
    assert plan.bound is None or plan.bound <= plan.objective + 1e-6
    assert (plan.source is Source.INDEX) == (berths(plan) == berths(first) and plan.placements == first.placements)
    assert answer.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)


@FEW
@given(clusters(), batches(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_pods_or_nodes(states, pods, random):
    plan = plan_batch(Index(states), pods, BUDGET, by_name(states))
    mixed_pods, mixed_states = random.sample(pods, len(pods)), random.sample(states, len(states))
    other = plan_batch(Index(mixed_states), mixed_pods, BUDGET, by_name(states))
    assert berths(other) == berths(plan)
    assert {u.pod_uid: u.reason for u in other.unplaced} == {u.pod_uid: u.reason for u in plan.unplaced}
    assert other.objective == plan.objective


@FEW
@given(clusters(), batches(), st.sampled_from((None, BUDGET)))
def test_every_pod_left_out_fits_nowhere_beside_the_others(states, pods, budget):
    index = Index(states)
    plan = plan_batch(index, pods, budget)
    by_uid = {pod.uid: pod for pod in pods}
    for placement in plan.placements:
        index.take(by_uid[placement.pod_uid], placement.berth)
    for unplaced in plan.unplaced:
        answer = index.place(by_uid[unplaced.pod_uid])
        assert isinstance(answer, Unplaced)
        assert answer.reason is unplaced.reason


@FEW
@given(clusters(most=3), batches(most=6))
def test_no_pod_of_high_priority_is_given_up_for_ones_of_low(states, pods):
    index = Index(states)
    first, plan = draft(index, pods), plan_batch(index, pods, BUDGET, by_name(states))

    def left_out(of):
        return sum(demand_milli(pod) for pod in pods if pod.priority > 0 and pod.uid not in berths(of))

    assert left_out(plan) <= left_out(first)


@FEW
@given(clusters(), batches(), st.data())
def test_whatever_is_proposed_only_what_holds_is_kept(states, pods, data):
    """A plan made of arbitrary berths is cut down until it breaks no rule, and every pod still stands in it once."""
    names = [state.node.name for state in states] + ["ghost"]
    ids = ["0", "1", "2", "3", "9"]
    wild = [
        Placement(
            pod_uid=pod.uid,
            berth=Berth(
                node=data.draw(st.sampled_from(names)),
                devices=tuple(data.draw(st.lists(st.sampled_from(ids), max_size=2))),
            ),
        )
        for pod in pods
        if data.draw(st.booleans())
    ]
    proposed = Plan(placements=tuple(wild), unplaced=())
    outcome = verified([proposed], pods, by_name(states))
    assert not check(by_name(states), pods, outcome.plan)
    assert sorted([p.pod_uid for p in outcome.plan.placements] + [u.pod_uid for u in outcome.plan.unplaced]) == sorted(
        pod.uid for pod in pods
    )
    assert bool(outcome.violations) == bool(check(by_name(states), pods, proposed))


@FEW
@given(clusters(), batches())
def test_an_answer_is_the_same_every_time(states, pods):
    index = Index(states)
    question = question_of(index, pods, draft(index, pods))
    if question is not None:
        assert solve(question, BUDGET) == solve(replace(question), BUDGET)
