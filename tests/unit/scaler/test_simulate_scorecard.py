"""How a simulated run is judged."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.simulate.run import simulate
from scaler.simulate.scorecard import moves, recovery, scorecard
from scaler.simulate.world import World
from tests.support.loads import Script, requests


def test_the_warm_up_counts_nowhere():
    load = requests((1.0, 100.0), (1.0, 100.0), (12.0, 4.0), (13.0, 4.0), duration_s=20)
    script = Script({2: 3, 4: 1, 15: 2})
    card = scorecard(simulate(load, script, World(slots=1, start_s=5, initial_replicas=1, warmup_s=10)), 0.5)
    assert card.requests == 2
    assert card.violation_ratio == 1.0  # unserved at the end
    assert card.ideal_replica_s == 16.0
    # One replica for 10 s, and the one ordered at 15 s.
    assert card.replica_s == 15.0
    assert (card.changes, card.reversals) == (1, 0)
    assert card.starts == 3


def test_waiting_exactly_as_long_as_promised_is_in_time():
    load = requests((0.0, 2.0), (0.0, 1.0), (0.0, 1.0), duration_s=10)
    card = scorecard(simulate(load, Script({}), World(slots=1, initial_replicas=1, warmup_s=0)), 0.7)
    assert card.late == 1
    assert card.wait_p99_s == 3.0


def test_draining_is_paid_until_the_last_request_ends():
    load = requests((0.0, 6.5), duration_s=12)
    world = World(slots=1, initial_replicas=1, warmup_s=0)
    assert scorecard(simulate(load, Script({1: 0}), world), 0.7).replica_s == pytest.approx(6.5)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [([1, 1, 1], (0, 0)), ([1, 2, 3, 3], (2, 0)), ([1, 3, 3, 2], (2, 1)), ([1, 3, 2, 4, 4, 1], (4, 3)), ([5], (0, 0))],
)
def test_moves_and_reversals(wanted, expected):
    assert moves(np.array(wanted)) == expected


def test_recovery_from_a_jump():
    before = [(float(second), 0.5) for second in range(10)]
    after = [(10 + k / 10, 0.5) for k in range(300)]
    load = requests(*before, *after, duration_s=40)
    run = simulate(load, Script({11: 10}), World(slots=1, start_s=9, initial_replicas=1, warmup_s=0))
    felt = recovery(run, 10)
    assert felt.served_s == 15.0  # capacity from 20 s on: the third step of five seconds is the first served in full
    assert felt.in_time_s is not None
    assert 9.0 < felt.in_time_s < 25.0
    never = recovery(simulate(load, Script({}), World(slots=1, initial_replicas=1, warmup_s=0)), 10)
    assert (never.served_s, never.in_time_s) == (None, None)


def test_a_load_without_requests_is_judged_without_dividing_by_nothing():
    load = requests(duration_s=30)
    card = scorecard(simulate(load, Script({}), World(warmup_s=10)), 5.6)
    assert (card.violation_ratio, card.requests, card.replica_s) == (0.0, 0, 20.0)
