"""Rounds as stories: sources speak or are silent, endpoints are fed, decide, and hinder nobody."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fleet.kube.client import Client
from fleet.kube.events import EventRecorder
from scaler.balancer.values import BackendSecond
from scaler.controller.actuator import Actuator
from scaler.controller.carrier import Carrier
from scaler.controller.endpoint import Endpoint
from scaler.controller.metrics import ScalerMetrics
from scaler.controller.rounds import Rounds
from scaler.controller.teller import Teller
from scaler.controller.world import Key, World
from scaler.decision import Reason
from scaler.signals.balancer import ExporterState
from tests.support.clock import ManualClock
from tests.support.fake_api import FakeApi
from tests.support.replicas import a_deployment, a_pod, an_autoscaler


class FakeSource:
    """A balancer that says the same every second, unless it is told to be silent or to hang."""

    def __init__(self, clock: ManualClock, **backends: dict[str, Any]) -> None:
        self.backends = backends
        self.is_silent = False
        self.hangs_s = 0.0
        self._clock = clock
        self._news: dict[str, list[BackendSecond]] = {}

    async def poll(self) -> None:
        if self.hangs_s:
            await self._clock.sleep(self.hangs_s)
        if not self.is_silent:
            for name, said in self.backends.items():
                usual = {"arrivals": None, "completions": None, "queued": 0.0, "errors": 0.0}
                second = BackendSecond(name=name, at_s=self._clock.monotonic_s(), **(usual | said))
                self._news.setdefault(name, []).append(second)

    def take(self, backend: str) -> Sequence[BackendSecond]:
        return self._news.pop(backend, [])

    def states(self) -> Sequence[ExporterState]:
        failure = "no answer" if self.is_silent else ""
        return [ExporterState(url="http://x", answered_at_s=None, failures=1, failure=failure)]


@asynccontextmanager
async def turning(clock: ManualClock, **sources: FakeSource) -> AsyncIterator[tuple[World, Rounds, ScalerMetrics]]:
    async with FakeApi() as api, Client(api.connection(clock), clock) as client:
        world, metrics = World(), ScalerMetrics(CollectorRegistry())
        teller = Teller(client, EventRecorder(client, clock, "test"), world, clock)
        # Nothing is carried out or told: only what is decided is looked at.
        rounds = Rounds(world, sources, {}, Carrier(world, Actuator(client), clock), teller, clock, metrics)
        work = asyncio.create_task(rounds.run())
        yield world, rounds, metrics
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def scaled(world: World, rounds: Rounds, name: str = "a", source: str = "main", replicas: int = 2) -> Endpoint:
    """Let an autoscaler, its Deployment and its pods be there."""
    target = {"kind": "Deployment", "name": name}
    signals = {"balancer": {"name": source, "backend": name}}
    obj = a_deployment(replicas)
    obj.metadata.name = name
    workload = world.set_workload("Deployment", obj, 1000.0)
    for number in range(replicas):
        pod = a_pod(f"{name}-{number}", tags={"pod-template-hash": "v1"}, owner=("ReplicaSet", f"{name}-v1"))
        world.pods.set(pod)
    assert len(world.pods.of(workload)) == replicas
    rounds.autoscaler_seen(world.set_autoscaler(an_autoscaler(name, targetRef=target, signals=signals)))
    return rounds.endpoints[Key(namespace="n", name=name)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_an_endpoint_is_fed_each_second_and_decided_each_period(clock: ManualClock):
    async with turning(clock, main=FakeSource(clock, a={"in_flight": 20.0})) as (world, rounds, metrics):
        endpoint = scaled(world, rounds)
        await clock.advance(31.0)
        assert endpoint.decision is not None
        assert (endpoint.decision.desired, endpoint.decision.reason) == (4, Reason.DEMAND)
        assert len(endpoint.ring.history().reasons) == 6
        (age,) = (metric for metric in metrics.age_s.collect())
        count = next(sample.value for sample in age.samples if sample.name.endswith("_count"))
        assert count >= 6


async def test_one_silent_source_stops_nothing_else(clock: ManualClock):
    """kedacore/http-add-on 1730: e1's source hangs; the others decide on time, e1 keeps its count as "no data"."""
    silent, loud = FakeSource(clock, e1={"in_flight": 8.0}), FakeSource(clock, e2={"in_flight": 50.0})
    async with turning(clock, silent=silent, loud=loud) as (world, rounds, _):
        e1, e2 = scaled(world, rounds, "e1", "silent", 1), scaled(world, rounds, "e2", "loud", 1)
        await clock.advance(12.0)
        silent.is_silent, silent.hangs_s = True, 1e6
        await clock.advance(108.0)
        assert e2.decision is not None
        assert e2.decision.desired >= 5
        decided = e2.ring.history().decisions["at_s"]
        assert max(later - earlier for earlier, later in itertools.pairwise(decided)) <= 7
        assert e1.decision is not None
        assert (e1.decision.desired, e1.decision.reason) == (1, Reason.NO_DATA)
        picture = rounds.picture(e1.key)
        assert picture is not None
        assert picture.signal_problem == "balancer silent: no answer"


async def test_a_fault_with_one_endpoint_costs_only_its_own_turn(clock: ManualClock, monkeypatch, caplog):
    source = FakeSource(clock, a={"in_flight": 20.0}, b={"in_flight": 20.0})
    async with turning(clock, main=source) as (world, rounds, metrics):
        broken, sound = scaled(world, rounds, "a"), scaled(world, rounds, "b")
        monkeypatch.setattr(type(broken), "decide", fails_for(broken, type(broken).decide))
        await clock.advance(20.0)
        assert sound.decision is not None
        assert sound.decision.desired == 4
        assert "a turn of n/a failed" in caplog.text
        assert metrics.faults._value.get() >= 3


def fails_for(broken: Endpoint, decide: Any) -> Any:
    def decided(endpoint: Endpoint, now_s: float) -> Any:
        if endpoint is broken:
            endpoint._decided = endpoint._turn(now_s, 5.0)
            raise ValueError("a bug")
        return decide(endpoint, now_s)

    return decided


async def test_pods_that_come_and_go_are_counted_at_the_next_second(clock: ManualClock):
    async with turning(clock, main=FakeSource(clock, a={"in_flight": 5.0})) as (world, rounds, _):
        endpoint = scaled(world, rounds, replicas=2)
        assert endpoint.census.fleet.ready == 2
        world.pods.remove("uid-a-0")
        await clock.advance(1.0)
        assert (endpoint.census.fleet.ready, endpoint.census.fleet.starting) == (1, 1)


async def test_an_edit_a_new_target_and_an_end_are_followed(clock: ManualClock):
    async with turning(clock, main=FakeSource(clock, a={"in_flight": 20.0})) as (world, rounds, _):
        endpoint = scaled(world, rounds)
        await clock.advance(10.0)
        edited = an_autoscaler("a", generation=2, targetRef={"kind": "Deployment", "name": "a"}, maxReplicas=3)
        rounds.autoscaler_seen(world.set_autoscaler(edited))
        assert rounds.endpoints[endpoint.key] is endpoint
        await clock.advance(10.0)
        assert endpoint.decision is not None
        assert endpoint.decision.desired == 3
        elsewhere = an_autoscaler("a", generation=3, targetRef={"kind": "Deployment", "name": "other"})
        rounds.autoscaler_seen(world.set_autoscaler(elsewhere))
        anew = rounds.endpoints[endpoint.key]
        assert anew is not endpoint
        await clock.advance(10.0)
        assert anew.decision is None
        world.remove_autoscaler(endpoint.key)
        rounds.autoscaler_gone(endpoint.key)
        assert rounds.picture(endpoint.key) is None
        await clock.advance(2.0)


async def test_a_start_that_was_watched_is_learnt_from(clock: ManualClock):
    async with turning(clock) as (world, rounds, _):
        endpoint = scaled(world, rounds)
        pod = a_pod("late", since_s=10.0, ready_at_s=55.0, scheduled_at_s=20.0)
        rounds.pod_ready(pod, tuple(world.targets))
        assert endpoint.starts.ready_s == (45.0,)
        assert endpoint.starts.scheduled_s == (10.0,)


async def test_a_source_that_nobody_defined_is_named(clock: ManualClock):
    async with turning(clock, main=FakeSource(clock)) as (world, rounds, _):
        endpoint = scaled(world, rounds, source="nowhere")
        picture = rounds.picture(endpoint.key)
        assert picture is not None
        assert picture.signal_problem == "no balancer 'nowhere' is defined in the scaler's sources: main"


async def test_a_source_that_comes_later_is_asked_and_one_that_is_gone_is_not(clock: ManualClock):
    sources = {"main": FakeSource(clock, a={"in_flight": 20.0})}
    async with turning(clock, **sources) as (world, rounds, _):
        first, second = scaled(world, rounds), scaled(world, rounds, "b", "later")
        await clock.advance(12.0)
        assert second.load.in_flight is None
        rounds.sources["later"] = FakeSource(clock, b={"in_flight": 30.0})  # type: ignore[index]
        await clock.advance(12.0)
        assert second.decision is not None
        assert second.decision.desired == 6
        gone = rounds.sources.pop("main")  # type: ignore[attr-defined]
        await clock.advance(2.0)
        asked = len(gone._news.get("a", ()))
        await clock.advance(60.0)
        assert len(gone._news.get("a", ())) == asked
        assert first.decision is not None
        assert (first.decision.desired, first.decision.reason) == (2, Reason.NO_DATA)
        picture = rounds.picture(first.key)
        assert picture is not None
        assert "no balancer 'main'" in picture.signal_problem
