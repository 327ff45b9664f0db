"""Whole decisions: which rule binds, with which reason."""

from __future__ import annotations

import math

import pytest

from scaler.decision import Reason, Sizing
from scaler.horizontal.decide import decide
from scaler.horizontal.floor import Floor
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.survivors import Survivors
from scaler.horizontal.track import Track
from scaler.policy import ExtraSignal, ForecastMode, Style
from scaler.seen import Fleet, Sample
from scaler.starts import StartTimes
from tests.support.scaling import Endpoint, a_policy


def test_starting_replicas_count_once() -> None:
    """vllm-project/aibrix#2670: 2 -> 4 -> 8 -> 16 while the first two load."""
    endpoint = Endpoint(a_policy(), 2, start_s=120.0, plan_s=120.0)
    endpoint.steady(60, 30.0)
    ordered = endpoint.decisions[-1].desired
    assert {decision.desired for decision in endpoint.steady(60, 30.0)} == {ordered}


def test_a_backlog_is_drained_and_its_replicas_are_given_back() -> None:
    endpoint = Endpoint(a_policy(), 3, start_s=60.0, plan_s=60.0)
    endpoint.steady(900, 10.0)
    steady = endpoint.decisions[-1].desired
    held = iter(range(0, 100_000, 80))
    late = list(
        endpoint.live(
            60, lambda _: {"arrivals": 100.0, "completions": 24.0, "in_flight": 24.0, "queued": float(next(held))}
        )
    )
    assert Reason.BACKLOG in {decision.reason for decision in late}
    assert late[-1].desired > 3 * steady
    after = endpoint.steady(120, 10.0)
    assert after[0].reason in {Reason.BACKLOG, Reason.LATE, Reason.GROWTH_CAP, Reason.SHADOW}
    given_back = next(decision for decision in after if decision.reason is Reason.BACKLOG_GONE)
    assert given_back.desired < given_back.current
    assert given_back.at_s >= after[0].at_s + 25


def test_nothing_shrinks_while_somebody_is_late() -> None:
    endpoint = Endpoint(a_policy(max_replicas=12), 12)
    endpoint.steady(700, 5.0)
    kept = endpoint.ready
    for decision in endpoint.steady(300, 5.0, queued=400.0):
        assert decision.desired >= kept


def test_growth_is_capped_and_says_so() -> None:
    endpoint = Endpoint(a_policy(max_replicas=3000), 2)
    first = endpoint.steady(5, 10_000.0, 1.0)[0]
    assert first.desired == 8
    assert "one step allows 8" in first.text
    endpoint.steady(25, 10_000.0, 1.0)
    assert endpoint.ready * 8 >= 10_000


@pytest.mark.parametrize(
    ("least", "most", "replicas", "desired", "reason"),
    [
        (5, 9, 2, 5, Reason.MINIMUM),
        (1, 9, 20, 9, Reason.MAXIMUM),
        (0, 9, 0, 0, Reason.IDLE),
    ],
)
def test_bounds_hold_without_data(least: int, most: int, replicas: int, desired: int, reason: Reason) -> None:
    endpoint = Endpoint(a_policy(min_replicas=least, max_replicas=most), replicas)
    (decision,) = endpoint.live(5, lambda _: None)
    assert (decision.desired, decision.reason) == (desired, reason)


def test_never_to_zero_before_the_first_ready() -> None:
    """kserve/kserve#1247: the idle rule deleted the pod while its node booted."""
    endpoint = Endpoint(a_policy(min_replicas=0), 0, start_s=1000.0, plan_s=60.0)
    idle = {"arrivals": 0.0, "completions": 0.0, "in_flight": 0.0, "queued": 0.0}
    endpoint.steady(10, 0.0, queued=1.0)
    starting = list(endpoint.live(900, lambda _: idle))
    assert {decision.desired for decision in starting} == {1}
    assert starting[-1].reason is Reason.BEFORE_FIRST_READY
    awake = list(endpoint.live(450, lambda _: idle))
    assert awake[-1].desired == 0
    assert next(d.at_s for d in awake if d.desired == 0) >= 1005 + 300


def test_never_to_zero_with_a_request_in_flight_or_on_silence() -> None:
    endpoint = Endpoint(a_policy(min_replicas=0), 1)
    endpoint.steady(300, 2.0)
    one = {"arrivals": 0.0, "completions": 0.0, "in_flight": 1.0, "queued": 0.0}
    long_one = list(endpoint.live(2000, lambda _: one))
    assert long_one[-1].reason is Reason.REQUEST_IN_FLIGHT
    silent = list(endpoint.live(2000, lambda _: None))
    assert silent[-1].reason is Reason.NO_DATA
    assert {decision.desired for decision in [*long_one, *silent]} == {1}


def test_survivors_hold_by_what_the_curve_allows() -> None:
    policy = a_policy()
    endpoint = Endpoint(policy, 10)
    endpoint.steady(700, 20.0)
    fleet = Fleet(ready=10)
    for limits, reason in (
        (Survivors(latency_limit_target=2.0), Reason.SURVIVORS_LATENCY),
        (Survivors(memory_limit_target=2.0), Reason.SURVIVORS_MEMORY),
    ):
        decision, _ = decide(
            endpoint.track, fleet, endpoint.sizing, policy, endpoint.state, 700.0, start_time_s=60.0, survivors=limits
        )
        assert decision.desired == 10
        assert decision.reason is reason


def test_a_forecast_acts_only_where_it_may() -> None:
    floor = Floor(rate_rps=100.0, weight_ratio=1.0, horizon_s=120.0, confidence_ratio=0.9)
    wanted = {}
    for mode in ForecastMode:
        policy = a_policy(forecast=mode)
        endpoint = Endpoint(policy, 4)
        endpoint.steady(600, 20.0)
        decision, _ = decide(
            endpoint.track,
            Fleet(ready=4),
            endpoint.sizing,
            policy,
            endpoint.state,
            600.0,
            start_time_s=60.0,
            floor=floor,
        )
        wanted[mode] = decision
    assert wanted[ForecastMode.OBSERVE].desired == wanted[ForecastMode.OFF].desired
    assert wanted[ForecastMode.ACT].reason is Reason.FORECAST
    assert wanted[ForecastMode.ACT].desired == 16
    later = wanted[ForecastMode.OBSERVE].needs[-1]
    assert (later.replicas, later.by_s, later.confidence_ratio) == (18, 720.0, 0.9)


def test_an_extra_signal_grows_even_where_requests_are_unknown() -> None:
    policy = a_policy(extra=(ExtraSignal(name="tokens", target=1000.0),))
    endpoint = Endpoint(policy, 2)
    *_, decision = endpoint.live(30, lambda _: {"extra": {"tokens": 5500.0}})
    assert decision.desired == 6


def test_late_and_crooked_clocks() -> None:
    track, fleet = Track(a_policy(), 100.0), Fleet(ready=1)
    for at_s in (101.0, 102.0, 102.4, 107.0, 95.0, math.nan):
        track.see(Sample(at_s=at_s, arrivals=3.0, completions=3.0, in_flight=3.0, queued=0.0), fleet)
    assert track.rejected == 2
    assert track.at_s == 107.0
    assert track.arrivals.over(60) == (12.0, 4.0)


def test_a_restart_with_the_service_time_kept_needs_no_completions() -> None:
    track = Track(a_policy(), 0.0, service_s=2.0)
    for second in range(1, 21):
        track.see(Sample(at_s=float(second), arrivals=28.0, completions=0.0, in_flight=0.0, queued=0.0), Fleet(ready=1))
    decision, _ = decide(
        track, Fleet(ready=1), Sizing(target=5.6, slots=8.0), a_policy(), HorizontalState.found(1, 0.0), 20.0,
        start_time_s=60.0,
    )  # fmt: skip
    assert decision.numbers["need_replicas"] == pytest.approx(10.0, rel=0.1)
    assert decision.desired == 5


def test_thrifty_returns_sooner() -> None:
    wanted = {}
    for style in Style:
        endpoint = Endpoint(a_policy(style=style), 3, start_s=5.0, plan_s=5.0)
        endpoint.steady(900, 10.0)
        endpoint.steady(60, 60.0)
        endpoint.steady(450, 10.0)
        wanted[style] = endpoint.ready
    assert wanted[Style.THRIFTY] < wanted[Style.STEADY]


def test_start_times_are_learnt_and_the_prior_is_outvoted() -> None:
    starts = StartTimes(prior_s=60.0)
    assert starts.planning_s == 60.0
    for duration_s in (20.0, math.nan, -1.0, 25.0, 22.0, 21.0, 24.0, 23.0, 20.0, 26.0, 22.0):
        starts = starts.seen(duration_s, scheduled_s=3.0)
    assert starts.rejected == 2
    assert starts.planning_s == 26.0
    assert starts.scheduling_s == 3.0
    for _ in range(100):
        starts = starts.seen(22.0)
    assert starts.planning_s == 22.0
    assert len(starts.ready_s) == 64
    assert StartTimes(prior_s=60.0).scheduling_s is None
