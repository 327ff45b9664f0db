"""Reports from the field about learnt limits, and the five kinds of replica, each to its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.scaler.knee import MOST_SETTLING_CYCLES, STARTS, Lane, run, settled_after
from bench.scaler.knee_modes import FROM_CYCLE, slow_drift, unrelated_errors
from bench.scaler.profiles import Profile, profiles
from scaler.decision import TargetReason
from scaler.vertical.learner import Learner
from tests.support.learning import Pupil, a_cycle, a_learning_policy

SMOOTH = [profile for profile in profiles() if profile.large_share == 0]


def test_at_the_ceiling_and_healthy() -> None:
    """Netflix/concurrency-limits#155: a limiter at its maximum, with fast and sound answers, cut itself to half."""
    pupil = Pupil(a_learning_policy(initial=200.0, minimum=1.0, maximum=200.0, latency_s=0.2))
    cycle = a_cycle(
        np.full((4, 30), 200.0), curve=lambda k: k / 2500, p95_times=1.0, resources={"cpu_ratio": lambda k: 0 * k + 0.6}
    )
    lessons = [pupil.see(cycle) for _ in range(10)]
    assert [lesson.sizing.target for lesson in lessons] == [200.0] * 10
    assert {lesson.reason for lesson in lessons} == {TargetReason.AT_BOUND}


@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_free_memory_full_queue(jitter: float) -> None:
    """llm-d/llm-d-autoscaling#1500: memory was 16 % full, so the target rose while compute was exhausted."""
    pupil = Pupil(a_learning_policy(initial=16.0, minimum=1.0, maximum=256.0, latency_s=2.0, limit=16.0))
    k = 16.0 * np.random.default_rng(5).uniform(1 - jitter, 1.0, (10, 30))
    cycle = a_cycle(
        k,
        curve=lambda k: 6.0 * k / 16,
        p95_times=8 / 6,
        memory_ratio=0.16,
        resources={"gpu_memory_ratio": lambda k: 0 * k + 0.16, "gpu_utilisation_ratio": lambda k: 0 * k + 1.0},
    )
    assert all(pupil.see(replace(cycle, is_late=late)).sizing.target <= 16.0 for late in [True, False] * 5)


@pytest.mark.parametrize("profile", SMOOTH, ids=lambda profile: profile.name)
def test_the_knee_is_found_in_ten_cycles_and_kept(profile: Profile) -> None:
    lanes = [Lane(profile=profile, start_ratio=start) for start in STARTS for _ in range(3)]
    run(lanes, 11, 30)
    for lane in lanes:
        settled = settled_after(lane.limits, high=1.12)
        assert settled is not None
        assert settled <= MOST_SETTLING_CYCLES + 2, lane.limits


def test_two_sizes_of_request_are_noisy_but_no_other_knee() -> None:
    lanes = [Lane(profile=profiles()[4], start_ratio=start) for start in STARTS for _ in range(3)]
    run(lanes, 11, 40)
    last = np.array([lane.limits[-10:] for lane in lanes])
    assert last.min() > 0.85
    assert last.max() < 1.25
    assert last.mean() == pytest.approx(1.0, abs=0.08)


def test_a_replica_that_slows_down_over_half_an_hour_keeps_its_knee() -> None:
    lanes = [Lane(profile=profiles()[0], start_ratio=1.0, disturb=slow_drift) for _ in range(3)]
    run(lanes, 11, 60)
    later = [lane.limits[FROM_CYCLE:] for lane in lanes]
    assert np.min(later) > 0.88
    assert np.max(later) < 1.15


def test_errors_that_have_nothing_to_do_with_load_move_nothing() -> None:
    lanes = [Lane(profile=profiles()[0], start_ratio=1.0, disturb=unrelated_errors) for _ in range(3)]
    run(lanes, 11, 60)
    later = [lane.limits[FROM_CYCLE:] for lane in lanes]
    assert np.min(later) > 0.88
    assert np.max(later) < 1.15


def test_a_latency_limit_that_cannot_be_met_holds_where_it_began() -> None:
    profile = profiles()[1]
    lane = Lane(profile=profile, start_ratio=0.22, latency_limit_s=0.5 * float(profile.latency_s[1]))
    run([lane], 11, 20)
    assert lane.limits == pytest.approx([0.22] * 20)


def test_a_restart_does_not_jump() -> None:
    def restart(plant: object, lane: int, cycle: int, learner: Learner, policy: object) -> Learner:
        return Learner.restored(lanes[lane].policy, learner.limit) if cycle == FROM_CYCLE else learner

    lanes = [Lane(profile=profiles()[0], start_ratio=1.0, disturb=restart) for _ in range(3)]
    run(lanes, 11, 40)
    assert np.min([lane.limits[FROM_CYCLE:] for lane in lanes]) > 0.85
    assert np.max([lane.limits[FROM_CYCLE:] for lane in lanes]) < 1.5
