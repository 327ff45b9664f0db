"""Whatever a track is fed and whenever it is asked: within bounds, nothing taken away unseen, no sleep on a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.controller.census import Order, census
from scaler.controller.endpoint import Endpoint as ControlledEndpoint
from scaler.controller.facts import Kept
from scaler.controller.world import Key
from scaler.decision import Reason, Sizing
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.track import Track
from scaler.policy import ExtraSignal, Policy
from scaler.resource import spec_of
from scaler.seen import Fleet, Sample
from tests.support.exporter import a_server
from tests.support.replicas import a_pod, a_second, a_spec
from tests.support.scaling import Endpoint, a_policy

QUICK = {"look_back_up_s": 5.0, "look_back_down_s": 20.0, "start_time_s": 2.0, "to_zero_after_s": 10.0}


def without_rates(in_flight: float) -> dict[str, Any]:
    return {"in_flight": in_flight, "queued": 0.0}


def with_rates(in_flight: float) -> dict[str, Any]:
    return {"in_flight": in_flight, "queued": 0.0, "arrivals": in_flight, "completions": in_flight}


@pytest.mark.parametrize("words", [without_rates, with_rates])
@pytest.mark.parametrize("asleep_s", [30, 301, 3600, 10**6])
@pytest.mark.parametrize("least", [0, 1])
def test_a_process_that_was_stopped_shrinks_nothing_before_a_full_window(words: Any, asleep_s: int, least: int) -> None:
    """Nothing was seen in between, so nothing is known of it, however long ago it began."""
    endpoint = Endpoint(a_policy(min_replicas=least), 10, plan_s=5.0)
    list(endpoint.live(2000, lambda _: words(55.0)))
    before = endpoint.ready
    endpoint.now_s += asleep_s
    after = list(endpoint.live(295, lambda _: words(0.0)))
    assert min(decision.desired for decision in after) == before


@pytest.mark.parametrize("words", [without_rates, with_rates])
def test_a_clock_that_goes_back_or_stands_still_shrinks_nothing(words: Any) -> None:
    endpoint = Endpoint(a_policy(), 10, plan_s=5.0)
    list(endpoint.live(2000, lambda _: words(55.0)))
    before = endpoint.ready
    for step in (-5, -100, -1000, 0):
        endpoint.now_s += step
        assert min(decision.desired for decision in endpoint.live(100, lambda _: words(55.0))) >= before


ODD = st.sampled_from([None, 0.0, 1.0, 7.0, 300.0, -1.0, 1e9, 1e10, 1e308, float("nan"), float("inf"), 5e-324])
STEPS = st.one_of(st.just(1.0), st.sampled_from([0.0, 0.2, 1.0, 2.0, 6.0, 30.0, 400.0, -3.0, -50.0, 4000.0]))
SECOND = st.tuples(STEPS, ODD, ODD, ODD, ODD, ODD, st.integers(0, 6), st.integers(0, 3))


@given(
    st.lists(SECOND, min_size=30, max_size=120),
    st.integers(0, 3),
    st.integers(3, 2**31 - 1),
    st.sampled_from([1e-3, 0.7, 5.6, 1e6]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_story_stays_in_bounds_and_takes_nothing_away_unseen(
    story: list[tuple[Any, ...]], least: int, most: int, target: float, has_extra: bool
) -> None:
    policy: Policy = a_policy(
        min_replicas=least,
        max_replicas=most,
        initial=target,
        minimum=min(1.0, target),
        maximum=max(1000.0, target),
        limit=None,
        extra=(ExtraSignal(name="x", target=1e-9),) if has_extra else (),
        **QUICK,
    )
    track, now_s = Track(policy, 0.0), 0.0
    state = HorizontalState.found(3, 0.0)
    sizing = Sizing(target=target)
    known_since_s: float | None = None
    last_known_s = 0.0
    for step_s, arrivals, completions, in_flight, queued, extra, ready, starting in story:
        now_s += step_s
        fleet = Fleet(ready=ready, starting_since_s=(now_s,) * starting)
        sample = Sample(
            at_s=now_s,
            arrivals=arrivals,
            completions=completions,
            in_flight=in_flight,
            queued=queued,
            extra={"x": extra},
        )
        track.see(sample, fleet)
        is_known = in_flight is not None and 0 <= in_flight <= 1e9
        if is_known:
            if known_since_s is None or now_s - last_known_s > 5.0 or step_s < 0:
                known_since_s = now_s
            last_known_s = max(last_known_s, now_s)
        decision, state = decide(track, fleet, sizing, policy, state, now_s, start_time_s=2.0)
        assert least <= decision.desired <= most
        assert all(least <= need.replicas <= most for need in decision.needs)
        if fleet.replicas and decision.desired < fleet.replicas <= most:
            assert is_known or now_s - last_known_s < 5.0, "a shrink on missing data"
            assert known_since_s is not None
            assert now_s - known_since_s >= 10.0, "a shrink before a window was seen"
        if fleet.replicas and decision.desired == 0:
            assert in_flight == 0
            assert not queued


def scaled_from(least: int) -> ControlledEndpoint:
    """Return an endpoint with four Ready replicas."""
    spec = spec_of(a_spec(minReplicas=least, behavior={"startTimeSeconds": 1}))
    endpoint = ControlledEndpoint(Key(namespace="n", name="a"), spec, Kept(), 0.0, 0.0)
    endpoint.census = census([a_pod(f"p{number}") for number in range(4)], Order(replicas=4, at_s=0.0))
    return endpoint


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("whole_s", [0, 100, 1000])
def test_half_of_the_balancers_let_nobody_go(least: int, whole_s: int) -> None:
    """The exporter of one of two is silent, maybe since before we started: what the other says is a lower bound."""
    endpoint = scaled_from(least)
    for now_s in range(1, 2500):
        load = 18.0 if now_s < whole_s else 0.0
        second = a_second(in_flight=load, arrivals=load, completions=load)
        endpoint.see(replace(second, at_s=float(now_s), is_partial=now_s >= whole_s))
        if now_s % 5 == 0 and now_s >= whole_s:
            assert endpoint.decide(float(now_s)).desired >= 4, now_s
    for now_s in range(2500, 4000):
        endpoint.see(replace(a_second(in_flight=0.0, arrivals=0.0, completions=0.0), at_s=float(now_s)))
        if now_s % 5 == 0:
            desired = endpoint.decide(float(now_s)).desired
            assert desired >= 4 or now_s > 2750, "a whole window once both are there again"
            if desired < 4:
                break
    else:
        pytest.fail("nothing shrinks although all is known again")


def test_a_start_is_no_loss_of_data() -> None:
    """In the first seconds no rate can be told yet: a restart has to say that it is one."""
    endpoint = Endpoint(a_policy(), 20, plan_s=5.0)
    list(endpoint.live(200, lambda _: with_rates(5.0)))
    assert {decision.reason for decision in endpoint.decisions} == {Reason.RESTARTED}


@pytest.mark.parametrize("name", ["queued", "arrivals"])
def test_a_queue_that_is_not_known_any_more_is_not_empty(name: str) -> None:
    """One request came long ago, too few to know how long they take; then one of the readings stays away."""
    endpoint = Endpoint(a_policy(min_replicas=0, **QUICK), 1, plan_s=2.0)
    list(endpoint.live(5, lambda _: with_rates(1.0)))
    known = with_rates(0.0)
    after = list(endpoint.live(600, lambda _: known | {name: None}))
    assert min(decision.desired for decision in after) == 1
    assert min(decision.desired for decision in endpoint.live(600, lambda _: known)) == 0


def test_half_of_a_replicas_load_teaches_nothing() -> None:
    """Its latency is that of the whole load: beside half of it, every replica would look slow."""
    endpoint = scaled_from(1)
    servers = [a_server(f"p{number}", in_flight=10.0, completions=40.0, latency_mean_s=0.25) for number in range(4)]
    lessons = []
    for now_s in range(1, 400):
        endpoint.see(replace(a_second(servers), at_s=float(now_s), is_partial=True))
        lessons.append(endpoint.learn_if_due(float(now_s)))
    told = [lesson for lesson in lessons if lesson is not None]
    assert len(told) > 10
    assert {lesson.numbers["completions"] for lesson in told} == {0.0}
