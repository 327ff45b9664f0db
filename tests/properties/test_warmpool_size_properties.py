"""What the sizing of a warm pool keeps, whatever comes.

1. Closed forms: a longer lead, a higher goal, a dearer miss never want fewer nodes; loss falls with the size.
2. Whatever is drawn, quantiles are ordered and targets stay within the bounds.
3. Replay: the same minutes give the same targets, before and after other pools.
4. Shadow pools: hits and misses add up to the draws, a pool of none misses all, idle time is what was not on order.
5. The history gives back what it was told; any other bytes are read or refused.
6. Nothing that is not known lowers a target.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import DecodeError
from tests.support.sizing import Sized, a_spec
from warmpool.history import History
from warmpool.size.closed import cost_size, loss, mean_idle, poisson_size
from warmpool.size.decide import is_ordered
from warmpool.size.leads import LeadTimes
from warmpool.size.rule import Learnt
from warmpool.size.shadow import ShadowPools

rates = st.floats(0.01, 200.0)
leads = st.floats(30.0, 3000.0)
goals = st.floats(0.5, 0.9999)
minutes = st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=120)


@given(rates, leads, leads, goals, goals)
def test_more_asked_is_never_less_wanted(per_hour, lead_s, other_s, goal, other_goal):
    short, long = (per_hour * one / 3600.0 for one in sorted((lead_s, other_s)))
    low, high = sorted((goal, other_goal))
    assert poisson_size(short, low) <= poisson_size(long, low)
    assert poisson_size(long, low) <= poisson_size(long, high)
    assert cost_size(short, per_hour, 4.0) <= cost_size(short, 2.0 * per_hour, 4.0)
    lost = loss(np.array([short, long]), 40)
    assert (np.diff(lost, axis=1) <= 0).all()
    assert (lost[0] <= lost[1] + 1e-12).all()
    assert mean_idle(short, 5) >= mean_idle(long, 5) - 1e-9


@settings(max_examples=25, deadline=None)
@given(minutes, st.integers(0, 5), st.integers(5, 40))
def test_targets_stay_within_bounds_and_quantiles_rise(counts, least, most):
    sized = Sized(min_nodes=least, max_nodes=most)
    for target in sized.live(counts):
        assert least <= target <= most
    told = sized.now()
    assert is_ordered(tuple(told.quantiles))
    assert all(np.isfinite(value) for value in told.numbers.values())


@settings(max_examples=15, deadline=None)
@given(minutes)
def test_a_replay_is_the_same_again(counts):
    first, other, second = Sized(), Sized(name="g2"), Sized()
    targets = first.live(counts)
    other.live([3, 0, 1])
    assert second.live(counts) == targets
    assert second.rule.stored() == first.rule.stored()


@given(st.lists(st.tuples(st.floats(0.0, 900.0), st.floats(1.0, 2000.0)), min_size=1, max_size=60))
def test_shadow_pools_account_for_every_draw_and_second(draws):
    pools, now_s, on_order_s = ShadowPools(8, 0.0), 0.0, 0.0
    for pause_s, lead_s in draws:
        now_s += pause_s
        pools.draw(now_s, lead_s)
    end_s = now_s + 3000.0
    pools.advance(end_s)
    assert pools.missed[0] == len(draws)
    assert (pools.missed <= len(draws)).all()
    assert (pools._warm == np.arange(9)).all()  # all have come back
    hits = len(draws) - pools.missed
    on_order_s = np.arange(9) * end_s - pools.idle_s
    assert (on_order_s >= -1e-6).all()
    assert (on_order_s <= hits * 2015.0 + 1e-6).all()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 3000), st.one_of(st.none(), st.integers(0, 190))), max_size=40))
def test_the_history_gives_back_what_it_was_told(steps):
    history, told, minute = History(), {}, 28_000_000
    for step, count in steps:
        minute += step
        history.see(minute, count, None)
        told[minute] = count
    draws = History.from_bytes(history.to_bytes()).draws()
    for at, count in told.items():
        ago = minute - at
        if ago < len(draws):
            found = draws[len(draws) - 1 - ago]
            assert np.isnan(found) if count is None else found == count
    assert np.isfinite(draws).sum() <= len(told)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(stored):
    with suppress(DecodeError):
        History.from_bytes(stored)
    with suppress(DecodeError):
        Learnt(a_spec(), stored)


@settings(max_examples=25, deadline=None)
@given(minutes, st.integers(1, 60))
def test_what_is_not_known_lowers_nothing(counts, gap):
    sized = Sized()
    sized.live([1, *counts, 0])
    before = sized.now().target
    assert all(target >= before for target in sized.live([None] * gap))


@given(st.lists(st.floats(1.0, 5000.0), max_size=60), st.lists(st.floats(0.0, 1.0), min_size=2, max_size=10))
def test_lead_time_quantiles_rise(seen, parts):
    times = LeadTimes()
    for one in seen:
        times = times.seen(one)
    found = [times.quantile_s(part) for part in sorted(parts)]
    assert found == sorted(found)
