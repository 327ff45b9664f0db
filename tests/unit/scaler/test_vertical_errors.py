"""Failures: tied to load, tied to nothing, tied to one replica."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.decision import TargetReason
from scaler.vertical.bins import Failures
from scaler.vertical.errors import REST_CYCLES, Errors, dispersion, one_is_sick, rest, split
from scaler.vertical.learner import TARGET_SHARE, Learner
from scaler.vertical.rows import usable_rows
from tests.support.learning import Pupil, a_cycle, a_learning_policy, spread_k

K = np.array([4.0, 8.0, 12.0, 16.0, 20.0, 24.0])


def failures(ratio: np.ndarray | float, ended: float = 1000.0) -> Failures:
    counts = np.full(K.size, ended)
    return Failures(k=K, ended=counts, failed=counts * ratio)


def test_the_lowest_failing_level_is_found() -> None:
    assert split(failures(np.where(K > 17, 0.3, 0.001)), 1.0, 0.02) == pytest.approx(20.0)


def test_a_gap_is_bridged_by_a_burst_only() -> None:
    seen = Failures(k=np.array([4.0, 8.0, 40.0]), ended=np.full(3, 500.0), failed=np.array([0.0, 0.0, 200.0]))
    assert split(seen, 1.0, 0.02) == pytest.approx(10.0)


@pytest.mark.parametrize(
    "seen",
    [
        failures(0.05),
        failures(np.where(K > 17, 0.015, 0.001)),  # within what the person accepts
        failures(np.where(K > 17, 0.06, 0.04)),  # not twice as often
        failures(np.where(K > 17, 0.3, 0.0), ended=8.0),  # fewer than ten errors
        Failures(k=K[:1], ended=np.array([100.0]), failed=np.array([50.0])),
    ],
    ids=["everywhere", "acceptable", "hardly more", "few", "one level"],
)
def test_what_is_not_tied_to_load(seen: Failures) -> None:
    assert split(seen, 1.0, 0.02) is None


def test_bursts_of_errors_are_few_pieces_of_evidence() -> None:
    seen = failures(np.where(K > 17, 0.04, 0.01))
    assert split(seen, 1.0, 0.02) is not None
    assert split(seen, 30.0, 0.02) is None


def test_dispersion_tells_bursts_from_chance() -> None:
    k = spread_k(10.0)
    even = usable_rows(a_cycle(k, error_ratio=0.05))
    burst = usable_rows(a_cycle(k, error_ratio=lambda k: np.where(np.arange(k.size) % 30 == 3, 0.9, 0.0)))
    assert dispersion(even) < 2
    assert dispersion(burst) > 10


def test_one_sick_replica_is_not_a_busy_fleet() -> None:
    k = spread_k(10.0)
    k[1] *= 0.5
    sick = usable_rows(a_cycle(k, error_ratio=lambda k: np.where(np.arange(k.size) // 30 == 1, 0.9, 0.0)))
    busy = usable_rows(a_cycle(k, error_ratio=lambda k: np.where(np.arange(k.size) // 30 == 0, 0.9, 0.0)))
    assert one_is_sick(sick)
    k[0] *= 2
    busy = usable_rows(a_cycle(k, error_ratio=lambda k: np.where(np.arange(k.size) // 30 == 0, 0.9, 0.0)))
    assert not one_is_sick(busy)


def test_errors_of_one_sick_replica_move_nothing() -> None:
    pupil = Pupil(a_learning_policy(initial=7.0))
    k = np.full((4, 30), 8.0)
    k[1] = 4.0
    lesson = pupil.see(a_cycle(k, error_ratio=lambda k: np.where(k < 5, 0.5, 0.0)))
    assert (lesson.learnt, pupil.learner.errors.trial, lesson.reason) == (
        pytest.approx(10.0),
        None,
        TargetReason.ERRORS_NOT_TIED,
    )


def test_a_cliff_is_stepped_back_from_at_once_and_not_approached_for_ten_cycles() -> None:
    pupil = Pupil(a_learning_policy(initial=TARGET_SHARE * 12.0))
    cliff = {"curve": lambda k: 0.5 + 0.01 * k, "error_ratio": lambda k: np.where(k > 10, 0.4, 0.0)}
    lesson = pupil.see(a_cycle(spread_k(12.0), **cliff))
    assert lesson.reason is TargetReason.ERRORS_TIED_TO_LOAD
    assert 9.0 < lesson.learnt < 10.6
    assert (lesson.sizing.slots or 99) <= 10
    after = [pupil.see(a_cycle(np.minimum(spread_k(lesson.learnt), 10.0), **cliff)).learnt for _ in range(9)]
    assert max(after) <= lesson.learnt


def story(error_ratio: object, cycles: int) -> tuple[Pupil, list[TargetReason], list[float]]:
    """Run replicas that always hold all slots, so that only a trial can tell."""
    pupil = Pupil(a_learning_policy(initial=TARGET_SHARE * 32.0))
    slots = []
    for _ in range(cycles):
        top = float(pupil.lessons[-1].sizing.slots or 0) if pupil.lessons else 40.0
        lesson = pupil.see(a_cycle(np.full((4, 30), top), curve=lambda k: 0.5 + 0.01 * k, error_ratio=error_ratio))
        slots.append(float(lesson.sizing.slots or 0))
    return pupil, [lesson.reason for lesson in pupil.lessons], slots


def test_a_trial_that_works_is_kept_and_the_target_waits_for_its_end() -> None:
    pupil, reasons, slots = story(lambda k: np.where(k > 25, 0.4, 0.0), 2)
    assert reasons[0] is TargetReason.ERRORS_TRIAL
    assert slots[0] == 20
    assert pupil.lessons[0].sizing.target == pytest.approx(TARGET_SHARE * 32.0)
    assert reasons[1] is TargetReason.ERRORS_TIED_TO_LOAD
    assert pupil.learner.limit <= 25


def test_three_trials_in_vain_give_the_slots_back_and_rest() -> None:
    pupil, reasons, slots = story(0.05, 6)
    assert reasons[:3] == [TargetReason.ERRORS_TRIAL] * 3
    assert slots[:4] == [20, 10, 5, 40]
    assert reasons[3] is TargetReason.ERRORS_NOT_TIED
    assert pupil.learner.limit == pytest.approx(32.0)
    assert TargetReason.ERRORS_TRIAL not in reasons[4:]


def test_the_rest_doubles_with_each_series_in_vain() -> None:
    errors = Errors()
    rests = []
    for _ in range(7):
        errors = rest(errors)
        rests.append(errors.rest_cycles)
    assert rests == [REST_CYCLES * 2**n for n in (0, 1, 2, 3, 4, 4, 4)]


def test_a_single_slot_is_never_tried_lower() -> None:
    pupil = Pupil(a_learning_policy(initial=TARGET_SHARE), Learner.fresh(a_learning_policy(initial=TARGET_SHARE)))
    lesson = pupil.see(a_cycle(np.full((4, 30), 1.0), error_ratio=0.3))
    assert pupil.learner.errors.trial is None
    assert lesson.sizing.slots == 2
