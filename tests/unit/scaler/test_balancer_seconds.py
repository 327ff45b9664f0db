"""Readings into seconds: time integrals, draining left out, gaps told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.balancer.latency import Latency
from scaler.balancer.seconds import Meter
from scaler.balancer.values import ServerState
from tests.support.haproxy import backend, second_between, server


def closed(meter: Meter, at_s: float, *servers, latencies=None, **given_):
    return meter.close(at_s, {"be": backend(*servers, **given_)}, latencies or {})


def test_the_first_reading_has_no_second() -> None:
    assert closed(Meter(), 5.0, server(sessions=100, in_flight=3)) == ()


@given(st.lists(st.integers(0, 50), min_size=11, max_size=11))
def test_requests_in_progress_are_a_time_integral(values: list[int]) -> None:
    meter = Meter()
    closed(meter, 0.0, server(in_flight=values[0]))
    for step, value in enumerate(values[1:-1], 1):
        meter.note(step / 10, {("be", "slot1"): value})
    (second,) = closed(meter, 1.0, server(in_flight=values[-1]))
    want = (values[0] / 2 + sum(values[1:-1]) + values[-1] / 2) / 10
    assert second.in_flight == pytest.approx(want)
    assert min(values) - 1e-9 <= second.in_flight <= max(values) + 1e-9


@pytest.mark.parametrize("replicas", [5, 10, 20])
def test_the_load_does_not_grow_with_the_fleet(replicas: int) -> None:
    """Case peak-sampling-feeds-on-itself: five requests in progress at any time, spread over more replicas."""
    meter = Meter()
    names = [f"slot{number}" for number in range(1, replicas + 1)]

    def servers_at(step: int):
        busy = {names[(step * 5 + k) % replicas] for k in range(5)}
        return [server(name, in_flight=int(name in busy)) for name in names]

    closed(meter, 0.0, *servers_at(0))
    for step in range(1, 10):
        meter.note(step / 10, {("be", one.name): one.in_flight for one in servers_at(step) if one.in_flight})
    (second,) = closed(meter, 1.0, *servers_at(10))
    assert second.in_flight == pytest.approx(5.0)


def test_a_draining_replica_is_neither_load_nor_capacity() -> None:
    """Case finishing-replica-hides-overload: 15 on the serving one, 3 queued; two more drain away elsewhere."""
    serving = server("slot1", in_flight=15, sessions=50, limit=15)
    draining = server("slot2", in_flight=2, sessions=20, state=ServerState.DRAINING)
    second = second_between(
        backend(serving, draining, in_progress=20, queued=3), backend(serving, draining, in_progress=20, queued=3)
    )
    assert (second.in_flight, second.queued) == (15, 3)
    assert [one.state for one in second.servers] == [ServerState.SERVING, ServerState.DRAINING]
    assert second.servers[1].in_flight == 2


def test_completions_are_those_of_serving_replicas() -> None:
    before = backend(server("slot1", in_flight=2), server("slot2", in_flight=2, state=ServerState.DRAINING))
    now = backend(server("slot1"), server("slot2", state=ServerState.DRAINING))
    second = second_between(before, now)
    assert second.completions == 2
    assert [one.completions for one in second.servers] == [2, 2]
    assert second.given_up == 0


def test_an_empty_slot_is_told_only_while_it_still_ends_something() -> None:
    before = backend(server("slot1", in_flight=1, sessions=1, state=ServerState.DRAINING))
    freed = backend(server("slot1", sessions=1, state=ServerState.EMPTY))
    assert [one.completions for one in second_between(before, freed).servers] == [1]
    assert second_between(freed, freed).servers == ()


def test_a_slow_second_is_given_as_counts_per_second() -> None:
    before, now = backend(server(sessions=10)), backend(server(sessions=40))
    assert second_between(before, now, span_s=1.4).arrivals == 30
    assert second_between(before, now, span_s=3.0).arrivals == pytest.approx(10)


def test_no_load_is_made_up_for_a_gap_between_readings() -> None:
    meter = Meter()
    closed(meter, 0.0, server(in_flight=40))
    meter.note(5.0, {})
    meter.note(5.5, {("be", "slot1"): 2})
    (second,) = closed(meter, 6.0, server(in_flight=2))
    assert second.in_flight == pytest.approx(1.5)


def test_latency_is_from_the_log_or_by_little() -> None:
    before, now = backend(server(in_flight=4)), backend(server(in_flight=4, sessions=8))
    (by_little,) = second_between(before, now).servers
    assert by_little.latency_mean_s == pytest.approx(0.5)
    assert by_little.latency_p95_s is None
    meter = Meter()
    meter.close(0.0, {"be": before}, {})
    (second,) = meter.close(1.0, {"be": now}, {("be", "slot1"): Latency(requests=3, mean_s=0.4, p95_s=0.9)})
    assert (second.servers[0].latency_mean_s, second.servers[0].latency_p95_s) == (0.4, 0.9)
    assert second_between(before, before).servers[0].latency_mean_s is None


def test_a_backend_that_comes_later_counts_from_its_beginning() -> None:
    meter = Meter()
    meter.close(0.0, {}, {})
    (second,) = closed(meter, 1.0, server(sessions=5, in_flight=1))
    assert (second.arrivals, second.completions) == (5, 4)
