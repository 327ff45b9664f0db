"""The fast simulator against a run of single events with slots per replica."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from scaler.simulate.run import simulate
from scaler.simulate.world import World
from tests.support.loads import Follower, Script, poisson
from tests.support.per_request import PerRequest

STEADY = ((20, 900),)
STEP = ((10, 400), (60, 500), (10, 400))
BURSTS = ((2, 200), (100, 20), (2, 300), (100, 20), (2, 300))


def late_ratio(wait_s):
    return float((wait_s > 2.0).mean())


def cost(run):
    return float((run.ready + run.starting + run.draining_s).sum())


@pytest.mark.parametrize("pieces", [STEADY, STEP, BURSTS], ids=["steady", "step", "bursts"])
@pytest.mark.parametrize("service_s", [0.2, 1.0, 4.0])
def test_where_nothing_drains_every_wait_is_the_same(pieces, service_s):
    load = poisson([(rate / service_s, seconds) for rate, seconds in pieces], service_s)
    world = World(slots=8, start_s=30, start_jitter_ratio=0.5, initial_replicas=3, seed=2)
    wanted = {100: 6, 200: 8, 500: 9}
    fast, slow = simulate(load, Script(wanted), world), PerRequest(load, Script(wanted), world).run()
    np.testing.assert_allclose(fast.wait_s, slow.wait_s, atol=1e-6)
    np.testing.assert_array_equal(fast.wanted, slow.wanted)
    np.testing.assert_array_equal(fast.queued, slow.queued)
    np.testing.assert_allclose(fast.in_flight, slow.in_flight, atol=1e-6)
    assert cost(fast) == pytest.approx(slow.replica_s)


@pytest.mark.parametrize("pieces", [STEADY, STEP, BURSTS], ids=["steady", "step", "bursts"])
@pytest.mark.parametrize(("service_s", "start_s"), [(1.0, 5), (1.0, 60), (4.0, 60)])
def test_with_draining_late_requests_agree_within_a_point_and_cost_within_three_percent(pieces, service_s, start_s):
    """Which requests a victim holds differs (evenly spread here, the least busy there): the two runs part a little."""
    load = poisson([(rate / service_s, seconds) for rate, seconds in pieces], service_s)
    world = World(slots=8, start_s=start_s, initial_replicas=4)
    fast, slow = simulate(load, Follower(), world), PerRequest(load, Follower(), world).run()
    assert late_ratio(fast.wait_s) == pytest.approx(late_ratio(slow.wait_s), abs=0.01)
    assert cost(fast) == pytest.approx(slow.replica_s, rel=0.03)
    assert np.abs(fast.wanted - slow.wanted).mean() < 0.5


def test_it_runs_far_faster_than_real_time():
    """With our decisions it is above 20,000 (bench/scaler); half of what is promised keeps a busy machine out of it."""
    load = poisson([(20, 7200)], 5.0)
    begun_s = time.process_time()
    simulate(load, Follower(), replace(World(), initial_replicas=18))
    assert load.duration_s / (time.process_time() - begun_s) > 5_000
