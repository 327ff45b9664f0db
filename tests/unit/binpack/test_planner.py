"""From batch to plan: when the solver is asked, what becomes of its answer, and that nothing false gets through."""

import subprocess
import sys
from dataclasses import replace

import pytest

from binpack.demand import UNPLACED_PRICE, demand_milli, price_left_out, prices
from binpack.index import Index
from binpack.planner import draft, filled, improve, plan_batch, question_of, verified
from binpack.solver.instance import Budget
from binpack.solver.question import Answer
from binpack.solver.solve import solve
from fleet.plan import Placement, Plan, Reason, SolveStatus, Source, Unplaced
from fleet.pod import Berth
from tests.support.berths import chosen, classic, pod, seat, share

BUDGET = Budget(deterministic_s=0.2)


def states_of(*seats):
    return {state.node.name: state for state in seats}


def berths(plan):
    return {placement.pod_uid: placement.berth for placement in plan.placements}


def asked(index, pods):
    plan = draft(index, pods)
    return plan, question_of(index, pods, plan)


# -- when the solver is asked --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [pod("a", ask=share(470))],
        [pod("a", ask=share(470)), pod("b", ask=share(470))],
        [pod("a", ask=share(470)), pod("b", ask=chosen(9))],
        [pod("a", problems=("x",)), pod("b", problems=("x",))],
        [pod("a", ask=chosen(9)), pod("b", cpu=10_000)],
        [pod(f"p{i}", cpu=i / 1000) for i in range(257)],
    ],
    ids=["none", "one", "alike", "one and one that fits nowhere", "unreadable", "nothing fits", "too many kinds"],
)
def test_a_batch_that_the_solver_cannot_help_is_not_asked_about(pods):
    states = states_of(seat("n1", [1000, 1000]), seat("n2", [1000]))
    index = Index(states.values())
    _, question = asked(index, pods)
    assert question is None
    assert plan_batch(index, pods, BUDGET, states).solve_status is SolveStatus.NOT_ASKED


def test_pods_that_are_alike_are_asked_about_where_one_was_left_out():
    index = Index([seat("n1", [1000])])
    _, question = asked(index, [pod(name, ask=share(470)) for name in "abc"])
    assert question is not None


def test_without_a_budget_the_index_answers_alone():
    index = Index([seat("n1", [1000, 1000])])
    plan = plan_batch(index, [pod("a", ask=share(470)), pod("b", ask=share(530))])
    assert (plan.source, plan.solve_status, plan.bound) == (Source.INDEX, SolveStatus.NOT_ASKED, None)


def test_importing_the_planner_loads_no_solver():
    """The planner's process stays small: OR-Tools lives in the child."""
    script = "import binpack.planner, binpack.solver.process, sys; sys.exit('ortools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# -- what it can do ------------------------------------------------------------------------------------------------


def test_the_solver_places_a_pod_more_where_sizes_and_cores_must_match():
    """Largest first strands cores; of all ways to fill both devices only one seats four of the five pods."""
    states = states_of(seat("n0", [1000], cpu=10), seat("n1", [1000], cpu=6))
    index = Index(states.values())
    pods = [
        pod("p0", ask=share(500), cpu=5),
        pod("p1", ask=share(600), cpu=6),
        pod("p2", ask=share(400), cpu=2),
        pod("p3", ask=share(500), cpu=4),
        pod("p4", ask=share(600), cpu=2),
    ]
    first, plan = draft(index, pods), plan_batch(index, pods, BUDGET, states)
    assert (len(first.placements), len(plan.placements)) == (3, 4)
    assert (plan.source, plan.solve_status) == (Source.SOLVER, SolveStatus.OPTIMAL)
    assert plan.objective < first.objective
    assert plan.gap_ratio == pytest.approx(0.0, abs=1e-3)


def test_the_draft_places_the_hardest_first():
    states = states_of(seat("n1", [1000, 1000], cpu=12), seat("n2", [1000], cpu=4))
    pods = [pod("a", ask=chosen(1), cpu=4), pod("b", ask=chosen(2), cpu=4)]
    plan = draft(Index(states.values()), pods)
    assert berths(plan)["b"] == Berth(node="n1", devices=("0", "1"))
    assert berths(plan)["a"].node == "n2"


def test_of_equal_pods_the_one_that_waits_longest_comes_first():
    states = states_of(seat("n1", [1000]))
    late, early = pod("a", ask=chosen(1)), replace(pod("z", ask=chosen(1)), created_at_s=1.0)
    pods = [replace(late, created_at_s=2.0), early]
    assert set(berths(draft(Index(states.values()), pods))) == {"z"}


def test_a_higher_priority_comes_before_a_harder_pod():
    states = states_of(seat("n1", [1000, 1000]))
    pods = [pod("urgent", ask=share(100), priority=5), pod("hard", ask=chosen(2))]
    assert set(berths(draft(Index(states.values()), pods))) == {"urgent"}
    plan = plan_batch(Index(states.values()), pods, BUDGET, states)
    assert set(berths(plan)) == {"urgent"}
    assert plan.unplaced[0].reason is Reason.INSUFFICIENT


def test_classic_counts_are_planned_without_devices():
    states = states_of(
        seat("n1", [1000, 1000], is_sharing=False, extended={"nvidia.com/gpu": 2}),
        seat("n2", [1000], is_sharing=False, extended={"nvidia.com/gpu": 1}),
    )
    pods = [
        pod("a", ask=classic(1), extended={"nvidia.com/gpu": 1}),
        pod("b", ask=classic(2), extended={"nvidia.com/gpu": 2}),
        pod("c", ask=classic(1), extended={"nvidia.com/gpu": 1}),
    ]
    plan = plan_batch(Index(states.values()), pods, BUDGET, states)
    assert plan.solve_status is SolveStatus.OPTIMAL
    assert berths(plan)["b"] == Berth(node="n1")
    assert {berths(plan)[name].devices for name in "abc" if name in berths(plan)} == {()}


def test_cpu_pods_stay_off_devices_while_other_nodes_have_room():
    states = states_of(seat("gpu", [1000], cpu=64), seat("cpu", cpu=5))
    pods = [pod("a", cpu=3), pod("b", cpu=2), pod("c", cpu=1), pod("d", ask=share(500))]
    plan = plan_batch(Index(states.values()), pods, BUDGET, states)
    assert len(plan.placements) == 4
    assert sum(berths(plan)[name].node == "cpu" for name in "abc") == 2


# -- what becomes of an answer -------------------------------------------------------------------------------------


def question_and_answer():
    index = Index([seat("n1", [1000, 560, 480]), seat("n2", [1000, 530]), seat("n3", [810])])
    pods = [pod(f"p{i}", ask=share(milli)) for i, milli in enumerate((470, 530, 320, 270, 810))]
    first, question = asked(index, pods)
    return pods, first, question, solve(question, BUDGET)


def test_the_better_plan_is_taken_and_its_bound_lies_below():
    pods, first, question, answer = question_and_answer()
    better = replace(answer, cost=answer.draft_cost - 50, gap_milli_gpu=7.0)
    plan = improve(first, pods, question, better)
    assert (plan.source, plan.solve_status) == (Source.SOLVER, answer.status)
    assert plan.objective == pytest.approx(first.objective - 50)
    assert plan.bound == pytest.approx(plan.objective - 7)


def test_an_answer_that_saves_nothing_leaves_the_draft_in_place():
    pods, first, question, answer = question_and_answer()
    same = replace(answer, cost=answer.draft_cost, gap_milli_gpu=7.0)
    plan = improve(first, pods, question, same)
    assert plan.placements == first.placements
    assert (plan.source, plan.objective, plan.bound) == (Source.INDEX, first.objective, first.objective - 7)


def test_an_answer_that_leaves_out_more_is_not_taken_however_cheap():
    pods, first, question, answer = question_and_answer()
    plan = improve(first, pods, question, replace(answer, seats=answer.seats[1:], cost=-(10**6)))
    assert plan.placements == first.placements


@pytest.mark.parametrize("status", [SolveStatus.UNKNOWN, SolveStatus.INFEASIBLE, SolveStatus.LATE_OR_DEAD])
def test_without_an_answer_the_draft_stands_and_says_why(status):
    pods, first, question, _ = question_and_answer()
    assert improve(first, pods, question, Answer(status=status)) == replace(first, solve_status=status)


def test_a_pod_that_the_solver_left_out_though_it_fits_is_placed_after_all():
    index = Index([seat("n1", [1000, 1000])])
    pods = [pod("a", ask=chosen(1)), pod("b", ask=share(500)), pod("c", ask=chosen(2))]
    plan = Plan(
        placements=(placed("a", "n1", "0", score=3.0),),
        unplaced=tuple(Unplaced(pod_uid=uid, reason=Reason.INSUFFICIENT) for uid in "bc"),
        source=Source.SOLVER,
        objective=3.0 + sum(prices(pods)[uid] for uid in "bc"),
        bound=1.0,
    )
    full = filled(index, pods, plan)
    assert berths(full)["b"] == Berth(node="n1", devices=("1",))
    assert [unplaced.pod_uid for unplaced in full.unplaced] == ["c"]
    assert full.unplaced[0].shortfall is not None
    assert plan.objective - prices(pods)["b"] < full.objective < plan.objective
    assert full.bound is None
    assert filled(index, pods, full) == full
    assert index.place(pods[2]).berth == Berth(node="n1", devices=("0", "1"))


def test_a_berth_that_is_gone_is_left_to_the_verifier():
    index = Index([seat("n1", [1000])])
    pods = [pod("a", ask=chosen(1)), pod("b", ask=chosen(1))]
    plan = Plan(placements=(placed("a", "gone", "0"),), unplaced=(Unplaced(pod_uid="b", reason=Reason.INSUFFICIENT),))
    assert filled(index, pods, plan) is plan


# -- prices --------------------------------------------------------------------------------------------------------


def test_one_pod_of_high_priority_outweighs_all_of_low_together():
    pods = [pod("high", priority=2), *(pod(f"low{i}", ask=chosen(8), priority=1) for i in range(50)), pod("lowest")]
    price = prices(pods)
    assert price["high"] > sum(price[f"low{i}"] for i in range(50))
    assert price["low0"] > price["lowest"] == UNPLACED_PRICE * demand_milli(pods[-1])
    assert price_left_out(pods, [Unplaced(pod_uid="high", reason=Reason.INSUFFICIENT)]) == price["high"]


@pytest.mark.parametrize(
    ("one", "milli"),
    [
        (pod("a", cpu=0), 100),
        (pod("a", cpu=32), 2000),
        (pod("a", cpu=0, ask=chosen(8)), 8000),
        (pod("a", cpu=1.6, ask=share(500, count=2)), 1100),
        (pod("a", cpu=0, ask=share(0, mib=40_000)), 500),
        (pod("a", cpu=2**60), 1_000_000),
    ],
)
def test_demand(one, milli):
    assert demand_milli(one) == milli


# -- the last word -------------------------------------------------------------------------------------------------


def placed(uid, node, *devices, score=0.0):
    return Placement(pod_uid=uid, berth=Berth(node=node, devices=devices), score=score)


def test_the_first_plan_without_a_violation_is_taken():
    states = states_of(seat("n1", [1000]))
    pods = [pod("a", ask=chosen(1))]
    bad, good = Plan(placements=(placed("a", "gone", "0"),)), Plan(placements=(placed("a", "n1", "0"),))
    assert verified([good, bad], pods, states).violations == ()
    outcome = verified([bad, good], pods, states)
    assert outcome.plan is good
    assert [violation.node for violation in outcome.violations] == ["gone"]


def test_what_no_longer_holds_is_left_out_and_the_rest_kept():
    """The cluster went on while the solver thought: another scheduler took the card of one pod."""
    states = states_of(seat("n1", [0, 1000]))
    pods = [pod("a", ask=chosen(1)), pod("b", ask=chosen(1)), pod("c", ask=chosen(4))]
    plan = Plan(
        placements=(placed("a", "n1", "0", score=5.0), placed("b", "n1", "1", score=7.0)),
        unplaced=(Unplaced(pod_uid="c", reason=Reason.NO_SUCH_DEVICE),),
        bound=1.0,
    )
    outcome = verified([plan], pods, states)
    assert set(berths(outcome.plan)) == {"b"}
    reasons = {unplaced.pod_uid: unplaced.reason for unplaced in outcome.plan.unplaced}
    assert reasons == {"a": Reason.INSUFFICIENT, "c": Reason.NO_SUCH_DEVICE}
    assert outcome.plan.objective == 7.0 + price_left_out(pods, outcome.plan.unplaced)
    assert outcome.plan.bound is None


def test_a_pod_that_a_plan_forgot_is_accounted_for():
    outcome = verified([Plan()], [pod("a")], {})
    assert [unplaced.pod_uid for unplaced in outcome.plan.unplaced] == ["a"]
