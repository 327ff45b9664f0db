"""CP-SAT's answer to small instances, against every answer there is."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpack.solver.instance import Budget, Column, Instance, PodGroup, left_out, overdrawn, value
from binpack.solver.model import solve
from binpack.solver.relax import Prices, no_prices, prices
from fleet.plan import SolveStatus

BUDGET = Budget(deterministic_s=1.0)
FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def instances(draw):
    pods = tuple(
        PodGroup(count=draw(st.integers(1, 2)), tier=draw(st.integers(0, 2)), demand=draw(st.sampled_from((1, 3, 10))))
        for _ in range(draw(st.integers(1, 3)))
    )
    counts = tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=3)))
    reserves = draw(st.integers(0, 2))
    columns = []
    for node in range(len(counts)):
        for _ in range(draw(st.integers(0, 3))):
            groups = draw(st.lists(st.integers(0, len(pods) - 1), min_size=1, max_size=2, unique=True))
            takes = tuple(sorted((group, draw(st.integers(1, pods[group].count))) for group in groups))
            breaks = tuple(r for r in range(reserves) if draw(st.booleans()))
            columns.append(
                Column(node_group=node, takes=takes, cost=draw(st.integers(-20, 60)), breaks=breaks),
            )
    instance = Instance(
        pods=pods,
        node_counts=counts,
        columns=tuple(columns),
        hint=(0,) * len(columns),
        unplaced_price=100,
        spare=tuple(draw(st.integers(0, 1)) for _ in range(reserves)),
        reserve_price=30,
    )
    return replace(instance, hint=draw(st.sampled_from(answers(instance))))


def answers(instance):
    """Return every feasible use of the columns."""
    ranges = [range(instance.node_counts[column.node_group] + 1) for column in instance.columns]
    return [uses for uses in product(*ranges) if is_feasible(instance, uses)]


def is_feasible(instance, uses):
    per_node = [0] * len(instance.node_counts)
    for column, times in zip(instance.columns, uses, strict=True):
        per_node[column.node_group] += times
    return all(n <= most for n, most in zip(per_node, instance.node_counts, strict=True)) and all(
        n >= 0 for n in left_out(instance, uses)
    )


def rank(instance, uses):
    """Return the lexicographic value: demand left out from the top tier down, the last one priced with the cost."""
    missing = [0, 0, 0]
    for group, n in zip(instance.pods, left_out(instance, uses), strict=True):
        missing[group.tier] += group.demand * n
    return (missing[2], missing[1], value(instance, uses))


@FEW
@given(instances())
def test_the_answer_is_the_best_of_all(instance):
    solution = solve(instance, BUDGET, prices(instance))
    assert solution.status is SolveStatus.OPTIMAL
    assert is_feasible(instance, solution.uses)
    best = min(rank(instance, uses) for uses in answers(instance))
    assert rank(instance, solution.uses) == best
    assert solution.bound == best[2]


@FEW
@given(instances(), st.data())
def test_wrong_prices_cost_time_and_never_correctness(instance, data):
    any_price, paid = st.integers(-200, 2000), st.integers(-200, 0)
    wild = Prices(
        pods=tuple(data.draw(any_price) for _ in instance.pods),
        nodes=tuple(data.draw(paid) for _ in instance.node_counts),
        reserves=tuple(data.draw(st.integers(-30, 0)) for _ in instance.spare),
    )
    solution = solve(instance, BUDGET, wild)
    assert rank(instance, solution.uses) == min(rank(instance, uses) for uses in answers(instance))
    assert solution.bound is not None
    assert solution.bound <= value(instance, solution.uses)


@FEW
@given(instances())
def test_the_relaxation_is_a_bound(instance):
    found = prices(instance)
    flat = replace(instance, pods=tuple(replace(group, tier=0) for group in instance.pods))
    bound = (
        sum(p * g.count for p, g in zip(found.pods, flat.pods, strict=True))
        + sum(p * n for p, n in zip(found.nodes, flat.node_counts, strict=True))
        + sum(p * n for p, n in zip(found.reserves, flat.spare, strict=True))
    )
    rounding = len(flat.columns) + sum(g.count for g in flat.pods) + sum(flat.node_counts) + sum(flat.spare)
    assert bound <= min(value(flat, uses) for uses in answers(flat)) + rounding


def test_a_reserve_is_broken_into_only_where_it_pays():
    instance = Instance(
        pods=(PodGroup(count=2, tier=0, demand=1),),
        node_counts=(2, 2),
        columns=(
            Column(node_group=0, takes=((0, 1),), cost=0, breaks=(0,)),
            Column(node_group=1, takes=((0, 1),), cost=20),
        ),
        hint=(0, 2),
        unplaced_price=1000,
        spare=(1,),
        reserve_price=30,
    )
    solution = solve(instance, BUDGET)
    assert solution.uses == (1, 1)
    assert overdrawn(instance, solution.uses) == (0,)
    assert solve(replace(instance, reserve_price=10), BUDGET).uses == (2, 0)


def test_near_enough_counts_as_optimal_and_the_bound_stays_honest():
    instance = Instance(
        pods=(PodGroup(count=1, tier=0, demand=1),),
        node_counts=(1, 1),
        columns=(Column(node_group=0, takes=((0, 1),), cost=7), Column(node_group=1, takes=((0, 1),), cost=5)),
        hint=(1, 0),
        unplaced_price=1000,
    )
    solution = solve(instance, BUDGET, no_prices(instance), near_enough=10_000)
    assert solution.status is SolveStatus.OPTIMAL
    assert solution.bound <= 5


def test_numbers_that_overflow_are_an_error_and_not_an_answer():
    instance = Instance(
        pods=(PodGroup(count=1, tier=0, demand=1),),
        node_counts=(1,),
        columns=(Column(node_group=0, takes=((0, 1),), cost=2**62),),
        hint=(1,),
        unplaced_price=2**62,
    )
    with pytest.raises(ValueError, match="CP-SAT refuses"):
        solve(instance, BUDGET)


def test_no_columns_leave_everything_out():
    instance = Instance(
        pods=(PodGroup(count=3, tier=0, demand=2),), node_counts=(), columns=(), hint=(), unplaced_price=10
    )
    solution = solve(instance, BUDGET, prices(instance))
    assert (solution.status, solution.uses, solution.bound) == (SolveStatus.OPTIMAL, (), 60)
