"""Imaginary pools: what a draw does, who misses, and what idles, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from warmpool.size.calendar import DAY_MIN, WEEK_MIN, Calendar
from warmpool.size.leads import LeadTimes
from warmpool.size.pool import Pool
from warmpool.size.shadow import ShadowPools


def test_every_size_lives_through_the_same_draws():
    pools = ShadowPools(3, 0.0)
    pools.draw(0.0, 60.0)
    pools.draw(15.0, 60.0)  # size 1 is empty
    pools.draw(60.0, 60.0)  # the first order has come
    pools.advance(120.0)
    assert pools.missed.tolist() == [3.0, 1.0, 0.0, 0.0]
    # Size 2: one until 15, none until 60, then one drawn at once, one again from 75, two at 120.
    assert pools.idle_s.tolist() == [0.0, 0.0, 15.0 + 45.0, 120.0 + 15.0 + 45.0]


def test_two_orders_that_end_together_are_one_entry():
    pools = ShadowPools(4, 0.0)
    for _ in range(3):
        pools.draw(1.0, 61.0)
    assert len(pools._due) == 1
    pools.advance(60.0)
    assert pools._warm.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_pool_orders_at_the_draw_and_not_beyond_its_target():
    pool = Pool(2, 0.0)
    assert pool.missing(2) == 0
    assert pool.draw(0.0, 100.0)
    assert pool.draw(0.0, 100.0)
    assert not pool.draw(50.0, 100.0)  # a miss orders elsewhere
    assert pool.position == 2
    pool.advance(150.0)
    assert (pool.draws, pool.missed) == (3, 1)
    assert pool.idle_s == pytest.approx(2 * 50.0)
    assert pool.ordered_s == pytest.approx(2 * 100.0)


def test_a_smaller_target_gives_back_what_is_warm_and_calls_no_order_back():
    pool = Pool(3, 0.0)
    pool.missing(3)
    pool.draw(0.0, 100.0)
    assert pool.missing(1) == 0
    assert pool.position == 1
    pool.advance(100.0)
    assert pool.missing(1) == 0
    assert pool.position == 1
    assert pool.missing(4) == 3


def test_what_is_beyond_the_target_is_not_ordered_again():
    pool = Pool(3, 0.0)
    pool.missing(3)
    for _ in range(3):
        pool.draw(0.0, 100.0)
    pool.missing(1)
    pool.advance(100.0)  # three have come, one is wanted
    assert pool.position == 3
    pool.draw(100.0, 100.0)
    pool.draw(100.0, 100.0)
    assert pool.position == 1
    pool.draw(100.0, 100.0)
    assert pool.position == 1


def test_the_calendar_counts_the_first_value_whole_and_unseen_minutes_as_the_others():
    calendar = Calendar(DAY_MIN, 0.2)
    for minute in range(60):
        calendar.see(minute, 2.0)
    calendar.refresh(60)
    assert calendar.mean(0, 60) == pytest.approx(2.0)
    assert calendar.mean(700, 30) == pytest.approx(2.0)
    calendar.see(DAY_MIN, 12.0)
    assert float(calendar.array[0]) == pytest.approx(4.0)
    assert calendar.largest(DAY_MIN - 1, 3) == pytest.approx(4.0)


@pytest.mark.parametrize("first", [0, 5, DAY_MIN - 7])
def test_sums_over_midnight_are_those_of_the_minutes(first):
    calendar = Calendar(DAY_MIN, 0.2)
    values = np.random.default_rng(1).random(DAY_MIN).astype(np.float32)
    for minute, value in enumerate(values):
        calendar.see(minute, float(value))
    calendar.refresh(0)
    wanted = values[np.arange(first, first + 40) % DAY_MIN].astype(float).mean()
    assert calendar.mean(first, 40) == pytest.approx(wanted, rel=1e-5)


def test_a_calendar_refuses_means_of_another_period():
    with pytest.raises(ValueError, match="1440 minutes"):
        Calendar(DAY_MIN, 0.2).restore(np.zeros(WEEK_MIN))


def test_lead_times_are_learnt_and_the_prior_fades():
    leads = LeadTimes()
    assert leads.mean_s == pytest.approx(511.0, rel=0.02)
    for _ in range(50):
        leads = leads.seen(150.0)
    assert leads.mean_s == pytest.approx(170.0, abs=5.0)
    assert leads.quantile_s(0.5) == pytest.approx(150.0)
    assert leads.quantile_s(1.0) > 500.0


def test_only_durations_are_lead_times():
    leads = LeadTimes()
    for bad in (0.0, -5.0, float("nan")):
        assert leads.seen(bad) is leads
    assert leads.seen(float("inf")).seen_s == (4 * 3600.0,)
    many = leads
    for number in range(500):
        many = many.seen(100.0 + number)
    assert len(many.seen_s) == 200
    assert many.seen_s[-1] == pytest.approx(599.0)
