"""Load from people's own PromQL: one value or none, and none says why."""

from __future__ import annotations

import dataclasses

import pytest

from fleet.http import FetchError
from fleet.prom import Prometheus
from fleet.prom_answer import Answer, Outcome, Series
from scaler.seen import Sample
from scaler.signals.metrics_endpoint import EndpointQueries, EndpointSource, read
from tests.support.clock import ManualClock
from tests.support.fake_prometheus import FakePost, vector


def answered(*values: float, rejected: int = 0) -> Answer:
    return Answer(
        outcome=Outcome.ANSWERED, series=tuple(Series(labels={}, value=value) for value in values), rejected=rejected
    )


@pytest.mark.parametrize(
    ("answer", "value", "problem"),
    [
        (answered(118.0), 118.0, ""),
        (answered(0.0), 0.0, ""),
        (answered(), None, "missing, which is not zero"),
        (answered(rejected=1), None, "not a finite number"),
        (answered(-1.0), None, "-1 cannot be a load"),
        (answered(12.0, 12.0), None, "2 series"),
        (answered(12.0, rejected=1), None, "2 series"),
        (answered(rejected=3), None, "3 series"),
        (Answer(outcome=Outcome.TIMED_OUT, text="silent"), None, "silent"),
        (Answer(outcome=Outcome.UNREACHABLE), None, "no answer"),
    ],
)
def test_one_value_or_a_reason(answer: Answer, value: float | None, problem: str) -> None:
    found = read(answer, 5.0)
    assert found.value == value
    assert problem in found.problem
    assert bool(found.problem) == (value is None)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_s=0.0)
        self.values: dict[str, str] = {}
        self.silent: set[str] = set()
        self.post = FakePost(self._answer)
        self.source = EndpointSource(Prometheus("http://p", self.post, timeout_s=0.2), self.clock, stale_after_s=12.0)

    def _answer(self, query: str) -> bytes | FetchError | None:
        if query in self.silent:
            return None
        return vector([({}, self.values[query])] if query in self.values else [])

    def sample(self, key: str = "e") -> Sample:
        return self.source.sample(key, self.clock.monotonic_s())


@pytest.fixture
def world() -> World:
    return World()


async def test_every_field_reaches_its_place_in_the_sample(world: World) -> None:
    names = ("in_flight", "queued", "arrivals", "completions", "errors")
    world.values = {name: str(index + 1) for index, name in enumerate((*names, "tokens"))}
    asked = EndpointQueries(**{name: name for name in names}, extra={"tokens": "tokens"})
    assert set(asked.named()) == {*names, "extra.tokens"}
    world.source.watch("e", asked)
    await world.source.poll()
    assert world.sample() == Sample(
        at_s=0.0, in_flight=1, queued=2, arrivals=3, completions=4, errors=5, extra={"tokens": 6.0}
    )
    assert {field.name for field in dataclasses.fields(Sample)} == {"at_s", "extra", "is_partial", *names}


async def test_empty_is_missing_at_once_and_silence_bridges_one_poll(world: World) -> None:
    """Field cases kedacore/keda 3065 (empty at the peak) and kedacore/http-add-on 1730 (a silent source)."""
    world.source.watch("e", EndpointQueries(in_flight="f", queued="q"))
    world.values = {"f": "118", "q": "3"}
    await world.source.poll()
    assert (world.sample().in_flight, world.sample().queued) == (118.0, 3.0)
    await world.clock.advance(5.0)
    del world.values["f"]
    world.silent = {"q"}
    await world.source.poll()
    assert (world.sample().in_flight, world.sample().queued) == (None, 3.0)
    assert "missing" in world.source.problems("e")["in_flight"]
    assert "0.2 s" in world.source.problems("e")["queued"]
    await world.clock.advance(7.0)
    assert world.sample().queued == 3.0
    await world.clock.advance(0.1)
    assert world.sample().queued is None
    world.values, world.silent = {"f": "0", "q": "0"}, set()
    await world.source.poll()
    assert (world.sample().in_flight, world.sample().queued) == (0.0, 0.0)
    assert world.source.problems("e") == {}


async def test_one_silent_query_costs_no_other_its_answer(world: World) -> None:
    for index in range(5):
        world.source.watch(f"e{index}", EndpointQueries(in_flight=f"f{index}"))
    world.values = {f"f{index}": "50" for index in range(5)}
    world.silent = {"f1"}
    await world.source.poll()
    assert [world.sample(f"e{index}").in_flight for index in range(5)] == [50.0, None, 50.0, 50.0, 50.0]
    assert world.source.counts == {Outcome.ANSWERED: 4, Outcome.TIMED_OUT: 1, "unusable": 0}


async def test_equal_queries_are_asked_once(world: World) -> None:
    for key in ("a", "b"):
        world.source.watch(key, EndpointQueries(in_flight="same", extra={"x": "same"}))
    world.values = {"same": "4"}
    await world.source.poll()
    assert len(world.post.asked) == 1
    assert world.sample("a").extra == {"x": 4.0}
    assert world.sample("b").in_flight == 4.0


async def test_what_does_not_fit_into_one_time_out_comes_first_the_next_time(world: World) -> None:
    for index in range(20):
        world.source.watch(f"e{index}", EndpointQueries(in_flight=f"f{index}"))
    world.values = {f"f{index}": "1" for index in range(20)}
    world.silent = {f"f{index}" for index in range(4, 20)}
    await world.source.poll()
    world.silent = set()
    world.post.asked.clear()
    await world.source.poll()
    asked = [form["query"] for form in world.post.asked]
    assert asked[0] == "f0", "what has answered before goes first"
    assert asked[4] == "f10", "then what was not asked yet"
    assert set(asked[-6:]) == {f"f{index}" for index in range(4, 10)}, "last what was not answered in time"
    assert all(world.sample(f"e{index}").in_flight == 1.0 for index in range(20))


async def test_changed_and_forgotten_endpoints(world: World) -> None:
    world.values = {"old": "1", "new": "2"}
    world.source.watch("e", EndpointQueries(in_flight="old"))
    await world.source.poll()
    world.source.watch("e", EndpointQueries(in_flight="new"))
    assert world.sample().in_flight is None  # not asked yet
    await world.source.poll()
    assert world.sample().in_flight == 2.0
    world.source.forget("e")
    world.source.forget("never watched")
    await world.source.poll()
    assert world.sample() == Sample(at_s=0.0)
    assert world.source.problems("e") == {}
    world.source.watch("e", EndpointQueries(in_flight="new"))
    assert world.sample().in_flight is None  # what was known before is forgotten
