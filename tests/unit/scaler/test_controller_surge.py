"""Replicas beside the needed ones while one is moved: set on top, seen by no decision, and the moved one leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fleet import labels
from fleet.kube.client import Client
from scaler.controller.actuator import Actuator
from scaler.controller.carrier import Carrier
from scaler.controller.census import Order, census, replicas
from scaler.controller.pods import Workload
from scaler.controller.surge import surge_of, without_surge
from scaler.horizontal.victims import victims
from scaler.seen import Phase
from tests.support.clock import ManualClock, settle
from tests.support.fake_api import FakeApi
from tests.support.replicas import a_pod
from tests.unit.scaler.test_controller_rounds import FakeSource, scaled, turning

SHOP = Workload(namespace="n", kind="Deployment", name="a")


@pytest.mark.parametrize(
    ("text", "surge"), [("", 0), ("u1", 1), ("u1,u1, u2,", 2), (",".join(f"u{i}" for i in range(50)), 10)]
)
def test_what_an_annotation_asks_for(text, surge):
    assert surge_of({labels.SURGE: text} if text else {}) == surge


@pytest.mark.parametrize(("ready", "starting"), [(3, 1), (4, 0)])
def test_a_decision_sees_the_fleet_without_the_one_beside_it(ready, starting):
    pods = [a_pod(f"p{i}") for i in range(ready)] + [a_pod(f"s{i}", Phase.STARTING) for i in range(starting)]
    order = without_surge(Order(replicas=4, at_s=0.0), 1)
    fleet = census(pods, order).fleet
    assert (fleet.ready, len(fleet.starting_since_s)) == (3, 0)


def test_nothing_is_subtracted_of_a_count_that_is_not_known():
    order = Order(replicas=None, at_s=0.0)
    assert without_surge(order, 2) is order


def test_the_moved_replica_goes_first_however_busy_it_is():
    pods = [a_pod("idle"), a_pod("moved", cost=labels.LEAVES_FIRST), a_pod("busy")]
    assert victims(replicas(pods, {"idle": 0.0, "moved": 9.0, "busy": 5.0}), 1) == ("moved",)


async def test_a_mark_that_says_so_is_not_overwritten():
    clock = ManualClock()
    async with FakeApi() as api, Client(api.connection(clock), clock) as client:
        pods = {"moved": a_pod("moved", cost=labels.LEAVES_FIRST)}
        await Actuator(client).mark(pods, ["moved"])
        await Actuator(client).mark(pods, [])
        assert not api.asked("PATCH")


async def test_a_surge_is_set_on_top_held_and_taken_back_without_a_decision_seeing_it():
    clock = ManualClock()
    async with (
        FakeApi() as api,
        Client(api.connection(clock), clock) as client,
        turning(clock, main=FakeSource(clock, a={"in_flight": 10.0})) as (world, rounds, _),
    ):
        endpoint = scaled(world, rounds, replicas=2)
        carrier = Carrier(world, Actuator(client), clock)
        work = asyncio.create_task(carrier.run())
        path = "/apis/apps/v1/deployments"
        api.put(path, {"metadata": {"name": "a", "namespace": "n"}, "spec": {"replicas": 2}})

        def count() -> int:
            return int(api.objects(path)["n", "a"]["spec"]["replicas"])

        async def decide() -> int:
            await clock.advance(5.0)
            assert endpoint.decision is not None
            carrier.carry(endpoint, SHOP, endpoint.decision)
            return endpoint.decision.desired

        desired = await decide()
        await api.until(lambda: count() == desired)
        autoscaler = world.autoscalers[endpoint.key]
        world.autoscalers[endpoint.key] = replace(autoscaler, annotations={labels.SURGE: "uid-a-0"})
        assert await decide() == desired
        await api.until(lambda: count() == desired + 1)
        for number in range(2, desired + 1):
            world.pods.set(a_pod(f"a-{number}", tags={"pod-template-hash": "v1"}, owner=("ReplicaSet", "a-v1")))
        for _ in range(5):
            assert await decide() == desired
        assert count() == desired + 1, "a replica beside the needed ones is no reason to order one more, or fewer"
        world.autoscalers[endpoint.key] = replace(autoscaler, annotations={})
        assert await decide() == desired
        await api.until(lambda: count() == desired)
        while world.surges[SHOP]:
            await settle()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
