"""How L moves: the rules one by one, with the numbers that bind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scaler.decision import TargetReason
from scaler.vertical.ceiling import Ceiling
from scaler.vertical.curve import Curve
from scaler.vertical.knee import Knee
from scaler.vertical.learner import Learner
from scaler.vertical.moves import Evidence, move
from tests.support.learning import a_learning_policy

POLICY = a_learning_policy(initial=7.0)


def a_state(*, cycles: int = 5, is_saturated: bool = False, highest_k: float = 30.0, **words: Any) -> Learner:
    curve = Curve(
        a_s=0.5,
        b_s=0.0,
        power=16.0,
        capacity_rps=40.0 if is_saturated else np.inf,
        is_saturated=is_saturated,
        is_straight_seen=True,
        lowest_k=1.0,
        highest_k=highest_k,
    )
    return replace(Learner.fresh(POLICY), curve=curve, **{"cycles": cycles, "bin_cycles": cycles} | words)


def a_ceiling(k: float | None, *, throughput_k: float = 20.0, binds: TargetReason = TargetReason.AT_KNEE) -> Ceiling:
    return Ceiling(k=k, binds=binds, knee=Knee(k=k, throughput_k=throughput_k, latency_k=None), wall_k=None)


def some_evidence(**words: Any) -> Evidence:
    base: dict[str, Any] = {
        "held_k": 10.0,
        "p95_s": 1.0,
        "error_ratio": 0.0,
        "starting": 0,
        "is_late": False,
        "since_rollout_s": np.inf,
        "resource_k": None,
    }
    return Evidence(**base | words)


def moved(state: Learner, ceiling: Ceiling, **evidence: Any) -> tuple[float, TargetReason]:
    after, reason = move(state, ceiling, some_evidence(**evidence), POLICY)
    return after.limit, reason


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ({"starting": 1}, TargetReason.HELD_STARTING),
        ({"is_late": True}, TargetReason.HELD_LATE),
        ({"since_rollout_s": 59.0}, TargetReason.HELD_ROLLOUT),
        ({"held_k": 7.4}, TargetReason.NOT_EXERCISED),
        ({"resource_k": 10.4}, TargetReason.RESOURCE),
        ({"error_ratio": 0.03}, TargetReason.ERRORS_NOT_TIED),
    ],
)
def test_what_forbids_a_raise_forbids_no_cut(evidence: dict[str, Any], reason: TargetReason) -> None:
    assert moved(a_state(), a_ceiling(20.0), **evidence) == (pytest.approx(10.0), reason)
    assert moved(a_state(), a_ceiling(8.0), **evidence) == (pytest.approx(8.0), TargetReason.CUT)


def test_latency_past_its_limit_forbids_a_raise() -> None:
    policy = a_learning_policy(initial=7.0, latency_s=0.9)
    after, reason = move(a_state(), a_ceiling(20.0), some_evidence(), policy)
    assert (after.limit, reason) == (pytest.approx(10.0), TargetReason.LATENCY)


@pytest.mark.parametrize(
    ("state", "ceiling_k", "held_k", "limit"),
    [
        (a_state(), 15.0, 10.0, 15.0),  # onboarding: to K
        (a_state(), 99.0, 10.0, 20.0),  # at most twice L
        (a_state(), 99.0, 8.0, 16.0),  # at most twice what was held
        (a_state(cycles=11, is_saturated=True), 99.0, 10.0, 12.5),  # the knee is seen: as far as bursts went
        (a_state(cycles=11, asked=1), 99.0, 10.0, 11.0),  # asked twice: one tenth
    ],
)
def test_how_far_a_raise_goes(state: Learner, ceiling_k: float, held_k: float, limit: float) -> None:
    assert moved(state, a_ceiling(ceiling_k), held_k=held_k) == (pytest.approx(limit), TargetReason.RAISED)


def test_a_raise_stops_at_the_resource() -> None:
    assert moved(a_state(), a_ceiling(99.0), resource_k=13.0)[0] == pytest.approx(13.0)


@pytest.mark.parametrize("state", [a_state(cycles=11), a_state()], ids=["known model", "small step"])
def test_a_slow_or_small_raise_is_asked_for_twice(state: Learner) -> None:
    to = a_ceiling(11.0)
    first, reason = move(state, to, some_evidence(), POLICY)
    assert (first.limit, reason) == (pytest.approx(10.0), TargetReason.CONFIRMING)
    forgotten, _ = move(first, to, some_evidence(is_late=True), POLICY)
    assert move(forgotten, to, some_evidence(), POLICY)[1] is TargetReason.CONFIRMING
    assert move(first, to, some_evidence(), POLICY)[1] is TargetReason.RAISED


@pytest.mark.parametrize("is_saturated", [True, False])
def test_after_a_restart_the_first_curves_raise_nothing(is_saturated: bool) -> None:
    state = a_state(cycles=14, bin_cycles=4, asked=1, is_saturated=is_saturated)
    assert moved(state, a_ceiling(30.0)) == (pytest.approx(10.0), TargetReason.CONFIRMING)
    assert moved(replace(state, bin_cycles=5), a_ceiling(30.0))[1] is TargetReason.RAISED


@pytest.mark.parametrize(("ceiling_k", "limit"), [(9.0, 9.0), (1.0, 7.0)])
def test_a_cut_is_made_at_once_by_at_most_thirty_percent(ceiling_k: float, limit: float) -> None:
    assert moved(a_state(), a_ceiling(ceiling_k)) == (pytest.approx(limit), TargetReason.CUT)


@pytest.mark.parametrize("ceiling_k", [9.6, 10.0, 10.4])
def test_near_the_knee_nothing_moves(ceiling_k: float) -> None:
    assert moved(a_state(), a_ceiling(ceiling_k)) == (pytest.approx(10.0), TargetReason.AT_KNEE)


def test_a_knee_below_what_was_seen_is_a_guess_and_cuts_nothing() -> None:
    assert moved(a_state(highest_k=5.0), a_ceiling(6.0)) == (pytest.approx(10.0), TargetReason.NOT_EXERCISED)


def test_a_wall_cuts_even_where_no_curve_is_known() -> None:
    ceiling = Ceiling(k=8.0, binds=TargetReason.MEMORY, knee=None, wall_k=8.0)
    assert moved(replace(a_state(), curve=None), ceiling) == (pytest.approx(8.0), TargetReason.MEMORY)


def test_an_unreachable_limit_cuts_only_a_saturated_replica_past_its_throughput() -> None:
    out_of_reach = a_ceiling(None, throughput_k=8.0, binds=TargetReason.UNREACHABLE)
    assert moved(a_state(), out_of_reach) == (pytest.approx(10.0), TargetReason.UNREACHABLE)
    assert moved(a_state(is_saturated=True), out_of_reach) == (pytest.approx(8.0), TargetReason.CUT)
    below = a_ceiling(None, throughput_k=12.0, binds=TargetReason.UNREACHABLE)
    assert moved(a_state(is_saturated=True), below) == (pytest.approx(10.0), TargetReason.UNREACHABLE)


def test_at_its_upper_bound_l_stays_whatever_the_knee_says() -> None:
    policy = a_learning_policy(initial=7.0, maximum=7.0)
    after, reason = move(a_state(), a_ceiling(50.0), some_evidence(), policy)
    assert (after.limit, reason) == (pytest.approx(10.0), TargetReason.AT_BOUND)


def test_a_cut_stops_at_the_lower_bound() -> None:
    policy = a_learning_policy(initial=7.0, minimum=6.3)
    after, _ = move(a_state(), a_ceiling(1.0), some_evidence(), policy)
    assert after.limit == pytest.approx(9.0)
    assert move(after, a_ceiling(1.0), some_evidence(), policy) == (after, TargetReason.AT_BOUND)


def test_a_cut_takes_the_validated_part_along() -> None:
    after, _ = move(a_state(validated=10.0), a_ceiling(8.0), some_evidence(), POLICY)
    assert after.validated == pytest.approx(8.0)
    assert after.quiet_cycles == 0
    assert after.has_moved
