"""A whole cycle: what comes first, what is kept, what is told."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from scaler.decision import TargetReason
from scaler.policy import Policy, TargetBounds
from scaler.vertical.canary import HIGHEST_WEIGHT, canary, canary_weight, held_by_busiest
from scaler.vertical.learn import learn
from scaler.vertical.learner import ONBOARDING_CYCLES, TARGET_SHARE, Learner
from scaler.vertical.rows import usable_rows
from scaler.vertical.survivors import survivors
from tests.support.learning import Pupil, a_cycle, a_learning_policy, eight_cores, spread_k


def test_a_target_that_is_not_learnt_stays_as_set() -> None:
    policy = Policy(min_replicas=1, max_replicas=9, target=TargetBounds(initial=5.6, limit=8.0, is_learnt=False))
    before = Learner.fresh(policy)
    lesson, state = learn(a_cycle(spread_k(8.0)), before, policy, 3.0)
    assert (lesson.reason, lesson.sizing.target, lesson.sizing.slots) == (TargetReason.FIXED, 5.6, 8.0)
    assert state is before
    assert lesson.at_s == 3.0


@pytest.mark.parametrize("start", [1.5, 4.0, 30.0])
def test_eight_cores_are_found_from_below_and_from_above(start: float) -> None:
    pupil = Pupil(a_learning_policy(initial=TARGET_SHARE * start))
    lesson = pupil.see_many(14)
    assert lesson.learnt == pytest.approx(7.7, rel=0.1)
    assert lesson.confidence_ratio > 0.8
    assert lesson.sizing.target == pytest.approx(TARGET_SHARE * lesson.validated)


@pytest.mark.parametrize(
    "cycle",
    [
        a_cycle(np.zeros((4, 30))),
        a_cycle(np.full((1, 9), 8.0)),
        a_cycle(np.full((4, 30), np.nan)),
        a_cycle(np.zeros((0, 30))),
        a_cycle(np.zeros((4, 0))),
    ],
    ids=["no load", "nine seconds", "nothing known", "no replica", "no second"],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_idle_is_no_evidence(cycle: object) -> None:
    pupil = Pupil(a_learning_policy())
    pupil.see_many(12)
    before = pupil.learner
    lesson = pupil.see(cycle)  # type: ignore[arg-type]
    assert lesson.reason is TargetReason.IDLE
    assert pupil.learner.limit == before.limit
    assert pupil.learner.bins is before.bins


def test_another_workload_is_waited_for_and_then_learnt_afresh() -> None:
    pupil = Pupil(a_learning_policy(initial=5.6))
    pupil.see_many(12)
    settled = pupil.lessons[-1].learnt
    reasons = [pupil.see_many(1, curve=lambda k: 2 * eight_cores(k)).reason for _ in range(3)]
    assert reasons == [TargetReason.SHIFTED] * 3
    assert pupil.learner.limit == settled
    pupil.see_many(8, curve=lambda k: 2 * eight_cores(k))
    assert [lesson.learnt for lesson in pupil.lessons[-11:]] == pytest.approx([settled] * 11, rel=0.1)


def test_a_workload_of_another_form_is_learnt_as_well() -> None:
    pupil = Pupil(a_learning_policy(initial=5.6))
    pupil.see_many(12)
    # Twice the time, half of it waiting elsewhere: 16 at once for the same throughput.
    assert pupil.see_many(30, curve=lambda k: 0.2 * np.maximum(k / 16, 1.0)).learnt == pytest.approx(15.4, rel=0.12)


def test_a_slow_drift_is_followed() -> None:
    pupil = Pupil(a_learning_policy(initial=5.6))
    pupil.see_many(12)
    for cycle in range(40):
        pupil.see_many(1, curve=lambda k, times=1 + cycle / 40: times * eight_cores(k))
    learnt = [lesson.learnt for lesson in pupil.lessons[-40:]]
    assert learnt == pytest.approx([7.7] * 40, rel=0.12)


def test_one_strange_cycle_is_forgotten() -> None:
    pupil = Pupil(a_learning_policy(initial=5.6))
    pupil.see_many(12)
    bins = pupil.learner.bins
    assert pupil.see_many(1, curve=lambda k: 2 * eight_cores(k)).reason is TargetReason.SHIFTED
    assert pupil.learner.bins is bins
    assert pupil.see_many(1).reason is not TargetReason.SHIFTED


def test_a_restart_keeps_l_and_is_no_onboarding() -> None:
    policy = a_learning_policy()
    state = Learner.restored(policy, 23.0)
    assert (state.limit, state.validated, state.cycles) == (23.0, 23.0, ONBOARDING_CYCLES)


@pytest.mark.parametrize("kept", [math.nan, math.inf, 0.0, -4.0])
def test_a_restart_with_nonsense_is_a_beginning(kept: float) -> None:
    policy = a_learning_policy()
    state = Learner.restored(policy, kept)
    assert (state.limit, state.cycles) == (Learner.fresh(policy).limit, 0)


def test_changed_bounds_hold_at_once() -> None:
    pupil = Pupil(a_learning_policy(initial=7.0))
    pupil.policy = a_learning_policy(initial=4.0, maximum=4.2)
    assert pupil.see(a_cycle(np.zeros((4, 30)))).learnt == pytest.approx(6.0)


def test_slots_follow_the_persons_limit() -> None:
    pupil = Pupil(a_learning_policy(initial=7.0, limit=8.0))
    lesson = pupil.see(a_cycle(spread_k(8.0)))
    assert lesson.learnt <= 8.0
    assert (lesson.sizing.slots or 99) <= 8.0


def test_the_validated_part_rises_only_as_far_as_a_replica_held() -> None:
    policy = a_learning_policy(initial=1.4)
    pupil = Pupil(policy)
    k = np.full((4, 30), 1.4)
    k[0] = np.linspace(1.5, 2.4, 30)
    lesson = pupil.see(a_cycle(k))
    assert lesson.learnt > lesson.validated
    assert lesson.validated == pytest.approx(2.3, abs=0.1)
    late = replace(a_cycle(4 * k), is_late=True)
    assert pupil.see(late).validated == lesson.validated


def test_long_requests_begun_under_another_limit_are_left_out() -> None:
    pupil = Pupil(a_learning_policy())
    slow = {"curve": lambda k: 3.0 + 0.0 * k}
    pupil.see_many(1, **slow)
    pupil.learner = replace(pupil.learner, has_moved=True)
    moved = pupil.see(a_cycle(spread_k(10.0), **slow)).numbers["completions"]
    pupil.learner = replace(pupil.learner, has_moved=False)
    assert pupil.see(a_cycle(spread_k(10.0), **slow)).numbers["completions"] > moved * 1.15


def test_numbers_are_finite_and_the_text_says_the_reason() -> None:
    pupil = Pupil(a_learning_policy(latency_s=1.0))
    for lesson in (pupil.see_many(1), pupil.see_many(12), pupil.see(a_cycle(np.zeros((4, 30))))):
        assert all(math.isfinite(value) for value in lesson.numbers.values())
        assert "nan" not in lesson.text
        assert lesson.text.startswith(f"L {lesson.learnt:.4g}")


def test_every_reason_has_words() -> None:
    from scaler.vertical.lesson import _WORDS

    assert set(_WORDS) == set(TargetReason) - {TargetReason.FIXED}


def test_survivors_know_how_much_keeps_the_promise() -> None:
    pupil = Pupil(a_learning_policy(latency_s=0.3))  # p95 = 2 x mean: mean 0.15 s, 12 at once
    pupil.see_many(12)
    limit = survivors(pupil.learner, pupil.policy).latency_limit_target
    assert limit == pytest.approx(12.0, rel=0.15) or limit is None
    assert survivors(pupil.learner, a_learning_policy()).latency_limit_target is None
    assert survivors(pupil.learner, a_learning_policy(latency_s=0.01)).latency_limit_target == 0.0


def test_the_canary_is_kept_while_it_lives() -> None:
    names = ("b", "a", "c")
    assert canary(names, 3, None) == "a"
    assert canary(names, 3, "c") == "c"
    assert canary(names, 3, "gone") == "a"
    assert canary(names[:2], 2, "a") is None
    assert canary((), 5, None) is None


def test_the_canarys_weight_lets_it_hold_l() -> None:
    weight = canary_weight(10.0, 28.0, 4)
    assert weight / (weight + 3) * 28.0 == pytest.approx(10.0)
    assert canary_weight(10.0, 8.0, 4) == HIGHEST_WEIGHT
    assert canary_weight(10.0, 400.0, 4) == 1.0


def test_what_the_busiest_held_is_a_level_not_a_peak() -> None:
    k = np.full((3, 30), 4.0)
    k[1, :6] = 9.0
    k[2, :1] = 20.0
    assert held_by_busiest(usable_rows(a_cycle(k, curve=lambda k: np.full(k.shape, 0.01)))) == pytest.approx(9.0)
