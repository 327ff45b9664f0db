"""Races, rivals and broken endpoints: what is written is within bounds and still true, and nobody waits for another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fleet.errors import ApiError, DecodeError
from scaler.balancer.values import BackendSecond
from scaler.controller.actuator import Actuator, Setting
from scaler.controller.carrier import Carrier
from scaler.controller.census import Order, census, order_for
from scaler.controller.endpoint import Endpoint
from scaler.controller.follow import Follower
from scaler.controller.metrics import ScalerMetrics
from scaler.controller.objects import RivalObject
from scaler.controller.pods import Pod, Workload, pod_from
from scaler.controller.rounds import Rounds
from scaler.controller.selector import selector_from
from scaler.controller.world import Key, World
from scaler.decision import Decision, Reason
from scaler.resource import TargetRef
from scaler.seen import Phase, Sample
from tests.support.clock import ManualClock, settle
from tests.support.replicas import a_deployment, a_pod, a_replica, an_autoscaler, read, starting


class Writes:
    """Stands in for the actuator: notes what is set; `hangs` says which workloads are never answered for."""

    def __init__(self, clock: ManualClock) -> None:
        self.set_: list[tuple[str, int]] = []
        self.marked: list[str] = []
        self.hangs: set[str] = set()
        self.mark_s = 0.0
        self.counts: dict[str, int] = {"failed": 0}
        self._clock = clock

    async def mark(self, pods: Mapping[str, Pod], victims: Sequence[str]) -> None:
        self.marked += victims
        await self._clock.sleep(self.mark_s)

    async def set(self, namespace: str, target: TargetRef, replicas: int, *, seen: int, version: str) -> Setting:
        if target.name in self.hangs:
            await self._clock.sleep(5.0)
            raise ApiError(0, "Timeout", "not answered")
        self.set_.append((target.name, replicas))
        return Setting(replicas=replicas, version="99", selector="")


class Scene:
    """A world, its rounds and its carrier on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock, self.world = ManualClock(), World()
        self.writes = Writes(self.clock)
        self.metrics = ScalerMetrics(CollectorRegistry())
        self.carrier = Carrier(self.world, self.writes, self.clock)  # type: ignore[arg-type]
        self.rounds = Rounds(self.world, {}, {}, self.carrier, Nobody(), self.clock, self.metrics)  # type: ignore[arg-type]

    def scaled(self, name: str = "shop", replicas: int = 3, kind: str = "Deployment", **spec: Any) -> Endpoint:
        """Let an autoscaler, its workload and its pods be there, with a second of load."""
        obj = a_deployment(replicas)
        obj.metadata.name = name
        workload = self.world.set_workload(kind, obj, self.clock.monotonic_s())
        for number in range(replicas):
            owner = ("ReplicaSet", f"{name}-v1")
            self.world.pods.set(a_pod(f"{name}-{number}", tags={"pod-template-hash": "v1"}, owner=owner))
        self.edit(name, kind=kind, **spec)
        endpoint = self.rounds.endpoints[Key(namespace="n", name=name)]
        endpoint.census = census(self.world.pods.of(workload).values(), self.world.targets[workload].order)
        endpoint.take(Sample(at_s=self.clock.monotonic_s(), in_flight=0.0, queued=0.0))
        return endpoint

    def edit(self, name: str, generation: int = 1, kind: str = "Deployment", **spec: Any) -> None:
        target = {"kind": kind, "name": name} | ({} if kind == "Deployment" else {"apiVersion": "x.example.com/v1"})
        obj = an_autoscaler(name, generation, **({"targetRef": target} | spec))
        self.rounds.autoscaler_seen(self.world.set_autoscaler(obj))

    def carry(self, endpoint: Endpoint, desired: int) -> None:
        endpoint.decision = Decision(
            at_s=self.clock.monotonic_s(), current=3, desired=desired, reason=Reason.DEMAND, text="as the test says"
        )
        target = endpoint.spec.target
        self.carrier.carry(endpoint, Workload(namespace="n", kind=target.kind, name=target.name), endpoint.decision)


class Nobody:
    def forget(self, _: object) -> None: ...

    def consider(self, *_: object) -> None: ...


@pytest.fixture
async def scene() -> Any:
    return Scene()


async def carried(scene: Scene, seconds: float = 0.0) -> list[tuple[str, int]]:
    """Let the carrier work for some seconds; return what it set."""
    work = asyncio.create_task(scene.carrier.run())
    await settle()
    if seconds:
        await scene.clock.advance(seconds)
    await settle()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return scene.writes.set_


async def test_a_decision_that_still_holds_is_carried_out(scene: Scene) -> None:
    scene.carry(scene.scaled(), 5)
    assert await carried(scene) == [("shop", 5)]


async def test_an_edit_voids_what_was_decided_under_the_old_bounds(scene: Scene) -> None:
    endpoint = scene.scaled()
    scene.carry(endpoint, 9)
    scene.edit("shop", 2, maxReplicas=4)
    assert await carried(scene) == []


async def test_who_only_observes_from_now_on_writes_nothing_from_now_on(scene: Scene) -> None:
    endpoint = scene.scaled()
    scene.carry(endpoint, 9)
    scene.edit("shop", 2, mode="observe")
    assert await carried(scene) == []


async def test_a_rival_that_came_meanwhile_is_not_fought(scene: Scene) -> None:
    endpoint = scene.scaled()
    scene.carry(endpoint, 9)
    meta = {"name": "hpa", "namespace": "n", "uid": "h"}
    scene.world.set_rival(
        read(RivalObject, {"metadata": meta, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "shop"}}})
    )
    assert await carried(scene) == []


async def test_a_deleted_autoscaler_or_workload_writes_nothing_more(scene: Scene) -> None:
    endpoint = scene.scaled()
    scene.carry(endpoint, 9)
    scene.world.remove_workload(Workload(namespace="n", kind="Deployment", name="shop"))
    other = scene.scaled("other")
    scene.carry(other, 9)
    scene.world.remove_autoscaler(Key(namespace="n", name="other"))
    assert await carried(scene) == []


@pytest.mark.parametrize(
    "sample",
    [
        {"in_flight": 0.5, "queued": 0.0},
        {"in_flight": 0.0, "queued": 1.0},
        {"in_flight": None, "queued": None},
    ],
)
async def test_nobody_falls_asleep_on_a_request_that_came_meanwhile(scene: Scene, sample: dict[str, Any]) -> None:
    endpoint = scene.scaled(minReplicas=0)
    scene.carry(endpoint, 0)
    endpoint.take(Sample(at_s=scene.clock.monotonic_s() + 1, **sample))
    assert await carried(scene) == []
    endpoint.take(Sample(at_s=scene.clock.monotonic_s() + 2, in_flight=0.0, queued=0.0))
    scene.carry(endpoint, 0)
    assert await carried(scene) == [("shop", 0)]


async def test_a_shrink_that_waited_for_its_marks_is_looked_at_again(scene: Scene) -> None:
    endpoint = scene.scaled()
    scene.writes.mark_s = 60.0
    scene.carry(endpoint, 1)
    assert await carried(scene, 61.0) == []
    assert scene.writes.marked


async def test_marks_end_with_the_first_that_is_not_taken(scene: Scene) -> None:
    asked = []

    class Refusing:
        async def merge_patch(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
            asked.append(path)
            raise ApiError(0, "Timeout", "not answered")

    actuator = Actuator(Refusing())  # type: ignore[arg-type]
    pods = {f"p{number}": a_pod(f"p{number}") for number in range(40)}
    await actuator.mark(pods, list(pods))
    assert len(asked) == 1, "32 of them would take 160 s, and one of eight hands"


async def test_kinds_whose_servers_hang_keep_no_deployment_waiting(scene: Scene) -> None:
    for number in range(40):
        endpoint = scene.scaled(f"hung-{number}", kind="Fleet")
        scene.writes.hangs.add(f"hung-{number}")
        scene.carry(endpoint, 5)
    scene.carry(scene.scaled("shop"), 5)
    assert ("shop", 5) in await carried(scene)


async def test_what_is_not_answered_is_not_asked_for_at_every_turn(scene: Scene) -> None:
    endpoint = scene.scaled()
    scene.writes.hangs.add("shop")
    scene.carry(endpoint, 5)
    await carried(scene, 5.0)
    assert scene.writes.counts["failed"] == 1
    scene.carry(endpoint, 5)
    await carried(scene, 5.0)
    assert scene.writes.counts["failed"] == 1
    assert "not answered" in scene.carrier.problem(endpoint.key)
    scene.writes.hangs.clear()
    await scene.clock.advance(15.0)
    scene.carry(endpoint, 5)
    assert await carried(scene) == [("shop", 5)]


class Source:
    """A balancer that says one second of each backend at every poll."""

    def __init__(self, clock: ManualClock, *backends: str) -> None:
        self._clock, self._backends = clock, backends

    async def poll(self) -> None: ...

    def take(self, backend: str) -> Sequence[BackendSecond]:
        return [BackendSecond(name=backend, at_s=self._clock.monotonic_s(), in_flight=1.0, queued=0.0)]

    def states(self) -> Sequence[Any]:
        return []


async def test_an_endpoint_that_cannot_take_its_news_keeps_nobody_from_theirs(scene: Scene) -> None:
    endpoints = [
        scene.scaled(name, signals={"balancer": {"name": "main", "backend": name}}) for name in ("a", "broken", "z")
    ]

    def fails(*_: object, **__: object) -> None:
        raise OverflowError("a fault that nobody thought of")

    endpoints[1].track.see = fails  # type: ignore[method-assign]
    scene.rounds.sources = {"main": Source(scene.clock)}
    work = asyncio.create_task(scene.rounds.run())
    for _ in range(8):
        await scene.clock.advance(1.0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert endpoints[0].decision is not None
    assert endpoints[2].decision is not None
    assert scene.metrics.faults._value.get() >= 6


async def test_an_endpoint_that_was_given_another_workload_decides_no_more(scene: Scene) -> None:
    """Its turn may come after others had theirs, with the old object still in hand."""
    before = scene.scaled("shop")
    scene.world.set_workload("Deployment", a_deployment(3), 0.0)
    obj = an_autoscaler("shop", 2, targetRef={"kind": "Deployment", "name": "elsewhere"})
    scene.rounds.autoscaler_seen(scene.world.set_autoscaler(obj))
    assert scene.rounds.endpoints[before.key] is not before
    await scene.clock.advance(10.0)
    scene.rounds._turn(before)
    assert before.decision is None


async def test_a_kind_whose_server_is_silent_keeps_no_other_kind_waiting() -> None:
    world, clock = World(), ManualClock()
    for kind in ("Fleet", "Hung"):
        for number in range(6):
            target = {"apiVersion": "x.example.com/v1", "kind": kind, "name": f"f{number}"}
            world.set_autoscaler(an_autoscaler(f"{kind.lower()}{number}", targetRef=target))
    asked: list[str] = []

    class Scales:
        async def read(self, namespace: str, target: TargetRef) -> Setting:
            asked.append(target.kind)
            if target.kind == "Hung":
                await asyncio.Event().wait()
            return Setting(replicas=len(asked), version="", selector="")

    follower = Follower(world, Scales(), clock)  # type: ignore[arg-type]
    work = asyncio.create_task(follower.run())
    while asked.count("Fleet") < 6:
        await settle()
    assert asked.count("Hung") == 4
    counts = {
        world.targets[Workload(namespace="n", kind="Fleet", name=f"f{number}")].order.replicas for number in range(6)
    }
    assert len(counts) == 6
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert not [task for task in asyncio.all_tasks() if "scales of" in task.get_name()]


@pytest.mark.parametrize("replicas", [2**31 - 1, 2**63 - 1])
def test_a_count_of_billions_costs_no_memory(replicas: int) -> None:
    """Anybody may write it into a Deployment of their own."""
    begun_s = time.perf_counter()
    counted = census([a_pod("p1")], Order(replicas=replicas, at_s=5.0))
    assert counted.fleet.replicas <= 5001
    assert time.perf_counter() - begun_s < 1.0
    assert order_for(counted.fleet.replicas, counted, replicas) == replicas, "to hold is to leave it as it is"
    assert order_for(counted.fleet.replicas, counted, 10) == 10
    assert order_for(0, counted, replicas) == 0


@given(
    st.lists(st.sampled_from(list(Phase)), max_size=30),
    st.integers(0, 2**31),
    st.integers(0, 2**31),
    st.integers(1, 2**31),
)
@settings(max_examples=50)
def test_what_is_ordered_never_leaves_the_bounds(phases: list[Phase], ordered: int, desired: int, most: int) -> None:
    pods = [a_pod(f"p{number}", phase) for number, phase in enumerate(phases)]
    counted = census(pods, Order(replicas=ordered, at_s=0.0))
    order = order_for(min(desired, most), counted, most)
    assert 0 <= order <= most
    assert (order == 0) == (min(desired, most) == 0)


@pytest.mark.parametrize("text", ["a=b," * 100_000, "a in (b" + "," * 300_000 + ")", "a in (" * 50_000, "(" * 500_000])
def test_a_selector_of_any_length_holds_nothing_up(text: str) -> None:
    """A scale subresource tells it, and whoever made the resource wrote it."""
    begun_s = time.perf_counter()
    with pytest.raises(DecodeError):
        selector_from(text)
    assert time.perf_counter() - begun_s < 0.5


def test_thousands_of_pods_that_flap_are_counted_in_time() -> None:
    world = World()
    world.set_workload("Deployment", a_deployment(5000), 0.0)
    changes = {"Ready": {}, "starting": {"status": starting()}}
    pods = {
        (name, number): pod_from(a_replica(f"shop-abc-{number}", **change), now_s=1.0, epoch_s=0.0, is_new=True)
        for name, change in changes.items()
        for number in range(0, 5000, 50)
    }
    shop = Workload(namespace="n", kind="Deployment", name="shop")
    begun_s = time.perf_counter()
    for turn in range(50):
        for number in range(0, 5000, 50):
            name = ("Ready", "starting")[(turn + number) % 2]
            world.pods.set(replace(pods[name, number], name=f"p{number}-{turn}", uid=f"u{number}-{turn % 50}"))
        list(world.pods.changed())
        counted = census(world.pods.of(shop).values(), world.targets[shop].order)
    assert len(world.pods) == 5000
    assert counted.fleet.replicas == 5000
    assert time.perf_counter() - begun_s < 10.0
    for turn in range(50):
        for number in range(0, 5000, 50):
            world.pods.remove(f"u{number}-{turn}")
    assert (len(world.pods), len(world.pods.of(shop))) == (0, 0)
