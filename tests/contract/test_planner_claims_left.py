"""What a planner that died leaves of resource claims: used, given back, or gone with the pod."""

from __future__ import annotations

import asyncio

import pytest

from berthmaster.local.cluster import Cluster
from fleet.clock import SystemClock
from tests.support.dra import (
    FINALIZER,
    Pier,
    allocation_of,
    device,
    devices_of,
    nodes_of,
    publish_alike,
    request,
    reservers_of,
)
from tests.support.eventually import eventually
from tests.support.quay import node_of

pytestmark = pytest.mark.contract

CLOCK = SystemClock()
OTHER_GATE = "example.com/later"
GATED = [{"name": OTHER_GATE}]


async def left_behind(pier: Pier, pod: str, claim: str, node: str, name: str) -> None:
    """Write what a planner writes before the pin: finalizer, allocation, reservation."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{pier.quay.namespace}/resourceclaims/{claim}"
    await pier.quay.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    uid = (await pier.quay.pod(pod))["metadata"]["uid"]
    only = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "gpu", "driver": "dev.example.com", "pool": node, "device": name}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
    }
    await pier.quay.patch(f"{path}/status", {"status": status})


async def let_go(pier: Pier, pod: str) -> None:
    """Remove the gate that kept the planner from a pod."""
    await pier.quay.patch_pod(
        pod,
        [
            {"op": "test", "path": "/spec/schedulingGates/0/name", "value": OTHER_GATE},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ],
    )


async def test_an_allocation_that_a_dead_planner_left_is_used(pier: Pier) -> None:
    _, second = nodes_of(pier)
    await publish_alike(pier, 3)
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await pier.add_pod("user", claim="one", schedulingGates=GATED)
    await left_behind(pier, "user", "one", second, "d2")
    await let_go(pier, "user")
    assert node_of(await pier.quay.bound("user")) == second
    assert devices_of(await pier.claim("one")) == ["d2"]


async def test_an_allocation_on_a_node_that_is_full_now_is_given_back_and_made_anew(pier: Pier) -> None:
    first, second = nodes_of(pier)
    await publish_alike(pier, 3)
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await pier.add_pod("user", claim="one", cpu="4", schedulingGates=GATED)
    pin = {"nodeSelector": {"kubernetes.io/hostname": second}}
    await pier.quay.add_pod("big", {"cpu": "7"}, **pin)
    await pier.quay.bound("big")
    await left_behind(pier, "user", "one", second, "d2")
    await let_go(pier, "user")
    assert node_of(await pier.quay.bound("user", within_s=30.0)) == first
    allocation = allocation_of(await pier.claim("one"))
    assert allocation["devices"]["results"][0]["pool"] == first


async def test_a_finalizer_that_a_dead_planner_left_keeps_no_claim_from_going(pier: Pier) -> None:
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    path = f"/apis/resource.k8s.io/v1/namespaces/{pier.quay.namespace}/resourceclaims/one"
    await pier.quay.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    await pier.quay.client.delete(path)
    await eventually(lambda: pier.claim("one"), lambda one: one == {}, what="the claim is gone")


async def test_a_pod_that_dies_before_its_pin_gives_its_devices_back(pier: Pier) -> None:
    first, _ = nodes_of(pier)
    await pier.publish(first, [device("only")])
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await pier.add_claim("two", [request("gpu", pier.device_class)])
    await pier.add_pod("dies", claim="one", schedulingGates=GATED)
    await left_behind(pier, "dies", "one", first, "only")
    await pier.add_pod("waits", claim="two")
    await pier.quay.says("waits", "ClaimUnsatisfied")
    await pier.quay.delete_pod("dies")
    await pier.quay.bound("waits")
    assert devices_of(await pier.claim("two")) == ["only"]


@pytest.mark.slow
async def test_planners_that_die_between_any_two_writes_lose_no_pod_and_give_no_device_twice(
    claims_cluster: Cluster, pier: Pier
) -> None:
    await publish_alike(pier, 16)
    await pier.add_template("each", [request("gpu", pier.device_class)])

    async def create() -> None:
        for i in range(32):
            await pier.add_pod(f"pod-{i:02}", template="each", cpu="100m")
            await CLOCK.sleep(0.1)

    creating = asyncio.create_task(create())
    for pause_s in (0.4, 0.5, 0.6, 0.7):
        await asyncio.to_thread(claims_cluster.kill, "planner")
        await asyncio.to_thread(claims_cluster.start, "planner")
        await CLOCK.sleep(pause_s)
    await creating
    pods = await pier.quay.all_bound(32, within_s=90.0)
    given: dict[tuple[str, str], str] = {}
    for one in await pier.claims():
        (result,) = allocation_of(one)["devices"]["results"]
        key = (result["pool"], result["device"])
        assert key not in given
        given[key] = one["metadata"]["name"]
        (user,) = reservers_of(one)
        assert node_of(next(pod for pod in pods if pod["metadata"]["name"] == user)) == result["pool"]
    assert len(given) == 32
