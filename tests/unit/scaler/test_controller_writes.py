"""What the controller writes, against an API server that can fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleet import labels
from fleet.errors import ApiError, NotFound, NotLeading
from fleet.kube.client import Client
from fleet.kube.events import EventRecorder
from scaler.controller.actuator import Actuator
from scaler.controller.carrier import Carrier
from scaler.controller.census import census
from scaler.controller.conditions import Picture
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Change, Kept
from scaler.controller.follow import Follower
from scaler.controller.pods import Workload
from scaler.controller.teller import Teller
from scaler.controller.world import Autoscaler, Key, World
from scaler.decision import Decision, Reason
from scaler.resource import TargetRef, spec_of
from scaler.seen import Phase, Sample
from tests.support.clock import ManualClock, settle
from tests.support.fake_api import FakeApi
from tests.support.replicas import a_deployment, a_pod, a_spec, an_autoscaler

DEPLOYMENTS, AUTOSCALERS, PODS = (
    "/apis/apps/v1/deployments",
    "/apis/berthmaster.dev/v1alpha1/concurrencyautoscalers",
    "/api/v1/pods",
)
SHOP = TargetRef(api_version="apps/v1", kind="Deployment", name="shop")
WORKLOAD = Workload(namespace="n", kind="Deployment", name="shop")
KEY = Key(namespace="n", name="a")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(api: FakeApi, clock: ManualClock) -> AsyncIterator[Client]:
    async with Client(api.connection(clock), clock) as opened:
        yield opened


def put_shop(api: FakeApi, replicas: int = 3) -> str:
    obj = api.put(DEPLOYMENTS, {"metadata": {"name": "shop", "namespace": "n"}, "spec": {"replicas": replicas}})
    return str(obj["metadata"]["resourceVersion"])


def shop(api: FakeApi) -> int:
    return int(api.objects(DEPLOYMENTS)["n", "shop"]["spec"]["replicas"])


async def test_a_count_is_set_on_the_version_it_was_decided_on(api: FakeApi, client: Client):
    version = put_shop(api)
    setting = await Actuator(client).set("n", SHOP, 5, seen=3, version=version)
    assert setting is not None
    assert (setting.replicas, shop(api)) == (5, 5)
    (asked,) = api.asked("PATCH")
    assert asked.path == "/apis/apps/v1/namespaces/n/deployments/shop/scale"
    assert json.loads(asked.body) == {"metadata": {"resourceVersion": version}, "spec": {"replicas": 5}}


async def test_a_change_of_status_meanwhile_is_no_reason_to_wait(api: FakeApi, client: Client):
    stale = put_shop(api)
    put_shop(api)
    setting = await Actuator(client).set("n", SHOP, 5, seen=3, version=stale)
    assert setting is not None
    assert shop(api) == 5


async def test_another_count_meanwhile_makes_the_decision_void(api: FakeApi, client: Client):
    stale = put_shop(api)
    put_shop(api, 7)
    actuator = Actuator(client)
    assert await actuator.set("n", SHOP, 5, seen=3, version=stale) is None
    assert shop(api) == 7
    assert actuator.counts["changed-meanwhile"] == 1


async def test_a_write_whose_answer_was_lost_counts_as_done(api: FakeApi, client: Client):
    stale = put_shop(api)
    put_shop(api, 5)
    setting = await Actuator(client).set("n", SHOP, 5, seen=3, version=stale)
    assert setting is not None
    assert setting.replicas == 5


async def test_other_kinds_are_called_what_the_api_calls_them(api: FakeApi, client: Client):
    names = [("fleets", "Fleet"), ("fleets/scale", "Scale"), ("loose", "Loose")]
    listed = {"resources": [{"name": name, "kind": kind} for name, kind in names]}
    api.fail(200, path="/apis/x.example.com/v1", times=1, body=json.dumps(listed).encode())
    api.put("/apis/x.example.com/v1/fleets", {"metadata": {"name": "f", "namespace": "n"}, "spec": {"replicas": 2}})
    actuator = Actuator(client)
    fleet = TargetRef(api_version="x.example.com/v1", kind="Fleet", name="f")
    assert (await actuator.read("n", fleet)).replicas == 2
    assert (await actuator.read("n", fleet)).replicas == 2
    assert len([asked for asked in api.asked("GET") if asked.path == "/apis/x.example.com/v1"]) == 1


async def test_a_kind_without_a_scale_is_named(api: FakeApi, client: Client):
    listed = {"resources": [{"name": "configmaps", "kind": "ConfigMap"}]}
    api.fail(200, path="/api/v1", body=json.dumps(listed).encode())
    with pytest.raises(NotFound, match="v1 serves no kind ConfigMap with a scale"):
        await Actuator(client).read("n", TargetRef(api_version="v1", kind="ConfigMap", name="c"))


async def test_victims_are_marked_and_those_that_stay_are_not(api: FakeApi, client: Client):
    pods = {
        "idle": a_pod("idle"),
        "busy": a_pod("busy", cost="-1000"),
        "marked": a_pod("marked", cost="-1000"),
        "young": a_pod("young", Phase.STARTING),
        "theirs": a_pod("theirs", cost="5"),
    }
    for name, pod in pods.items():
        notes = {labels.POD_DELETION_COST: pod.cost} if pod.cost else {}
        api.put(PODS, {"metadata": {"name": name, "namespace": "n", "uid": pod.uid, "annotations": notes}})
    await Actuator(client).mark(pods, ["young", "idle", "marked"])
    costs = {
        name: obj["metadata"].get("annotations", {}).get(labels.POD_DELETION_COST)
        for (_, name), obj in api.objects(PODS).items()
    }
    assert costs == {"idle": "-1000", "marked": "-1000", "busy": None, "young": None, "theirs": "5"}
    assert len(api.asked("PATCH")) == 2


async def test_a_pod_that_cannot_be_marked_hinders_nothing(api: FakeApi, client: Client):
    api.fail(403, method="PATCH", times=9)
    actuator = Actuator(client)
    await actuator.mark({"idle": a_pod("idle")}, ["idle"])
    assert actuator.counts["mark-failed"] == 1


def a_world(api: FakeApi, replicas: int = 3) -> tuple[World, Endpoint, Autoscaler]:
    world = World()
    autoscaler = world.set_autoscaler(an_autoscaler())
    world.set_workload("Deployment", a_deployment(replicas, put_shop(api, replicas)), 0.0)
    endpoint = Endpoint(KEY, spec_of(a_spec()), Kept(), 1000.0, 0.0)
    endpoint.census = census([a_pod(f"p{n}") for n in range(replicas)], world.targets[WORKLOAD].order)
    return world, endpoint, autoscaler


def decided(endpoint: Endpoint, clock: ManualClock, desired: int) -> Decision:
    endpoint.decision = Decision(
        at_s=clock.monotonic_s(), current=3, desired=desired, reason=Reason.DEMAND, text="as the test says"
    )
    return endpoint.decision


async def test_a_decision_is_carried_out_and_told(api: FakeApi, client: Client, clock: ManualClock):
    world, endpoint, _ = a_world(api)
    changes: list[Change] = []
    carrier = Carrier(world, Actuator(client), clock, changed=lambda of, change: changes.append(change))
    work = asyncio.create_task(carrier.run())
    carrier.carry(endpoint, WORKLOAD, decided(endpoint, clock, 5))
    await api.until(lambda: shop(api) == 5)
    await settle()
    await asyncio.wait_for(until(lambda: bool(changes)), 5)
    assert (changes[0].before, changes[0].after, changes[0].reason) == (3, 5, "Demand")
    assert world.targets[WORKLOAD].order.replicas == 5
    # What is set already is not written again.
    carrier.carry(endpoint, WORKLOAD, decided(endpoint, clock, 5))
    await settle()
    assert len(api.asked("PATCH")) == 1
    work.cancel()


async def until(holds: Any) -> None:
    while not holds():
        await settle()


async def test_an_older_decision_is_never_carried_out(api: FakeApi, client: Client, clock: ManualClock):
    world, endpoint, _ = a_world(api)
    carrier = Carrier(world, Actuator(client), clock)
    carrier.carry(endpoint, WORKLOAD, decided(endpoint, clock, 9))
    decided(endpoint, clock, 3)  # a newer one, which wants what is there
    work = asyncio.create_task(carrier.run())
    await settle()
    assert api.asked("PATCH") == []
    work.cancel()


async def test_a_refused_write_is_a_problem_until_one_succeeds(api: FakeApi, client: Client, clock: ManualClock):
    world, endpoint, _ = a_world(api)
    carrier = Carrier(world, Actuator(client), clock)
    work = asyncio.create_task(carrier.run())
    api.fail(403, method="PATCH")
    carrier.carry(endpoint, WORKLOAD, decided(endpoint, clock, 5))
    await asyncio.wait_for(until(lambda: carrier.problem(KEY)), 5)
    assert "Deployment shop could not be set to 5: 403" in carrier.problem(KEY)
    carrier.carry(endpoint, WORKLOAD, decided(endpoint, clock, 5))
    await asyncio.wait_for(until(lambda: shop(api) == 5 and not carrier.problem(KEY)), 5)
    work.cancel()


async def test_without_the_lease_nothing_is_written(api: FakeApi, client: Client, clock: ManualClock):
    world, endpoint, autoscaler = a_world(api)
    client.write_deadline_s = lambda: float("-inf")
    with pytest.raises(NotLeading):
        await Actuator(client).set("n", SHOP, 5, seen=3, version="1")
    teller = Teller(client, EventRecorder(client, clock, "test"), world, clock)
    work = asyncio.create_task(teller.run())
    teller.consider(KEY, lambda: Picture(autoscaler=autoscaler, endpoint=endpoint, claim=world.claim(autoscaler)))
    await settle()
    assert api.asked("PATCH") == []
    work.cancel()


async def test_a_status_is_written_whole_and_only_when_it_is_worth_it(api: FakeApi, client: Client, clock: ManualClock):
    world, endpoint, autoscaler = a_world(api)
    api.put(AUTOSCALERS, {"metadata": {"name": "a", "namespace": "n", "uid": autoscaler.uid}, "status": {"stale": 1}})
    endpoint.take(Sample(at_s=1000.0, in_flight=1.0, queued=0.0))
    endpoint.decide(1000.0)
    teller = Teller(client, EventRecorder(client, clock, "test"), world, clock)
    work = asyncio.create_task(teller.run())

    def look() -> Picture:
        return Picture(autoscaler=autoscaler, endpoint=endpoint, claim=world.claim(autoscaler))

    def written() -> dict[str, Any]:
        return dict(api.objects(AUTOSCALERS)["n", "a"])

    for _ in range(3):
        teller.consider(KEY, look)
        await asyncio.wait_for(until(lambda: "readyReplicas" in written()["status"]), 5)
        await settle()
    assert "stale" not in written()["status"]
    await asyncio.wait_for(until(lambda: written()["metadata"].get("annotations")), 5)
    assert written()["metadata"]["annotations"][labels.TARGET_CONCURRENCY] == "5"
    assert len(api.asked("PATCH", "/status")) == 1
    await clock.advance(61.0)
    teller.consider(KEY, look)
    await asyncio.wait_for(until(lambda: len(api.asked("PATCH", "/status")) == 2), 5)
    work.cancel()


async def test_a_broken_condition_is_said_once(api: FakeApi, client: Client, clock: ManualClock):
    world, endpoint, autoscaler = a_world(api)
    world.remove_workload(WORKLOAD)
    api.put(AUTOSCALERS, {"metadata": {"name": "a", "namespace": "n", "uid": autoscaler.uid}})
    teller = Teller(client, EventRecorder(client, clock, "test"), world, clock)
    tasks = [asyncio.create_task(teller.run()), asyncio.create_task(teller.run_events())]
    look = lambda: Picture(autoscaler=autoscaler, endpoint=endpoint, claim=world.claim(autoscaler))  # noqa: E731
    events = "/apis/events.k8s.io/v1/events"
    for _ in range(2):
        teller.consider(KEY, look)
        await asyncio.wait_for(until(lambda: len(api.objects(events)) == 1), 5)
        await clock.advance(61.0)
    (event,) = api.objects(events).values()
    assert (event["type"], event["reason"], event["regarding"]["kind"]) == (
        "Warning",
        "TargetNotFound",
        "ConcurrencyAutoscaler",
    )
    for task in tasks:
        task.cancel()


async def test_kinds_that_are_not_watched_are_asked_for_their_scale(api: FakeApi, client: Client, clock: ManualClock):
    world = World()
    world.set_autoscaler(an_autoscaler(targetRef={"apiVersion": "x.example.com/v1", "kind": "Fleet", "name": "f"}))
    listed = {"resources": [{"name": "fleets", "kind": "Fleet"}, {"name": "fleets/scale", "kind": "Scale"}]}
    api.fail(200, path="/apis/x.example.com/v1", body=json.dumps(listed).encode())
    fleets, fleet = "/apis/x.example.com/v1/fleets", Workload(namespace="n", kind="Fleet", name="f")
    world.pods.set(a_pod("p", tags={"app": "f"}))
    follower = Follower(world, Actuator(client), clock)
    await follower.turn()
    assert fleet not in world.targets
    obj = {"metadata": {"name": "f", "namespace": "n"}, "spec": {"replicas": 2}, "status": {"selector": "app=f"}}
    api.put(fleets, obj)
    await follower.turn()
    assert world.targets[fleet].order.replicas == 2
    assert len(world.pods.of(fleet)) == 1
    api.fail(403, method="GET")
    await follower.turn()
    assert world.targets[fleet].order.replicas == 2  # what is known stands
    world.remove_autoscaler(KEY)
    await follower.turn()
    assert fleet not in world.targets
    assert not world.pods.of(fleet)


async def test_a_count_that_cannot_be_read_is_an_error_with_its_status(api: FakeApi, client: Client):
    api.fail(403, method="GET")
    with pytest.raises(ApiError, match="403"):
        await Actuator(client).read("n", SHOP)
