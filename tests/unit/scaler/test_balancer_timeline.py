"""Several exporters on one time line: ages, numbers, silence, restarts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.balancer.wire import Journal, SamplesAnswer, SecondAnswer, samples_from
from scaler.signals.balancer_timeline import Timeline


def a_second(arrivals: float | None = 1.0, name: str = "be", **given_: object) -> BackendSecond:
    values: dict[str, object] = {
        "completions": arrivals,
        "given_up": 0.0,
        "in_flight": 2.0,
        "queued": 0.0,
        "errors": 0.0,
    }
    return BackendSecond(name=name, at_s=0.0, arrivals=arrivals, **(values | given_))  # type: ignore[arg-type]


def answer(*numbers: int, run: str = "a", newest_age_s: float = 0.1, of=a_second) -> SamplesAnswer:
    """Return an answer with these seconds, the last of them as old as said."""
    return SamplesAnswer(
        exporter=run,
        next=numbers[-1],
        seconds=tuple(
            SecondAnswer(seq=number, age_s=newest_age_s + numbers[-1] - number, backends=(of(float(number)),))
            for number in numbers
        ),
    )


def arrivals(seconds: list[BackendSecond]) -> list[float | None]:
    return [second.arrivals for second in seconds]


def test_a_second_counts_from_its_age_at_the_receiver() -> None:
    line = Timeline(senders=1)
    line.take(0, answer(41, 42, newest_age_s=0.25), 1000.0)
    assert [(second.at_s, second.arrivals) for second in line.ready(1000.0)] == [(998.75, 41), (999.75, 42)]
    assert line.since(0) == 42
    assert line.ready(1001.0) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["asked", "lost", "restart", "idle"]), st.floats(0, 0.9)), min_size=1, max_size=40
    )
)
def test_every_second_is_told_once_and_in_order(turns: list[tuple[str, float]]) -> None:
    """One exporter whose answers may be lost, may come late and may be of a new run, through its real journal."""
    line, journal, runs, number = Timeline(senders=1), Journal("run0"), 0, 0
    told: list[BackendSecond] = []
    kept: list[float] = []
    for turn, (what, late_s) in enumerate(turns):
        if what == "restart":
            runs, number = runs + 1, 0
            journal = Journal(f"run{runs}")
        number += 1
        stamp = turn + 1000.0
        journal.add(number, stamp, [a_second(stamp)])
        kept.append(stamp)
        if what in ("asked", "restart"):
            body = journal.answer(line.since(0), stamp + late_s)
            line.take(0, samples_from(body), stamp + late_s)
        told += line.ready(stamp + late_s)
    found = [second.arrivals for second in told]
    assert found == sorted(set(found)), "none twice, none out of order"
    assert all(second.at_s == pytest.approx(second.arrivals, abs=1e-3) for second in told)
    assert line.counts.unusable == 0
    asked = [index for index, (what, _) in enumerate(turns) if what in ("asked", "restart")]
    if asked and not any(what == "restart" for what, _ in turns):
        assert len(told) == asked[-1] + 1, "what was not asked for at once comes with the next answer"


def test_seconds_of_two_balancers_are_added() -> None:
    line = Timeline(senders=2)
    line.take(0, answer(5, newest_age_s=0.3), 100.0)
    assert line.ready(100.0) == [], "the other one has 2 s to tell"
    line.take(1, answer(900, run="b", newest_age_s=0.1), 100.1)
    (second,) = line.ready(100.1)
    assert (second.arrivals, second.in_flight, second.is_partial) == (905, 4, False)


def test_a_silent_balancer_makes_seconds_partial_after_two() -> None:
    line = Timeline(senders=2)
    for tick in range(5):
        line.take(0, answer(tick + 1), 100.0 + tick)
    found = line.ready(104.0)
    assert arrivals(found) == [1, 2, 3]
    assert all(second.is_partial for second in found)
    line.take(1, answer(1, 2, 3, 4, 5, run="b"), 104.1)
    assert line.counts.late == 3
    rest = line.ready(104.1)
    assert arrivals(rest) == [8, 10]
    assert not any(second.is_partial for second in rest)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_numbers_that_cannot_be_are_missing_and_counted(bad: float) -> None:
    line = Timeline(senders=1)
    row = ServerSecond(name="s", address="a", state=ServerState.SERVING, in_flight=bad, completions=1.0)
    line.take(0, answer(1, of=lambda _: a_second(1.0, in_flight=bad, servers=(row,))), 10.0)
    (second,) = line.ready(10.0)
    assert (second.in_flight, second.servers[0].in_flight) == (None, None)
    assert (second.arrivals, second.servers[0].completions) == (1, 1)
    assert line.counts.unusable == 2


@pytest.mark.parametrize("age_s", [math.nan, -60.0, 3600.0])
def test_an_age_that_cannot_be_counts_as_none(age_s: float) -> None:
    line = Timeline(senders=1)
    line.take(0, answer(1, newest_age_s=age_s), 500.0)
    assert [second.at_s for second in line.ready(500.0)] == [500.0]


def test_repeated_and_missing_seconds_are_counted() -> None:
    line = Timeline(senders=1)
    line.take(0, answer(1, 2), 10.0)
    line.take(0, answer(2, 5), 13.0)
    assert arrivals(line.ready(13.0)) == [1, 2, 5]
    assert (line.counts.repeated, line.counts.gaps) == (1, 2)


def test_a_restarted_exporter_goes_on_at_once() -> None:
    line = Timeline(senders=1)
    line.take(0, answer(70, 71), 100.0)
    line.ready(100.0)
    line.take(0, answer(1, run="b"), 100.4)
    line.take(0, answer(2, run="b"), 101.4)
    found = line.ready(101.4)
    assert arrivals(found) == [1, 2]
    assert line.counts.restarts == 1


def test_one_replica_behind_two_balancers_is_one_row() -> None:
    def row(name: str, address: str, **given_: object) -> ServerSecond:
        values: dict[str, object] = {"in_flight": 2.0, "queued": 0.0, "completions": 4.0, "errors": 0.0, "limit": 5}
        return ServerSecond(name=name, address=address, state=ServerState.SERVING, **(values | given_))  # type: ignore[arg-type]

    line = Timeline(senders=2)
    one = row("slot1", "10.0.0.1:80", latency_mean_s=1.0, latency_p95_s=2.0)
    line.take(0, answer(1, of=lambda _: a_second(servers=(one, row("slot2", "10.0.0.2:80")))), 10.0)
    two = row("slot7", "10.0.0.1:80", latency_mean_s=3.0, latency_p95_s=4.0, completions=12.0)
    line.take(1, answer(1, run="b", of=lambda _: a_second(servers=(two,))), 10.0)
    (second,) = line.ready(10.0)
    first, other = second.servers
    assert (first.address, first.in_flight, first.completions, first.limit) == ("10.0.0.1:80", 4, 16, 10)
    assert (first.latency_mean_s, first.latency_p95_s) == (2.5, 4.0)
    assert other.address == "10.0.0.2:80"


def test_a_journal_keeps_thirty_seconds_and_tells_of_what_is_new() -> None:
    journal = Journal("a")
    assert samples_from(journal.answer(0, 0.0)) == SamplesAnswer(exporter="a", next=0, seconds=())
    for number in range(1, 51):
        journal.add(number, float(number), [a_second(float(number))])
    everything = samples_from(journal.answer(0, 50.5))
    assert [second.seq for second in everything.seconds] == list(range(21, 51))
    assert everything.seconds[-1].age_s == pytest.approx(0.5)
    assert everything.next == 50
    assert [second.seq for second in samples_from(journal.answer(48, 50.5)).seconds] == [49, 50]
    assert len(samples_from(journal.answer(10**9, 50.5)).seconds) == 30, "another run's number"
