"""Each rule of the horizontal axis by itself: formula, edge, and the reason it stands for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaler.horizontal.arrivals import Arrivals
from scaler.horizontal.backlog import drain_replicas, drain_time_s, left_over
from scaler.horizontal.bounds import band_ratio, fewest_after_shrink, most_after_growth, room, whole
from scaler.horizontal.drift import drift_ratio
from scaler.horizontal.floor import Floor
from scaler.horizontal.horizon import hold_s, reversal_hold_s
from scaler.horizontal.rate import dispersion, rate_rps
from scaler.horizontal.record import margin_ratio, with_margin
from scaler.horizontal.service import ServiceTime
from scaler.horizontal.shadow import Level, ShadowFleets
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.trend import growth_rps
from scaler.horizontal.window import Window
from scaler.policy import Behavior, Style


def _arrivals(counts: list[float | None]) -> Arrivals:
    arrivals = Arrivals()
    for count in counts:
        arrivals.add(count)
    return arrivals


def test_a_step_in_smooth_traffic_wins_its_vote_within_ten_seconds() -> None:
    rate = rate_rps(_arrivals([10.0] * 600 + [100.0] * 10))
    assert rate is not None
    assert rate > 90


def test_a_burst_in_bursty_traffic_does_not() -> None:
    random = np.random.default_rng(0)
    bursty = [float(10 * random.choice([0, 0, 0, 0, 10])) for _ in range(1800)]
    rate = rate_rps(_arrivals([*bursty, *[100.0] * 10]))
    assert rate is not None
    assert rate < 50


def test_a_step_is_no_noise_against_itself() -> None:
    before, after = (rate_rps(_arrivals([10.0] * 600 + [100.0] * seconds)) for seconds in (9, 12))
    assert before is not None
    assert after is not None
    assert after > before


def test_unknown_seconds_neither_lower_the_rate_nor_vote() -> None:
    assert rate_rps(_arrivals([7.0, None] * 200)) == pytest.approx(7.0, rel=0.01)
    assert rate_rps(_arrivals([None] * 200)) is None
    assert rate_rps(_arrivals([7.0] * 4)) is None


def test_dispersion_of_a_slow_trend_is_that_of_its_noise() -> None:
    trend = np.linspace(1000, 2000, 180)
    assert dispersion(trend, 1) == 1.0
    assert dispersion(np.array([0.0, 100.0] * 90), 1) == pytest.approx(100.0)
    assert dispersion(np.array([0.0, math.nan, 100.0, 100.0]), 1) >= 1.0
    assert dispersion(np.array([math.nan] * 10), 1) == 1.0


def test_arrivals_are_counted_over_any_window_after_the_ring_has_turned() -> None:
    arrivals = _arrivals([float(second) for second in range(1000)])
    assert arrivals.over(10) == (sum(range(990, 1000)), 10.0)
    assert list(arrivals.recent_bins(2)) == [sum(range(980, 990)), sum(range(990, 1000))]
    assert arrivals.bins()[-1] == sum(range(990, 1000))
    assert len(_arrivals([1.0] * 4000).bins()) == 180


def test_both_halves_must_rise() -> None:
    ramp = [10.0 + 0.15 * second for second in range(400)]
    step = [10.0] * 300 + [70.0] * 100
    assert growth_rps(_arrivals(ramp), 70.0, 180.0) == pytest.approx(0.15 * 180, rel=0.6)
    assert growth_rps(_arrivals(step), 70.0, 180.0) == 0.0
    assert growth_rps(_arrivals(list(reversed(ramp))), 10.0, 180.0) == 0.0
    assert growth_rps(_arrivals(ramp), 20.0, 180.0) <= 10.0


def test_drift_fears_rises_and_not_falls() -> None:
    rising = _arrivals([10.0 + second / 20 for second in range(1500)])
    falling = _arrivals([85.0 - second / 20 for second in range(1500)])
    assert drift_ratio(rising, 180.0) > 0.15
    assert drift_ratio(falling, 180.0) == 0.0
    assert drift_ratio(rising, 5.0) < drift_ratio(rising, 180.0)
    assert drift_ratio(_arrivals([10.0] * 1500), 180.0) == 0.0
    assert drift_ratio(_arrivals([10.0] * 60), 180.0) == 0.0


def test_service_time_follows_littles_law_and_waits_for_completions() -> None:
    service = ServiceTime()
    for _ in range(4):
        service.add(30.0, 1.0)
    assert service.seconds is None
    for _ in range(600):
        service.add(30.0, 10.0)
    assert service.seconds == pytest.approx(3.0, rel=0.01)
    service.limit_s = 2.0
    assert service.seconds == 2.0


def test_the_first_of_long_requests_do_not_inflate_the_service_time() -> None:
    service = ServiceTime()
    for second in range(20):  # 10 requests/s of 10 s into an empty fleet
        service.add(min(second + 0.5, 10.0) * 10.0, 10.0 if second >= 10 else 0.0)
    assert service.seconds == pytest.approx(10.0, rel=0.35)


def _lived(fleets: ShadowFleets, arrivals: list[float], service_s: float = 1.0) -> ShadowFleets:
    for count in arrivals:
        fleets.step(count, service_s, 2.0)
    return fleets


def test_the_shadow_level_is_the_smallest_that_was_in_time() -> None:
    level = _lived(ShadowFleets(8.0, 100, 600.0), [40.0] * 300).level(300, 0.01)
    assert level is not None
    assert 40.0 <= level.slots <= 44.0
    assert level.bursts == 5


def test_a_fleet_without_arrivals_has_no_level() -> None:
    assert _lived(ShadowFleets(8.0, 100, 600.0), [0.0] * 50).level(300, 0.01) is None


def test_small_shadow_fleets_forget_a_long_overload_within_minutes() -> None:
    fleets = _lived(ShadowFleets(8.0, 100, 600.0), [80.0] * 3600)
    _lived(fleets, [8.0] * 900)
    level = fleets.level(600, 0.005)
    assert level is not None
    assert level.slots < 12.0


def test_larger_sizes_are_added_as_if_they_had_always_been_there() -> None:
    random = np.random.default_rng(1)
    load = [float(count) for count in random.poisson(5, 200)] + [120.0] * 30 + [5.0] * 100
    fleets = _lived(ShadowFleets(8.0, 100, 600.0), load)
    widest = ShadowFleets(8.0, 100, 600.0)
    while len(widest._sizes) < len(widest._grid):
        widest._widen()
    assert fleets.level(300, 0.01) == _lived(widest, load).level(300, 0.01)


def test_another_size_of_replica_keeps_what_was_lived() -> None:
    fleets = _lived(ShadowFleets(8.0, 100, 600.0), [40.0] * 300)
    fleets.rebase(3.0, 200)
    level = fleets.level(300, 0.01)
    assert level is not None
    assert level.slots == pytest.approx(42.0, rel=0.08)


def test_margins_the_larger_of_record_and_drift() -> None:
    calm, first = Level(slots=80.0, bursts=30), Level(slots=80.0, bursts=0)
    assert with_margin(first, 8.0, 0.0, Style.STEADY) == 20
    assert with_margin(calm, 8.0, 0.0, Style.STEADY) == 11
    assert margin_ratio(calm, 0.2, Style.STEADY) == pytest.approx(0.24)
    assert margin_ratio(calm, 9.0, Style.STEADY) == 0.5
    assert margin_ratio(calm, 9.0, Style.THRIFTY) == 0.3
    assert margin_ratio(first, 0.2, Style.THRIFTY) == 1.5


@pytest.mark.parametrize(
    ("ready", "ready_at_s", "left"),
    [
        (1, [], 400.0 + (50 - 8) * 60),  # nothing comes
        (1, [30.0] * 20, 0.0),  # comes in time and drains all
        (1, [59.0] * 20, 400.0 + (50 - 8) * 59 + (50 - 168) * 1),
        (1, [-500.0] * 20, 0.0),  # overdue ones may come any moment
        (10, [], 0.0),  # enough now
    ],
)
def test_backlog_is_walked_to_the_moment_of_the_next_capacity(ready: int, ready_at_s: list[float], left: float) -> None:
    assert left_over(400.0, 50.0, 8.0, ready, ready_at_s, 0.0, 60.0) == pytest.approx(left)


def test_drain_time_is_never_shorter_than_the_service() -> None:
    assert drain_time_s(60.0, 1.0, is_thrifty=False) == 5.0
    assert drain_time_s(60.0, 1.0, is_thrifty=True) == 20.0
    assert drain_time_s(5.0, 0.1, is_thrifty=False) == 2.0
    assert drain_time_s(5.0, 12.0, is_thrifty=False) == 12.0
    assert drain_time_s(5.0, 500.0, is_thrifty=False) == 30.0
    assert drain_replicas(80.0, 400.0, 8.0, 5.0) == 10.0 + 10.0


def test_whole_replicas_and_steps() -> None:
    assert whole(21 / (3 * 0.7)) == 10
    assert whole(10.0001) == 11
    behavior = Behavior(growth_ratio=1.1, growth_replicas=1, shrink_ratio=0.1)
    assert most_after_growth(behavior, 3) == 4
    assert most_after_growth(Behavior(), 0) == 4
    assert most_after_growth(Behavior(), 10) == 40
    assert fewest_after_shrink(behavior, 3) == 2
    assert fewest_after_shrink(behavior, 40) == 36


def test_the_band_is_a_share_of_real_headroom() -> None:
    assert band_ratio(10.0, None, 10, 60.0) == 0.0
    assert band_ratio(10.0, 10.0, 10, 60.0) == 0.0
    assert band_ratio(5.6, 8.0, 1, 60.0) == 0.0
    assert 0 < band_ratio(5.6, 8.0, 10, 180.0) < band_ratio(5.6, 8.0, 10, 5.0) < 0.5 * (8 / 5.6 - 1)
    assert room(7.0, None) == 10.0
    assert room(7.0, 8.0) == 8.0


def test_holds_grow_with_the_start_time_and_with_regret() -> None:
    steady, thrifty = Behavior(), Behavior(style=Style.THRIFTY)
    assert hold_s(steady, 60.0) == 600.0
    assert hold_s(thrifty, 60.0) == 210.0
    assert [reversal_hold_s(steady, 5.0, r) for r in (0, 1, 9)] == [600.0, 1200.0, 7200.0]
    assert reversal_hold_s(thrifty, 60.0, 5) == 210.0


def test_a_window_forgets_by_age_and_skips_what_is_unknown() -> None:
    window = Window(4)
    for value in (9.0, 1.0, None, 3.0, 5.0):
        window.add(value)
    assert window.mean() == 3.0
    assert window.mean(age_s=3.0) == 5.0
    assert window.mean(age_s=9.0) is None
    assert window.largest() == 5.0
    assert window.resized(2).mean() == 4.0


def test_peaks_live_for_their_window_and_are_few() -> None:
    state = HorizontalState.found(3, 0.0)
    for now_s in range(0, 3600, 5):
        state = state.with_peak(1000.0 - now_s / 10, float(now_s), 600.0)
    assert 1000.0 - (3595 - 610) / 10 >= state.peak() >= 1000.0 - (3595 - 590) / 10
    assert len(state.peaks) <= 62
    assert state.with_peak(5000.0, 3600.0, 600.0).peaks[0][1] == 5000.0


def test_a_repeated_wish_is_one_move() -> None:
    state = HorizontalState.found(3, 0.0).moved(3, 8, 5.0).moved(5, 8, 10.0)
    assert state.grew_s == 5.0
    state = state.moved(8, 6, 1000.0)
    assert (state.grew_s, state.recent_reversals(1001.0), state.recent_reversals(20_000.0)) == (None, 1, 0)


def test_a_forecast_raises_and_never_lowers() -> None:
    floor = Floor(rate_rps=20.0, weight_ratio=0.5, horizon_s=60.0, confidence_ratio=0.9)
    assert floor.raised(10.0) == 15.0
    assert floor.raised(30.0) == 30.0
