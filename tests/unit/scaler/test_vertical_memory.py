"""Memory and other resources as limits."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.decision import TargetReason
from scaler.vertical.bins import Points
from scaler.vertical.learner import TARGET_SHARE
from scaler.vertical.memory import Line
from scaler.vertical.survivors import survivors
from scaler.vertical.thresholds import THRESHOLDS, cap
from tests.support.learning import Pupil, a_cycle, a_learning_policy, spread_k

K = np.linspace(2, 18, 120)
NOISE = 0.01 * np.sin(np.arange(120) * 7.0)


def steady(k: np.ndarray) -> np.ndarray:
    return 0.5 + 0.01 * k


def test_the_line_finds_where_memory_is_used_up() -> None:
    line = Line().with_readings(K, 0.15 + 0.0425 * K + NOISE)
    assert line.reaches(0.9) == pytest.approx(0.75 / 0.0425, rel=0.02)


@pytest.mark.parametrize(
    ("k", "memory"),
    [
        (K, np.full(120, np.nan)),
        (K, 0.5 + NOISE),  # does not follow the load
        (K, 0.8 - 0.02 * K),  # falls
        (K, np.ones(120)),  # full: says nothing of where it began
        (np.full(120, 9.0), 0.5 + NOISE),  # one level only
        (K[:10], 0.15 + 0.0425 * K[:10]),  # too few
        (K, 0.95 + 0.0005 * K),  # passed without any request
    ],
    ids=["missing", "flat", "falling", "full", "one level", "few", "always above"],
)
def test_what_is_no_line(k: np.ndarray, memory: np.ndarray) -> None:
    assert Line().with_readings(k, memory).reaches(0.9) is None


def test_full_readings_do_not_bend_the_line() -> None:
    line = Line().with_readings(K * 2, np.minimum(0.15 + 0.0425 * K * 2, 1.0))
    assert line.reaches(0.9) == pytest.approx(0.75 / 0.0425, rel=0.02)


def test_full_memory_cuts_to_the_line_at_once_and_lower_than_thirty_percent() -> None:
    pupil = Pupil(a_learning_policy(initial=TARGET_SHARE * 40.0))
    memory = {"curve": steady, "memory_ratio": lambda k: np.minimum(0.15 + 0.0425 * k, 1.0)}
    lesson = pupil.see(a_cycle(spread_k(40.0, low=0.1), **memory))
    assert lesson.reason is TargetReason.MEMORY
    assert lesson.learnt == pytest.approx(17.6, rel=0.03)
    assert lesson.sizing.slots == 17
    assert survivors(pupil.learner, pupil.policy).memory_limit_target == pytest.approx(17.6, rel=0.03)


def test_one_full_reading_is_a_glitch() -> None:
    pupil = Pupil(a_learning_policy())
    cycle = a_cycle(spread_k(10.0), memory_ratio=lambda k: np.where(np.arange(k.size) == 7, 0.99, 0.3))
    assert pupil.see(cycle).reason is not TargetReason.MEMORY


def test_memory_that_is_always_full_is_asked_five_times_and_then_given_back() -> None:
    pupil = Pupil(a_learning_policy(initial=7.0))
    limits = [pupil.see_many(1, curve=steady, memory_ratio=0.99).learnt for _ in range(8)]
    assert limits[:5] == pytest.approx([10 * 0.7**n for n in range(1, 6)])
    assert min(limits[5:]) == pytest.approx(10.0)


def throughput(rising: float) -> Points:
    k = np.array([2.0, 4.0, 8.0, 16.0])
    x = np.array([2.0, 4.0, 8.0, 8.0 * rising])
    return Points(k=k, latency_s=k / x, p95_s=k / x, completions=np.full(4, 500.0))


@pytest.mark.parametrize("name", sorted(THRESHOLDS))
def test_each_resource_caps_at_its_own_threshold(name: str) -> None:
    level = THRESHOLDS[name].level_ratio
    lines = {name: Line().with_readings(K, level * K / 10.0 + NOISE)}
    found = cap(lines, throughput(1.0))
    assert found is not None
    assert (found.name, found.k) == (name, pytest.approx(10.0, rel=0.05))


def test_a_busy_resource_is_no_limit_while_throughput_rises_past_it_but_full_memory_is() -> None:
    lines = {
        name: Line().with_readings(K, 0.9 * K / 10.0 + NOISE) for name in ("gpu_utilisation_ratio", "gpu_memory_ratio")
    }
    found = cap(lines, throughput(1.9))
    assert found is not None
    assert found.name == "gpu_memory_ratio"


def test_a_resource_holds_a_raise_but_never_cuts() -> None:
    pupil = Pupil(a_learning_policy(initial=7.0))
    full = {"gpu_memory_ratio": lambda k: 0.1 + 0.08 * k}
    for k in (10.0, 7.0):
        lesson = pupil.see(a_cycle(spread_k(k, high=1.1), curve=steady, resources=full))
        assert lesson.learnt == pytest.approx(10.0)
        assert lesson.numbers["resource_k"] == pytest.approx(10.0, rel=0.01)
    assert pupil.lessons[0].reason is TargetReason.RESOURCE


def test_a_resource_without_a_threshold_is_not_followed() -> None:
    pupil = Pupil(a_learning_policy())
    pupil.see(a_cycle(spread_k(10.0), resources={"moon_phase_ratio": lambda k: 0.1 * k}))
    assert pupil.learner.resources == {}
