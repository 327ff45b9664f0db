"""What the source of pod metrics believes over time, with a Prometheus that says what a test wants."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import pytest

from fleet.http import FetchError
from fleet.prom import Prometheus
from fleet.prom_answer import Outcome
from scaler.seen import SignalState
from scaler.signals.engines import ENGINES
from scaler.signals.metrics import MetricsSource
from scaler.signals.metrics_catalogue import CATALOGUE
from scaler.signals.metrics_values import PodKey, PodMetrics, Reading
from tests.support.clock import ManualClock
from tests.support.fake_prometheus import Element, FakePost, dated_vector

A, B = ("shop", "a"), ("shop", "b")
QUERY = {asked.reading: asked.query for asked in CATALOGUE}


class World:
    """One Prometheus; `says` by reading, `fails` by reading; its clock is 5,000 s ahead of ours."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.says: dict[Reading, list[Element]] = defaultdict(list)
        self.fails: dict[Reading, FetchError] = {}
        self.post = FakePost(self._answer)
        self.source = MetricsSource(Prometheus("http://p", self.post), self.clock, stale_after_s=60.0)

    def _answer(self, query: str) -> bytes | FetchError | None:
        reading = next(reading for reading, text in QUERY.items() if text == query)
        if reading in self.fails:
            return self.fails[reading]
        return dated_vector(self.says[reading], at_s=self.server_s)

    @property
    def server_s(self) -> float:
        return self.clock.monotonic_s() + 5000.0

    def say(self, reading: Reading, *values: tuple[PodKey, str], age_s: float = 1.0) -> None:
        self.says[reading] = [
            ({"namespace": pod[0], "pod": pod[1]}, value, self.server_s - age_s) for pod, value in values
        ]


@pytest.fixture
def world() -> World:
    return World()


def test_readings_are_the_fields_and_all_are_asked_for() -> None:
    fields = {field.name for field in dataclasses.fields(PodMetrics)}
    assert fields == set(Reading) == {asked.reading for asked in CATALOGUE}
    assert len(CATALOGUE) == len(Reading)


@pytest.mark.parametrize("asked", CATALOGUE, ids=lambda asked: asked.reading)
def test_each_query_is_one_dated_question_about_all_pods(asked: object) -> None:
    query = asked.query  # type: ignore[attr-defined]
    assert query.count('"berthmaster_part"') == 2
    assert "timestamp(" in query
    assert query.count("(") == query.count(")")
    assert "exported_pod" in query


def test_engines_name_a_reading_once() -> None:
    for engine in ENGINES:
        for name in filter(None, (engine.running, engine.waiting, *engine.cache, engine.latency_count)):
            assert sum(name in query for query in QUERY.values()) == 1


async def test_all_pods_are_in_the_answer_and_the_unknown_are_missing(world: World) -> None:
    world.say(Reading.CPU, (A, "0.5"))
    view = await world.source.poll([A, B])
    assert set(view) == {A, B}
    assert len(view) == 2
    assert (view[A].cpu_ratio.value, view[A].cpu_ratio.age_s) == (0.5, 1.0)
    assert {signal.state for signal in (view[B].cpu_ratio, view[A].memory_ratio)} == {SignalState.MISSING}
    with pytest.raises(KeyError):
        view["shop", "c"]


async def test_four_states_stay_four(world: World) -> None:
    world.say(Reading.RUNNING, (A, "0"), (B, "3"))
    view = await world.source.poll([A, B])
    assert (view[A].running.state, view[B].running.state) == (SignalState.ZERO, SignalState.VALUE)
    assert view[A].waiting.state is SignalState.MISSING
    await world.clock.advance(58.0)
    assert view[B].running.state is SignalState.VALUE
    await world.clock.advance(2.0)
    assert view[B].running.state is SignalState.STALE
    assert view[B].running.value == 3.0


async def test_a_failing_query_ages_its_reading_and_no_other(world: World) -> None:
    world.say(Reading.CPU, (A, "0.5"))
    world.say(Reading.MEMORY, (A, "0.6"))
    await world.source.poll([A])
    await world.clock.advance(10.0)
    world.say(Reading.MEMORY, (A, "0.7"))
    world.fails[Reading.CPU] = FetchError("status", "422: too many samples", 422)
    view = await world.source.poll([A])
    assert (view[A].cpu_ratio.value, view[A].cpu_ratio.age_s) == (0.5, 11.0)
    assert (view[A].memory_ratio.value, view[A].memory_ratio.age_s) == (0.7, 1.0)
    assert world.source.problems == {Reading.CPU: "422: too many samples"}
    assert world.source.counts[Outcome.REFUSED, Reading.CPU] == 1
    world.fails.clear()
    world.say(Reading.CPU, (A, "0.1"))
    view = await world.source.poll([A])
    assert view[A].cpu_ratio.value == 0.1
    assert world.source.problems == {}


async def test_empty_answers_are_missing_readings_not_zeros(world: World) -> None:
    world.say(Reading.RUNNING, (A, "12"))
    await world.source.poll([A])
    for _ in range(7):
        await world.clock.advance(10.0)
        world.say(Reading.RUNNING)
        await world.source.poll([A])
    assert world.source.of(A).running.state is SignalState.STALE
    assert world.source.problems == {}


async def test_pods_that_are_gone_are_forgotten_also_while_nothing_answers(world: World) -> None:
    world.say(Reading.CPU, (A, "0.5"), (B, "0.5"))
    await world.source.poll([A, B])
    world.fails = dict.fromkeys(Reading, FetchError("unreachable", "gone"))
    await world.source.poll([B])
    await world.source.poll([A, B])
    assert world.source.of(A).cpu_ratio.state is SignalState.MISSING
    assert world.source.of(B).cpu_ratio.state is SignalState.VALUE


async def test_what_is_not_used_is_counted_by_reading(world: World) -> None:
    world.say(Reading.TENSOR, (A, "9223372036854775794"), (A, "NaN"), (B, "0.5"), (("x", "y"), "0.1"))
    view = await world.source.poll([A, B])
    assert view[A].tensor_ratio.state is SignalState.MISSING
    assert world.source.counts == {
        ("impossible", Reading.TENSOR): 1,
        ("rejected", Reading.TENSOR): 1,
        ("foreign", Reading.TENSOR): 1,
    }


async def test_ages_count_on_our_clock_although_the_servers_is_far_off(world: World) -> None:
    world.say(Reading.CPU, (A, "0.5"), age_s=7.0)
    view = await world.source.poll([A])
    assert view[A].cpu_ratio.age_s == 7.0


async def test_a_node_whose_clock_is_behind_is_fresh_from_the_second_poll(world: World) -> None:
    """Field case knative/serving 3601: the sender's stamp may order its own samples, never age them."""
    ages = []
    for _ in range(3):
        world.say(Reading.CPU, (A, "0.5"), age_s=120.0)
        ages.append((await world.source.poll([A]))[A].cpu_ratio.age_s)
        await world.clock.advance(10.0)
    assert ages == [120.0, 10.0, 10.0]
