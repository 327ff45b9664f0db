"""A recorded hour run again: the same settings give about what was, others what they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleet.errors import ConfigError
from scaler.decision import Sizing
from scaler.policy import Behavior, Policy, Style, TargetBounds
from scaler.replay import replay
from scaler.ring import Ring
from scaler.seen import Fleet, Sample
from scaler.simulate.ours import Ours
from scaler.simulate.run import simulate
from scaler.simulate.world import World
from tests.support.loads import poisson

START_S = 30.0
POLICY = Policy(
    min_replicas=1,
    max_replicas=100,
    target=TargetBounds(initial=5.6, limit=8.0, is_learnt=False),
    behavior=Behavior(start_time_s=START_S),
)
SURGE = ((20, 1500), (80, 600), (20, 1500))


class Recording:
    """Ours, with the ring beside it that the controller keeps."""

    def __init__(self, policy=POLICY, *, began_s=0.0, unknown=range(0)):
        self.ours = Ours(policy, Sizing(target=policy.target.initial, slots=policy.target.limit), START_S)
        self.period_s = self.ours.period_s
        self.began_s, self.unknown = began_s, unknown
        self.ring = Ring(began_s)

    def see(self, sample, fleet):
        self.ours.see(sample, fleet)
        if int(sample.at_s) not in self.unknown:
            self.ring.see(replace(sample, at_s=sample.at_s + self.began_s), fleet)

    def decide(self, now_s, fleet):
        wanted = self.ours.decide(now_s, fleet)
        decision = replace(self.ours.last, at_s=now_s + self.began_s)
        self.ring.decided(decision, self.ours.sizing, START_S)
        return wanted


def recorded(pieces=SURGE, *, service_s=1.0, initial_replicas=4, **more):
    recording = Recording(**more)
    simulate(
        poisson(pieces, service_s), recording, World(start_s=START_S, initial_replicas=initial_replicas, warmup_s=0)
    )
    return recording.ring.history()


def test_the_same_settings_give_about_what_was():
    done = replay(recorded(), POLICY)
    assert done.was.late_ratio > 0.005  # the surge was felt
    assert done.would.late_ratio == pytest.approx(done.was.late_ratio, abs=0.01)
    assert done.would.replica_s == pytest.approx(done.was.replica_s, rel=0.08)
    assert abs(done.would.peak_replicas - done.was.peak_replicas) <= 4
    assert done.service_s == pytest.approx(1.0, rel=0.05)
    assert done.unknown_ratio == 0.0
    assert done.wanted_was.shape == done.wanted_would.shape == done.at_s.shape


def test_fewer_replicas_at_most_are_cheaper_and_later():
    history = recorded()
    free, bound = replay(history, POLICY), replay(history, replace(POLICY, max_replicas=10))
    assert bound.would.peak_replicas == 10
    assert bound.would.replica_s < free.would.replica_s
    assert bound.would.late_ratio > free.would.late_ratio + 0.05
    assert bound.was == free.was


def test_the_other_style_is_cheaper():
    from_s = 600.0
    history = recorded()
    thrifty = replace(POLICY, behavior=replace(POLICY.behavior, style=Style.THRIFTY))
    steady_cost = replay(history, POLICY, compare_from_s=from_s).would.replica_s
    assert replay(history, thrifty, compare_from_s=from_s).would.replica_s < steady_cost


def test_until_the_compared_part_the_recorded_counts_hold():
    history = recorded(((20, 900), (80, 900)))
    done = replay(history, replace(POLICY, max_replicas=10), compare_from_s=1200.0)
    assert done.at_s[0] == 1200.0
    assert done.wanted_was[0] == done.wanted_would[0] > 10


def test_times_are_those_of_the_history():
    done = replay(recorded(began_s=1_700_000_000.0), POLICY)
    assert 1_700_000_000.0 < done.at_s[0] < 1_700_003_600.0
    assert all(done.at_s[0] <= at_s <= done.at_s[-1] for at_s, _, _ in done.reasons)
    assert done.reasons


def test_seconds_without_a_sample_are_drawn_in_and_told():
    done = replay(recorded(unknown=range(700, 820)), POLICY)
    assert done.unknown_ratio == pytest.approx(120 / 3600, abs=0.005)
    assert done.would.replica_s == pytest.approx(done.was.replica_s, rel=0.1)


def test_a_learnt_target_follows_the_recorded_one_within_the_bounds():
    learnt = replace(POLICY, target=TargetBounds(initial=5.6, minimum=1, maximum=20, limit=8.0))
    lower = replace(POLICY, target=TargetBounds(initial=2.8, minimum=1, maximum=2.8, limit=8.0))
    history = recorded(((40, 2400),), initial_replicas=8)
    same, halved = replay(history, learnt), replay(history, lower)
    assert same.would.replica_s == pytest.approx(same.was.replica_s, rel=0.1)
    assert halved.would.replica_s > 1.5 * same.would.replica_s


def test_a_queue_that_was_there_at_the_beginning_is_served_first():
    ring = Ring(0.0)
    for second in range(1, 301):
        queued = max(0.0, 160.0 - 8 * second)
        sample = Sample(at_s=float(second), arrivals=0.0, completions=8.0, in_flight=8.0, queued=queued)
        ring.see(sample, Fleet(ready=1))
    done = replay(ring.history(), replace(POLICY, max_replicas=1), compare_from_s=1.0)
    assert done.requests == 0
    assert done.would.replica_s == 300.0
    assert done.was.late_ratio == 0.0


@pytest.mark.parametrize(
    ("seconds", "completions", "match"), [(30, 1.0, "30 usable seconds"), (300, 0.0, "nothing to replay")]
)
def test_a_history_that_says_too_little_is_refused_in_words(seconds, completions, match):
    ring = Ring(0.0)
    for second in range(1, seconds + 1):
        sample = Sample(at_s=float(second), arrivals=1.0, completions=completions, in_flight=1.0, queued=0.0)
        ring.see(sample, Fleet(ready=1))
    with pytest.raises(ConfigError, match=match):
        replay(ring.history(), POLICY)


def test_a_policy_that_contradicts_itself_is_refused():
    with pytest.raises(ConfigError, match="minReplicas"):
        replay(recorded(((20, 200),)), replace(POLICY, min_replicas=200))


def test_recorded_waits_are_read_off_the_queue():
    ring = Ring(0.0)
    # 10 a second come, 5 a second start for 100 s, then 15: who comes in second k waits about k seconds until then.
    queue = 0.0
    for second in range(1, 401):
        queue = max(0.0, queue + 10 - (5 if second <= 100 else 15))
        sample = Sample(at_s=float(second), arrivals=10.0, completions=8.0, in_flight=8.0, queued=queue)
        ring.see(sample, Fleet(ready=1))
    done = replay(ring.history(), POLICY, compare_from_s=1.0)
    # Late while at least 30 wait ahead: from second 3 to the last before the queue is that short again.
    assert done.was.late_ratio * 400 == pytest.approx(190, abs=8)
    assert np.isfinite(done.would.late_ratio)
