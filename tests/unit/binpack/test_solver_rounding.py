"""What is settled of an instance and what is left of it, against the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpack.solver import rounding
from binpack.solver.instance import Budget, Column, Instance, PodGroup, cost, left_out, value
from binpack.solver.model import solve
from binpack.solver.relax import Relaxation, prices
from fleet.plan import SolveStatus
from tests.unit.binpack.test_solver_model import answers, instances, is_feasible

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(instances(), st.data())
def test_settled_uses_and_what_is_left_make_the_whole(instance, data):
    whole = data.draw(st.sampled_from(answers(instance)))
    fixed = tuple(data.draw(st.integers(0, times)) for times in whole)
    part = rounding.part(instance, fixed, whole)
    assert part.whole(part.instance.hint) == whole
    ranges = [range(part.instance.node_counts[column.node_group] + 1) for column in part.instance.columns]
    for uses in product(*ranges):
        if is_feasible(part.instance, uses):
            assert is_feasible(instance, part.whole(uses))
            dearer = cost(instance, part.whole(uses)) - cost(part.instance, uses)
            assert dearer == cost(instance, fixed), "the rest costs the same whatever is chosen"


@FEW
@given(instances())
def test_more_than_there_is_cannot_be_settled(instance):
    if instance.columns:
        fixed = (instance.node_counts[instance.columns[0].node_group] + 1, *instance.hint[1:])
        assert rounding.part(instance, fixed, fixed) is None


@FEW
@given(instances())
def test_a_relaxation_that_gains_columns_prices_them_as_if_it_had_had_them_at_once(instance):
    relaxation = Relaxation()
    for count in range(len(instance.columns) + 1):
        part = replace(instance, columns=instance.columns[:count], hint=instance.hint[:count])
        grown, fresh = relaxation.prices(part), prices(part)
        assert abs(_worth(part, grown) - _worth(part, fresh)) <= len(instance.pods) + sum(instance.node_counts) + 4
    cheaper = tuple(replace(column, cost=column.cost - 15) for column in instance.columns)
    part = replace(instance, columns=cheaper)
    assert abs(_worth(part, relaxation.prices(part)) - _worth(part, prices(part))) <= 12


def _worth(instance, found):
    """Return the relaxation's bound, but for rounding."""
    return (
        sum(price * group.count for price, group in zip(found.pods, instance.pods, strict=True))
        + sum(price * count for price, count in zip(found.nodes, instance.node_counts, strict=True))
        + sum(price * spare for price, spare in zip(found.reserves, instance.spare, strict=True))
    )


def test_a_backlog_is_rounded_where_the_search_alone_would_keep_the_hint():
    """Forty kinds of nodes, each with a dear and a cheap way; the hint takes the dear ones."""
    kinds = range(40)
    columns = tuple(
        Column(node_group=kind, takes=((kind, many),), cost=dear * many + (0 if many > 1 else 3))
        for kind in kinds
        for many, dear in ((1, 50), (2, 20), (3, 21))
    )
    instance = Instance(
        pods=tuple(PodGroup(count=31 + kind, tier=0, demand=1) for kind in kinds),
        node_counts=(80,) * len(kinds),
        columns=columns,
        hint=tuple(31 + column.node_group if column.takes[0][1] == 1 else 0 for column in columns),
        unplaced_price=10_000,
    )
    found = solve(instance, Budget(deterministic_s=0.002), prices(instance))
    assert found.uses
    assert not any(left_out(instance, found.uses))
    assert value(instance, found.uses) < 0.5 * value(instance, instance.hint)
    assert found.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)
    assert found.bound <= value(instance, found.uses)
    assert value(instance, found.uses) - found.bound < 0.02 * value(instance, found.uses)


def test_an_urgent_pod_that_is_placed_does_not_loosen_the_bound():
    column = Column(node_group=0, takes=((0, 1),), cost=7)
    instance = Instance(
        pods=(PodGroup(count=1, tier=1, demand=5), PodGroup(count=1, tier=0, demand=5)),
        node_counts=(1, 1),
        columns=(column, Column(node_group=1, takes=((1, 1),), cost=9)),
        hint=(1, 1),
        unplaced_price=1_000,
    )
    found = solve(instance, Budget(deterministic_s=0.1), prices(instance))
    assert (found.status, found.bound, value(instance, found.uses)) == (SolveStatus.OPTIMAL, 16, 16)
