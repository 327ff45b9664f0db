"""The simulated plant: every request starts once, in order, never over capacity, and everything ordered is paid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.simulate.load import Load
from scaler.simulate.run import simulate
from scaler.simulate.world import World
from tests.support.loads import Follower, Script, poisson, requests

WORLD = World(slots=2, start_s=3, initial_replicas=1, warmup_s=0)


@st.composite
def loads(draw):
    seconds = draw(st.integers(5, 60))
    times = draw(st.lists(st.tuples(st.floats(0, seconds - 0.01), st.floats(0.01, 20)), min_size=1, max_size=120))
    return requests(*sorted(times), duration_s=seconds)


scripts = st.dictionaries(st.integers(1, 50), st.integers(0, 12), max_size=8)
worlds = st.builds(
    World,
    slots=st.integers(1, 4),
    start_s=st.floats(0, 15),
    start_jitter_ratio=st.floats(0, 1),
    initial_replicas=st.integers(0, 4),
    max_replicas=st.integers(1, 10),
    warmup_s=st.just(0),
    seed=st.integers(0, 5),
)


@given(loads(), scripts, worlds)
def test_every_request_starts_once_in_order_and_all_are_counted(load, wanted, world):
    script = Script(wanted)
    run = simulate(load, script, world)
    started = np.isfinite(run.wait_s)
    start_s = load.arrival_s + run.wait_s
    assert (run.wait_s >= 0).all()
    assert (np.diff(start_s[started]) >= -1e-9).all()
    assert (np.diff(started.astype(int)) <= 0).all()  # first come, first served: who waits at the end came last
    assert run.queued[-1] == (~started).sum()
    assert sum(sample.arrivals for sample in script.samples) == load.arrival_s.size
    assert all(sample.completions >= 0 and sample.in_flight >= 0 for sample in script.samples)


@given(loads(), scripts, worlds)
def test_no_replica_holds_more_than_its_slots_and_bounds_hold(load, wanted, world):
    run = simulate(load, Script(wanted), world)
    assert (run.in_flight <= run.ready * world.slots + 1e-6).all()
    assert (run.wanted <= max(world.max_replicas, world.initial_replicas)).all()
    assert (run.ready >= 0).all()


@given(loads(), scripts, worlds)
def test_what_is_ordered_costs_at_least_the_work_done_on_it(load, wanted, world):
    run = simulate(load, Script(wanted), world)
    start_s = load.arrival_s + run.wait_s
    done = np.isfinite(start_s)
    end_s = np.minimum(start_s[done] + load.service_s[done], load.duration_s)
    work = np.maximum(end_s - start_s[done], 0).sum()
    assert world.slots * (run.ready + run.draining_s).sum() >= work - 1e-6


@given(loads(), st.integers(1, 8))
def test_without_draining_time_averages_and_ends_are_exact(load, replicas):
    run = simulate(load, Script({}), World(slots=1, initial_replicas=replicas, warmup_s=0))
    start_s = (load.arrival_s + run.wait_s)[np.isfinite(run.wait_s)]
    end_s = start_s + load.service_s[: start_s.size]
    edges = np.arange(load.duration_s + 1)[:, None]
    work = (np.clip(edges - start_s, 0, None) - np.clip(edges - end_s, 0, None)).sum(axis=1)
    np.testing.assert_allclose(run.in_flight, np.diff(work), atol=1e-6)
    np.testing.assert_array_equal(np.cumsum(run.completions), (end_s < edges[1:]).sum(axis=1))


@given(loads(), st.integers(1, 6))
def test_more_replicas_never_make_anybody_wait_longer(load, replicas):
    fewer = simulate(load, Script({}), replace(WORLD, initial_replicas=replicas))
    more = simulate(load, Script({}), replace(WORLD, initial_replicas=replicas + 1))
    assert (more.wait_s <= fewer.wait_s + 1e-9).all()


def test_a_queue_moves_up_as_slots_fall_free_and_as_replicas_become_ready():
    load = requests((0.5, 10.0), (0.6, 1.0), (0.7, 9.0), (0.8, 1.0), (0.9, 1.0), duration_s=30)
    run = simulate(load, Script({1: 2}), WORLD)
    # Two slots: the third starts when the second ends at 1.6 s, the others when the replica of 1 s is Ready at 4 s.
    np.testing.assert_allclose(run.wait_s, [0, 0, 0.9, 3.2, 3.1])
    assert list(run.queued[:5]) == [3, 2, 2, 2, 0]
    assert list(run.ready[:5]) == [1, 1, 1, 1, 2]
    assert list(run.starting[:5]) == [0, 1, 1, 1, 0]


def test_starting_replicas_are_taken_back_before_ready_ones_and_the_last_ordered_first():
    script = Script({1: 3, 2: 4, 3: 3})
    run = simulate(requests((0.1, 0.1), duration_s=8), script, replace(WORLD, start_s=5))
    assert script.fleets[3].starting_since_s == (1.0, 1.0)
    assert run.ready.max() == 3
    assert run.starts == 3


def test_a_draining_replica_finishes_what_it_has_costs_until_then_and_leaves_the_samples():
    load = requests((0.0, 6.5), (0.1, 2.0), (0.2, 6.0), (0.3, 2.5), duration_s=12)
    script = Script({1: 1})
    run = simulate(load, script, replace(WORLD, initial_replicas=2))
    assert np.isfinite(run.wait_s).all()
    # It holds the second and the fourth request: empty at 2.8 s.
    np.testing.assert_allclose(run.draining_s[:4], [0, 1, 0.8, 0])
    np.testing.assert_allclose(run.in_flight[1:4], [2, 2, 2])
    assert [fleet.draining for fleet in script.fleets[1:4]] == [1, 0, 0]
    assert run.completions.sum() == 2


def test_with_no_replica_everything_waits_and_counts_as_unserved():
    run = simulate(requests((0.5, 1.0), (3.0, 1.0), duration_s=6), Script({}), replace(WORLD, initial_replicas=0))
    assert np.isinf(run.wait_s).all()
    assert run.in_flight.sum() == 0


def test_a_second_surge_waits_as_long_as_the_first():
    load = poisson([(1, 100), (40, 10), (1, 290), (40, 10), (1, 190)], 0.5)
    run = simulate(load, Script({}), World(slots=8, initial_replicas=1, warmup_s=0))
    late = load.arrival_s[run.wait_s > 2]
    first, second = ((late > 100) & (late < 200)).sum(), ((late > 400) & (late < 500)).sum()
    assert first > 50
    assert abs(first - second) < 0.3 * first


def test_start_times_vary_within_the_jitter_and_repeat_with_the_seed():
    world = World(start_s=100, start_jitter_ratio=0.2, initial_replicas=0, warmup_s=0, seed=3)
    ready = [simulate(requests((0.0, 1.0), duration_s=200), Script({1: 50}), world).ready for _ in range(2)]
    np.testing.assert_array_equal(*ready)
    became = np.repeat(np.arange(200), np.diff(ready[0], prepend=0))
    assert became.min() >= 81
    assert became.max() <= 121
    assert np.unique(became).size > 10


@pytest.mark.parametrize(
    ("arrival_s", "service_s", "match"),
    [
        ([1.0, 0.5], [1.0, 1.0], "ascend"),
        ([0.0, 1.0], [1.0, 0.0], "service time"),
        ([0.0, 11.0], [1.0, 1.0], "within"),
        ([0.0], [1.0, 1.0], "equal"),
        ([0.0], [float("nan")], "service time"),
    ],
)
def test_a_load_that_cannot_be_is_refused_by_name(arrival_s, service_s, match):
    with pytest.raises(ValueError, match=match):
        Load(arrival_s=np.array(arrival_s), service_s=np.array(service_s), duration_s=10)


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"start_s": -1}, {"start_jitter_ratio": 2.0}, {"max_replicas": 0}])
def test_a_world_that_cannot_be_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        World(**wrong)


def test_an_empty_load_runs():
    run = simulate(Load(arrival_s=np.array([]), service_s=np.array([]), duration_s=20), Follower(), World(warmup_s=0))
    assert run.in_flight.sum() == 0
