"""Which pools there should be: the cost model against its oracle, and a choice that serves everybody."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpool.advice.groups import candidates
from warmpool.advice.propose import propose
from warmpool.advice.sizing import Hours, dispersion, node_share
from warmpool.advice.values import Demand, NodeShape

LEAD_S = 511.0
H1 = NodeShape(name="h1", devices=1, model="H100", hour_cost=4.0, lead_s=LEAD_S)
H8 = NodeShape(name="h8", devices=8, model="H100", hour_cost=30.0, lead_s=LEAD_S)
A1 = NodeShape(name="a1", devices=1, model="A100", hour_cost=2.0, lead_s=LEAD_S)


def steady(name, per_hour, *, shape="h1", devices=1, model="H100", images=None, goal=0.99, hours=100):
    return Demand(
        name=name,
        shape=shape,
        devices=devices,
        model=model,
        images=(f"img-{name}",) if images is None else images,
        goal_ratio=goal,
        hourly=(float(per_hour),) * hours,
    )


def cost(shape, *demands, goal=0.99):
    return Hours(demands).cost(demands, shape, goal)


# -- the cost model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("per_hour", "size", "idle"), [(1.2, 3, 2.83), (6, 5, 4.15), (30, 11, 6.74), (120, 28, 10.98)])
def test_poisson_draws_need_what_the_formula_says(per_hour, size, idle):
    """S = least with P(N <= S - 1) >= 0.99 and E[(S - N)+] for N ~ Poisson(rate x 511 s)."""
    found = cost(H1, steady("m", per_hour))
    assert found.peak_size == size
    assert found.idle_nodes == pytest.approx(idle, abs=0.03 * per_hour * LEAD_S / 3600 + 0.01)  # rates in steps of 3 %
    assert found.hour_cost == pytest.approx(4.0 * found.idle_nodes)
    assert found.hit_ratio >= 0.99


def test_nothing_drawn_is_nothing_kept():
    found = cost(H1, steady("m", 0))
    assert (found.size, found.idle_nodes, found.hit_ratio) == (0, 0, 1)
    assert cost(H1, Demand(name="new", shape="h1", devices=1)).size == 0


def test_bursts_need_more_than_poisson_and_a_daily_rhythm_is_no_burst():
    draw = random.Random(1)
    batches = tuple(8.0 if draw.random() < 0.25 else 0.0 for _ in range(2000))
    rhythm = tuple(10.0 + 9.0 * math.sin(hour / 24 * 2 * math.pi) for hour in range(2000))
    assert dispersion((4.0,) * 50) == 1.0
    assert dispersion(batches) == pytest.approx(6.0, rel=0.15)  # variance / mean of 8 x Bernoulli(1/4)
    assert dispersion(rhythm) == 1.0
    assert dispersion((None, 3.0, None, 5.0)) == 1.0
    calm = Demand(name="c", shape="h1", devices=1, hourly=(2.0,) * 2000)
    wild = Demand(name="w", shape="h1", devices=1, hourly=batches)
    assert cost(H1, wild).peak_size > cost(H1, calm).peak_size


def test_the_coming_hour_is_not_foreseen():
    """A spike that comes out of nothing is sized for after it has come, not before."""
    spike = (0.0,) * 50 + (100.0,) + (0.0,) * 50
    sizes = [cost(H1, Demand(name="s", shape="h1", devices=1, hourly=spike[:end])).peak_size for end in (51, 52)]
    assert sizes[0] < sizes[1]


def test_what_was_not_watched_counts_as_nothing_known():
    known = steady("k", 6, hours=50)
    gaps = Demand(name="g", shape="h1", devices=1, hourly=(6.0, None) * 50)
    assert cost(H1, gaps).idle_nodes == pytest.approx(cost(H1, known).idle_nodes)
    assert (gaps.per_hour, gaps.watched_hours) == (6.0, 50)


@pytest.mark.parametrize(
    ("demand", "shape", "share"),
    [
        (steady("m", 1), H1, 1.0),
        (steady("m", 1), H8, 1 / 8),
        (steady("m", 1, devices=3), H8, 1 / 2),
        (steady("m", 1, devices=3), H1, 0.0),
        (steady("m", 1), A1, 0.0),
        (steady("m", 1, model=""), A1, 1.0),
        (steady("m", 1, devices=0, shape="h8"), H8, 1.0),
        (steady("m", 1, devices=0, shape="h8"), H1, 0.0),
    ],
)
def test_what_part_of_a_node_a_draw_takes(demand, shape, share):
    assert node_share(demand, shape) == share


# -- the choice ------------------------------------------------------------------------------------------------


def test_five_pools_become_one():
    """30 draws an hour in one pool need 11 nodes, as five pools of 6 they need 25."""
    found = propose([steady(f"m{i}", 6) for i in range(5)], [H1])
    assert sum(pool.cost.peak_size for pool in found.today) == 25
    assert [(pool.shape.name, len(pool.serves), pool.cost.peak_size) for pool in found.pools] == [("h1", 5, 11)]
    assert found.is_optimal
    assert found.saved_ratio == pytest.approx(1 - 6.74 / (5 * 4.15), abs=0.03)


def test_a_large_node_serves_small_replicas_where_that_is_cheaper():
    cheap = NodeShape(name="h8", devices=8, model="H100", hour_cost=6.0, lead_s=LEAD_S)
    found = propose([steady("a", 30), steady("b", 30)], [H1, cheap])
    assert [pool.shape.name for pool in found.pools] == ["h8"]
    dear = propose([steady("a", 6), steady("b", 6)], [H1, H8])
    assert [pool.shape.name for pool in dear.pools] == ["h1"]


def test_models_are_not_mixed_and_nobody_is_left_out():
    demands = [steady("a", 6), steady("b", 6), steady("c", 6, shape="a1", model="A100")]
    found = propose(demands, [H1, H8, A1])
    assert sorted(name for pool in found.pools for name in pool.serves) == ["a", "b", "c"]
    assert {pool.serves: pool.shape.name for pool in found.pools} == {("a", "b"): "h1", ("c",): "a1"}


def test_images_that_do_not_fit_on_one_node_keep_pools_apart():
    demands = [steady("a", 6, images=("x", "y")), steady("b", 6, images=("y", "z")), steady("c", 6, images=("v", "w"))]
    found = propose(demands, [H1], most_images=3)
    assert {pool.serves for pool in found.pools} == {("a", "b"), ("c",)}
    assert next(pool.images for pool in found.pools if len(pool.serves) == 2) == ("x", "y", "z")


def test_a_pool_that_is_not_worth_having_is_merged():
    calm, busy = steady("calm", 0.0), steady("busy", 60)
    assert len(propose([calm, busy], [H1], pool_cost=1.0).pools) == 1


def test_too_few_pools_for_all_is_said():
    demands = [steady("a", 6), steady("c", 6, shape="a1", model="A100")]
    found = propose(demands, [H1, A1], most_pools=1)
    assert set(found.pools) == set(found.today)
    assert "no 1 pools can serve all of them: today's stand" in found.notes
    assert found.saved_ratio == 0


def test_little_history_is_said():
    found = propose([steady("a", 6, hours=10)], [H1])
    assert found.notes == ("a: only 10 hours were watched, 48 make a usual day known",)
    assert propose([], [H1]).pools == ()


def test_many_demands_are_merged_by_what_they_save():
    demands = [steady(f"m{i:02d}", 3 + i % 4, images=("base",)) for i in range(14)]
    found = propose(demands, [H1, H8])
    assert [len(pool.serves) for pool in found.pools] == [14], (
        "one pool shares chance best, though few groups are tried"
    )


DEMANDS = st.lists(
    st.tuples(
        st.floats(0.0, 40.0),
        st.sampled_from([1, 2, 8]),
        st.sampled_from([("x",), ("y",), ("x", "y"), ("p", "q", "r")]),
        st.sampled_from([0.9, 0.99]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(DEMANDS, st.integers(1, 4))
def test_the_choice_is_the_best_partition_and_never_worse_than_today(rows, most_images):
    demands = [
        steady(f"d{i}", rate, shape="h8", devices=devices, images=images, goal=goal, hours=4)
        for i, (rate, devices, images, goal) in enumerate(rows)
    ]
    shapes = [H1, H8]
    found = propose(demands, shapes, most_images=most_images)
    served = sorted(name for pool in found.pools for name in pool.serves)
    assert served == [demand.name for demand in demands]
    for pool in found.pools:
        assert len(pool.serves) == 1 or len(pool.images) <= most_images
        assert pool.cost.hit_ratio >= max(d.goal_ratio for d in demands if d.name in pool.serves) - 1e-9
    total = sum(pool.cost.hour_cost for pool in found.pools)
    assert total <= sum(pool.cost.hour_cost for pool in found.today) + 1e-4
    best = _best(candidates(demands, shapes, most_images), frozenset(demand.name for demand in demands))
    assert total == pytest.approx(best, abs=1e-4 * max(1.0, best))


def _best(pools, names):
    """Return the least cost of any partition, by trying them all."""
    if not names:
        return 0.0
    first = min(names)
    return min(
        pool.cost.hour_cost + _best(pools, names - set(pool.serves))
        for pool in pools
        if first in pool.serves and set(pool.serves) <= names
    )


def test_every_group_is_weighed_where_there_are_few():
    demands = [steady(f"m{i}", 1) for i in range(4)]
    groups = {pool.serves for pool in candidates(demands, [H1], 16)}
    names = [demand.name for demand in demands]
    assert groups == {group for size in range(1, 5) for group in combinations(names, size)}
