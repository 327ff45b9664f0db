"""The rule as the controller uses it: reasons, bounds, gaps, restarts."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.errors import DecodeError
from tests.support.sizing import DAY_MIN, MINUTE, Sized, a_spec
from warmpool.size.decide import Reason, is_ordered
from warmpool.size.rule import Learnt
from warmpool.values import Costs, HitRate, Mode, Static


@pytest.fixture(scope="module")
def lessons() -> bytes:
    """Return three steady days at 30 draws an hour, as stored."""
    sized = Sized()
    sized.quiet_days(3, per_hour=30.0)
    return sized.rule.stored()


def restored(lessons: bytes, **words) -> Sized:
    return Sized(Learnt(a_spec(**words), lessons), MINUTE + 3 * DAY_MIN)


def test_the_first_day_keeps_the_largest_burst_and_one_more():
    sized = Sized()
    assert sized.live([0] * 30)[-1] == 2
    assert sized.live([5, 0, 0])[-1] == 6
    told = sized.now()
    assert told.reason == Reason.FIRST_DAY
    assert not told.is_informed
    assert "too little history" in told.text


def test_steady_demand_is_sized_near_the_closed_form(lessons):
    sized = restored(lessons)
    targets = sized.live([0, 1] * 60)
    # 30 draws an hour within 511 s want 9 at 95 % (7 where misses go elsewhere: Erlang's loss).
    assert 6 <= np.median(targets) <= 10
    assert sized.now().is_informed
    assert is_ordered(tuple(sized.now().quantiles))


def test_a_higher_goal_and_a_dearer_miss_want_more(lessons):
    def wants(objective) -> int:
        return restored(lessons, objective=objective).live([0, 1] * 10)[-1]

    assert wants(HitRate(goal_ratio=0.8)) < wants(HitRate(goal_ratio=0.95)) < wants(HitRate(goal_ratio=0.999))
    cheap, dear = (wants(Costs(per_miss=price, per_idle_hour=4.0)) for price in (0.1, 100.0))
    assert cheap < dear


def test_bounds_hold_and_say_so(lessons):
    least = restored(lessons, min_nodes=30).now()
    assert (least.target, least.reason) == (30, Reason.MINIMUM)
    most = restored(lessons, max_nodes=3).now()
    assert (most.target, most.reason) == (3, Reason.MAXIMUM)


def test_what_autoscalers_announce_is_wanted(lessons):
    told = restored(lessons).now(coming=25)
    assert (told.target, told.reason) == (25, Reason.ANNOUNCED)


def test_a_gap_keeps_the_target_and_a_quiet_hour_does_not(lessons):
    gap, quiet = restored(lessons), restored(lessons)
    before = gap.live([1, 1, 0, 1])[-1]
    quiet.live([1, 1, 0, 1])
    assert gap.live([None] * 90) == [before] * 90
    assert gap.now().reason == Reason.NO_DATA
    assert quiet.live([0] * 600)[-1] < before


def test_a_shrink_waits_for_one_lead_time(lessons):
    sized = restored(lessons)
    peak = max(sized.live([4] * 5))
    assert min(sized.live([0] * 9)) >= peak


def test_a_jump_of_the_error_falls_back_to_what_came(lessons):
    sized = restored(lessons)
    sized.live([0, 1] * 6)
    sized.live([20, 25, *([0] * 5)])
    told = sized.now()
    assert told.target >= 45
    assert told.reason == Reason.RECENT_MAXIMUM


def test_a_restart_goes_on_with_what_was_learnt(lessons):
    once, again = restored(lessons), restored(lessons)
    once.live([1, 0] * 30)
    again.live([1, 0] * 15)
    second = Sized(Learnt(a_spec(), again.rule.stored()), again.minute)
    second.live([1, 0] * 15)
    assert abs(once.now().target - second.now().target) <= 1
    assert once.now().numbers["draws_seen"] == second.now().numbers["draws_seen"]
    assert len(lessons) < 64 * 1024


def test_a_long_silence_is_a_gap_and_costs_no_time(lessons):
    sized = restored(lessons)
    before = sized.live([1, 0])[-1]
    sized.minute += 20 * DAY_MIN
    sized.rule.pass_to(60.0 * sized.minute, 10, is_known=True)
    assert sized.now().reason == Reason.NO_DATA
    assert sized.now().target == before
    sized.live([0, 0])
    assert sized.now().reason != Reason.NO_DATA


def test_a_clock_that_jumps_back_or_breaks_changes_nothing(lessons):
    sized = restored(lessons)
    sized.live([1])
    before = sized.rule.stored()
    for wall_s in (0.0, -1e300, float("nan"), float("inf")):
        sized.rule.pass_to(wall_s, 10, is_known=True)
    assert sized.rule.stored() == before


def test_one_node_more_has_a_value(lessons):
    sized = restored(lessons)
    sized.live([0, 1, 0, 0] * 360)
    saved, idle_h = sized.now().saves
    assert saved > 0
    assert idle_h > 12.0


def test_more_room_keeps_what_was_learnt(lessons):
    sized = restored(lessons)
    sized.live([1, 0, 1])
    before = sized.now()
    sized.rule.apply(a_spec(max_nodes=100))
    sized.live([0])
    assert abs(sized.now().target - before.target) <= 1
    assert sized.now().numbers["draws_seen"] == before.numbers["draws_seen"]


def test_lead_times_move_the_window(lessons):
    sized = restored(lessons)
    assert sized.now().horizon_s == pytest.approx(600.0)
    for _ in range(100):
        sized.rule.led(120.0)
    sized.live([1, 0] * 40)
    assert sized.now().horizon_s < 300.0


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:50], lambda b: b"\x05\0\0\0hallo", lambda b: b[:-30], lambda b: b + b"x" * 9]
)
def test_what_cannot_be_read_says_so(lessons, spoil):
    stored = spoil(lessons)
    if stored.endswith(b"x" * 9):
        Learnt(a_spec(), stored)  # what comes after the end of a stream is no part of it
        return
    with pytest.raises(DecodeError):
        Learnt(a_spec(), stored)


def test_in_observe_mode_misses_of_the_cluster_owe_nothing(lessons):
    observed = restored(lessons, mode=Mode.OBSERVE)
    acting = restored(lessons)
    for sized in (observed, acting):
        sized.rule.evidence.features.seen_min += DAY_MIN
    for _ in range(600):
        for sized in (observed, acting):
            sized.rule.drew(60.0 * sized.minute + 30.0, 1, 1)  # nobody follows the target: all miss
            sized.rule.pass_to(60.0 * (sized.minute + 1), 10, is_known=True)
            sized.minute += 1
    assert acting.now().numbers["debt_misses"] > 3 * max(1.0, observed.now().numbers["debt_misses"])


def test_a_fixed_size_has_nothing_to_learn():
    with pytest.raises(TypeError, match="fixed"):
        Learnt(a_spec(objective=Static(count=3)))


def test_a_flood_of_draws_is_bounded():
    sized = Sized()
    sized.rule.drew(60.0 * MINUTE, 10**9, 0)
    sized.live([0])
    assert sized.now().numbers["draws_seen"] == 2000
