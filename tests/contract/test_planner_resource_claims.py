"""Resource claims on a real API server with kube-scheduler, controller manager and slices of our own."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.pins import TOOLS
from fleet.clock import SystemClock
from fleet.errors import ApiError
from tests.support.cluster import StartCluster, add_nodes, client_of, kubectl
from tests.support.dra import FINALIZER, Pier, allocation_of, device, devices_of, request, reservers_of
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, gates_of, node_of, pins

pytestmark = pytest.mark.contract

CLOCK = SystemClock()
_NUMBERS = itertools.count(1)
NODES = 2
EXAMPLES = TOOLS.parent / "manifests/examples"
OTHER_GATE = "example.com/later"
GATED = [{"name": OTHER_GATE}]


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("claims", Options())
    yield started
    started.down()


@pytest.fixture
async def pier(cluster: Cluster) -> AsyncIterator[Pier]:
    """A namespace of the test's own, with two nodes of 8 cores that have its name."""
    name = f"claims-{next(_NUMBERS)}"
    nodes = fake_nodes.uniform(NODES, is_sharing=False, prefix=name, gpus=0, milli_cpu=8000)
    await add_nodes(cluster, [replace(node, labels={POOL: name}) for node in nodes])
    async with client_of(cluster) as client:
        quay = Quay(client, name, name)
        await quay.open()
        opened = Pier(quay)
        await opened.open()
        yield opened
        await quay.close()
        await opened.close()
        for node in nodes:
            await client.delete(f"/api/v1/nodes/{node.name}")


def nodes_of(pier: Pier) -> tuple[str, str]:
    return f"{pier.quay.namespace}-0000", f"{pier.quay.namespace}-0001"


async def publish_alike(pier: Pier, count: int) -> None:
    for node in nodes_of(pier):
        await pier.publish(node, [device(f"d{i}", {"index": i}) for i in range(count)])


# -- the way of a claim ----------------------------------------------------------------------------------------


async def test_a_claim_is_allocated_while_its_pod_is_gated_and_the_pod_pinned_to_its_device(pier: Pier) -> None:
    first, second = nodes_of(pier)
    await pier.publish(first, [device("small", capacity={"memory": "16Gi"})])
    await pier.publish(second, [device("big", capacity={"memory": "80Gi"})])
    selector = 'device.capacity["dev.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
    await pier.add_claim("one", [request("gpu", pier.device_class, selectors=[selector])])
    await pier.add_pod("user", claim="one")
    pod = await pier.quay.bound("user")
    claim = await pier.claim("one")
    assert node_of(pod) == second
    assert pins(pod) == [[second]]
    assert gates_of(pod) == []
    assert devices_of(claim) == ["big"]
    assert reservers_of(claim) == ["user"]
    assert FINALIZER in claim["metadata"]["finalizers"]
    allocation = allocation_of(claim)
    assert allocation["allocationTimestamp"]
    terms = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [second]}]}]
    managers = {entry["manager"] for entry in claim["metadata"]["managedFields"] if "f:status" in entry["fieldsV1"]}
    assert managers == {"berthmaster"}  # kube-scheduler found nothing left to write


async def test_pods_of_a_template_fill_one_node_before_the_next(pier: Pier) -> None:
    await publish_alike(pier, 4)
    await pier.add_template("each", [request("gpu", pier.device_class)])
    for i in range(5):
        await pier.add_pod(f"replica-{i}", template="each")
    pods = await pier.quay.all_bound(5)
    claims = await pier.claims()
    given = [(one["status"]["allocation"]["devices"]["results"][0]["pool"], devices_of(one)[0]) for one in claims]
    assert len(set(given)) == len(given) == 5
    by_node = sorted([sum(node_of(pod) == node for pod in pods) for node in nodes_of(pier)])
    assert by_node == [1, 4]
    assert {pool for pool, _ in given} == {node_of(pod) for pod in pods}


async def test_pods_that_share_a_claim_go_where_its_device_is(pier: Pier) -> None:
    await publish_alike(pier, 2)
    await pier.add_claim("common", [request("gpu", pier.device_class)])
    for i in range(3):
        await pier.add_pod(f"sharer-{i}", claim="common")
    pods = await pier.quay.all_bound(3)
    assert len({node_of(pod) for pod in pods}) == 1
    claim = await pier.claim("common")
    assert sorted(reservers_of(claim)) == ["sharer-0", "sharer-1", "sharer-2"]
    assert len(devices_of(claim)) == 1
    assert allocation_of(claim)["devices"]["results"][0]["pool"] == node_of(pods[0])


async def test_the_first_way_of_a_list_that_any_node_can_give_is_taken(pier: Pier) -> None:
    first, second = nodes_of(pier)
    await pier.publish(first, [device("a", {"kind": "h100"})])
    await pier.publish(second, [device(f"b{i}", {"kind": "l40s"}) for i in range(2)])

    def way(name: str, kind: str, count: int) -> dict[str, object]:
        expression = f'device.attributes["dev.example.com"].kind == "{kind}"'
        selectors = [{"cel": {"expression": expression}}]
        return {"name": name, "deviceClassName": pier.device_class, "selectors": selectors, "count": count}

    wish = {"name": "gpu", "firstAvailable": [way("best", "h100", 1), way("other", "l40s", 2)]}
    await pier.add_template("either", [wish])
    await pier.add_pod("one", template="either")
    assert node_of(await pier.quay.bound("one")) == first
    await pier.add_pod("two", template="either")
    assert node_of(await pier.quay.bound("two")) == second
    results = {
        tuple((result["request"], result["device"]) for result in allocation_of(one)["devices"]["results"])
        for one in await pier.claims()
    }
    assert results == {(("gpu/best", "a"),), (("gpu/other", "b0"), ("gpu/other", "b1"))}


async def test_constraints_between_devices_hold(pier: Pier) -> None:
    first, second = nodes_of(pier)
    await pier.publish(first, [device(f"a{i}", {"numa": i}) for i in range(2)])
    await pier.publish(second, [device(f"b{i}", {"numa": i % 2}) for i in range(4)])
    constraint = {"matchAttribute": "dev.example.com/numa"}
    await pier.add_claim("pair", [request("gpu", pier.device_class, count=2)], constraints=[constraint])
    await pier.add_pod("user", claim="pair")
    assert node_of(await pier.quay.bound("user")) == second
    assert devices_of(await pier.claim("pair")) in (["b0", "b2"], ["b1", "b3"])


async def test_all_devices_of_a_node_are_one_request(pier: Pier) -> None:
    await publish_alike(pier, 3)
    await pier.add_template("each", [request("gpu", pier.device_class)])
    await pier.add_pod("first", template="each")
    taken = node_of(await pier.quay.bound("first"))
    await pier.add_claim("all", [request("gpu", pier.device_class, allocationMode="All")])
    await pier.add_pod("greedy", claim="all")
    assert node_of(await pier.quay.bound("greedy")) != taken
    assert len(devices_of(await pier.claim("all"))) == 3


async def test_partitions_never_draw_more_than_their_card_has(pier: Pier) -> None:
    """Two cards of 7 slices each: 3 + 3 on one, and a whole one still fits on the other."""
    node, _ = nodes_of(pier)
    counters = [{"name": f"card-{i}", "counters": {"slices": {"value": "7"}}} for i in range(2)]
    await pier.publish(node, counters=counters, name=f"{node}-counters", count=2)
    devices = []
    for card in range(2):
        for size, places in ((7, 1), (3, 2), (1, 7)):
            for place in range(places):
                uses = [{"counterSet": f"card-{card}", "counters": {"slices": {"value": str(size)}}}]
                devices.append(device(f"c{card}-{size}g-{place}", {"size": size}, consumesCounters=uses))
    await pier.publish(node, devices, name=f"{node}-devices", count=2)
    for size in (3, 7, 1):
        expression = f'device.attributes["dev.example.com"].size == {size}'
        await pier.add_template(f"of-{size}", [request("gpu", pier.device_class, selectors=[expression])])
    for name, size in (("a", 3), ("b", 3), ("c", 7), ("d", 1)):
        await pier.add_pod(name, template=f"of-{size}")
        await pier.quay.bound(name)
    await pier.add_pod("e", template="of-1")
    assert "0 free of 1 device(s)" in await pier.quay.says("e", "ClaimUnsatisfied")
    given = sorted(name for one in await pier.claims() for name in devices_of(one))
    cards = [name[:2] for name in given]
    assert [name[3:5] for name in given].count("3g") == 2
    assert cards.count(next(name[:2] for name in given if "7g" in name)) == 1


async def test_parts_of_a_devices_capacity_add_up_and_never_beyond_it(pier: Pier) -> None:
    node, _ = nodes_of(pier)
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    memory = {"value": "10Gi", "requestPolicy": policy}
    await pier.publish(node, [device("shared", capacity={"memory": memory}, allowMultipleAllocations=True)])
    amount = {"requests": {"memory": "2560Mi"}}
    await pier.add_template("part", [request("gpu", pier.device_class, capacity=amount)])
    for i in range(4):
        await pier.add_pod(f"part-{i}", template="part")
    pods = await pier.quay.all_bound(3)
    left = next(pod["metadata"]["name"] for pod in pods if not node_of(pod))
    await pier.quay.says(left, "ClaimUnsatisfied")
    results = [
        result for one in await pier.claims() for result in allocation_of(one).get("devices", {}).get("results", [])
    ]
    assert [result["consumedCapacity"]["memory"] for result in results] == ["3Gi"] * 3
    assert len({result["shareID"] for result in results}) == 3


async def test_parameters_of_class_and_claim_go_with_the_allocation(pier: Pier) -> None:
    await publish_alike(pier, 1)
    opaque = {"driver": "dev.example.com", "parameters": {"apiVersion": "v1", "kind": "Mode", "mode": "fast"}}
    await pier.add_class(
        f"{pier.device_class}-fast", ['device.driver == "dev.example.com"'], config=[{"opaque": opaque}]
    )
    own = {"driver": "dev.example.com", "parameters": {"kind": "Own", "n": 1}}
    await pier.add_claim("one", [request("gpu", f"{pier.device_class}-fast")], config=[{"opaque": own}])
    await pier.add_pod("user", claim="one")
    await pier.quay.bound("user")
    assert allocation_of(await pier.claim("one"))["devices"]["config"] == [
        {"source": "FromClass", "opaque": opaque},
        {"source": "FromClaim", "opaque": own},
    ]


async def test_a_tainted_device_is_given_to_those_who_tolerate_it_alone(pier: Pier) -> None:
    node, _ = nodes_of(pier)
    await pier.publish(node, [device("sick")])
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": pier.device_class},
        "spec": {
            "deviceSelector": {"driver": "dev.example.com", "pool": node, "device": "sick"},
            "taint": {"key": "example.com/sick", "effect": "NoSchedule"},
        },
    }
    path = "/apis/resource.k8s.io/v1/devicetaintrules"
    await pier.quay.create(path, rule)
    await pier.add_claim("plain", [request("gpu", pier.device_class)])
    await pier.add_pod("plain", claim="plain")
    await pier.quay.says("plain", "ClaimUnsatisfied")
    tolerations = [{"key": "example.com/sick", "operator": "Exists"}]
    await pier.add_claim("brave", [request("gpu", pier.device_class, tolerations=tolerations)])
    await pier.add_pod("brave", claim="brave")
    await pier.quay.bound("brave")
    await pier.quay.delete_pod("brave")
    await pier.quay.client.delete(f"{path}/{pier.device_class}")
    await pier.quay.bound("plain")


# -- what others do meanwhile ----------------------------------------------------------------------------------


async def test_a_pod_waits_for_its_claim_and_goes_on_when_it_comes(pier: Pier) -> None:
    await publish_alike(pier, 1)
    await pier.add_pod("early", claim="late")
    assert "claim late does not exist" in await pier.quay.says("early", "ClaimPending")
    await pier.add_claim("late", [request("gpu", f"{pier.device_class}-later")])
    await pier.add_class(f"{pier.device_class}-later", ['device.driver == "dev.example.com"'])
    await pier.quay.bound("early")


async def test_devices_that_others_hold_are_not_given_and_come_back_when_freed(pier: Pier) -> None:
    """kube-scheduler allocates for a pod of its own profile; ours waits, and has the device when that pod goes."""
    node, _ = nodes_of(pier)
    await pier.publish(node, [device("only")])
    await pier.add_template("each", [request("gpu", pier.device_class)])
    await pier.add_pod("theirs", template="each", schedulerName="default-scheduler")
    await pier.quay.bound("theirs")
    await pier.add_pod("ours", template="each")
    await pier.quay.says("ours", "ClaimUnsatisfied")
    await pier.quay.delete_pod("theirs")
    pod = await pier.quay.bound("ours")
    assert pins(pod) == [[node]]


async def test_a_claim_deleted_under_a_waiting_pod_is_missed_and_its_successor_taken(pier: Pier) -> None:
    await publish_alike(pier, 1)
    wish = [request("gpu", pier.device_class)]
    await pier.add_claim("one", wish)
    await pier.add_pod("user", claim="one", cpu="100")
    await pier.quay.says("user", "Insufficient")
    await pier.quay.client.delete(f"/apis/resource.k8s.io/v1/namespaces/{pier.quay.namespace}/resourceclaims/one")
    assert await pier.claim("one") == {}
    await pier.quay.delete_pod("user")
    await pier.add_pod("again", claim="one")
    await pier.quay.says("again", "ClaimPending")
    await pier.add_claim("one", wish)
    await pier.quay.bound("again")


async def test_a_pod_that_goes_gives_its_devices_back(pier: Pier) -> None:
    node, _ = nodes_of(pier)
    await pier.publish(node, [device("only")])
    await pier.add_claim("kept", [request("gpu", pier.device_class)])
    await pier.add_pod("first", claim="kept")
    await pier.quay.bound("first")
    await pier.quay.delete_pod("first")
    await eventually(lambda: pier.claim("kept"), lambda one: not allocation_of(one), what="the claim is free again")
    await pier.add_pod("second", claim="kept")
    await pier.quay.bound("second")


async def test_many_pods_race_with_kube_scheduler_for_the_same_devices_and_none_is_given_twice(pier: Pier) -> None:
    await publish_alike(pier, 6)
    await pier.add_template("each", [request("gpu", pier.device_class)])
    await asyncio.gather(
        *(
            pier.add_pod(
                f"pod-{i}",
                template="each",
                cpu="100m",
                **({"schedulerName": "default-scheduler"} if i % 2 else {}),
            )
            for i in range(16)
        )
    )
    await pier.quay.all_bound(12, within_s=60.0)
    given = [
        (result["pool"], result["device"])
        for one in await pier.claims()
        for result in allocation_of(one).get("devices", {}).get("results", [])
    ]
    assert len(given) >= 12
    assert len(set(given)) == len(given)


# -- what a planner that died leaves behind ------------------------------------------------------------------------


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
    cluster: Cluster, pier: Pier
) -> None:
    await publish_alike(pier, 16)
    await pier.add_template("each", [request("gpu", pier.device_class)])

    async def create() -> None:
        for i in range(32):
            await pier.add_pod(f"pod-{i:02}", template="each", cpu="100m")
            await CLOCK.sleep(0.1)

    creating = asyncio.create_task(create())
    for pause_s in (0.4, 0.5, 0.6, 0.7):
        await asyncio.to_thread(cluster.kill, "planner")
        await asyncio.to_thread(cluster.start, "planner")
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


# -- what kube-scheduler must do -----------------------------------------------------------------------------------


async def test_an_extended_resource_that_a_class_backs_is_left_to_kube_scheduler_and_counted(pier: Pier) -> None:
    first, second = nodes_of(pier)
    await pier.publish(first, [device("only")])
    resource = f"{pier.quay.namespace}.example.com/gpu"
    await pier.add_class(
        f"{pier.device_class}-backed", ['device.driver == "dev.example.com"'], extendedResourceName=resource
    )
    await pier.quay.add_pod("theirs", {resource: "1", "cpu": "1"})
    pod = await pier.quay.bound("theirs")
    assert pins(pod) == []
    assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await pier.add_pod("ours", claim="one")
    await pier.quay.says("ours", "ClaimUnsatisfied")
    await pier.publish(second, [device("another")])
    assert node_of(await pier.quay.bound("ours")) == second


async def test_a_selector_beyond_the_planners_cel_is_left_to_kube_scheduler(pier: Pier) -> None:
    await publish_alike(pier, 2)
    selector = 'sets.contains([1], [device.attributes["dev.example.com"].index])'
    await pier.add_claim("one", [request("gpu", pier.device_class, selectors=[selector])])
    await pier.add_pod("user", claim="one")
    pod = await pier.quay.bound("user")
    assert pins(pod) == []
    assert devices_of(await pier.claim("one")) == ["d1"]


async def test_selectors_that_would_take_all_time_or_memory_hold_up_nobody(pier: Pier) -> None:
    """The API server takes them: a name for every level, each a list twice as long as the one below."""
    await publish_alike(pier, 4)
    levels = 22  # here four million elements for each device; kube-scheduler, which gets the pod, only counts them
    text = f"v{levels}.size() > 0"
    for level in range(levels, 0, -1):
        text = f"cel.bind(v{level},v{level - 1}+v{level - 1},{text})"
    await pier.add_claim("sums", [request("gpu", pier.device_class, selectors=[f"cel.bind(v0,[1],{text})"])])
    await pier.add_pod("greedy", claim="sums")
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await pier.add_pod("user", claim="one")
    pinned = await pier.quay.bound("user")
    assert len(pins(pinned)) == 1
    greedy = await eventually(lambda: pier.quay.pod("greedy"), lambda pod: not gates_of(pod), within_s=60.0)
    assert pins(greedy) == []


async def test_a_bare_pod_gets_its_devices_and_is_steered_to_them(pier: Pier) -> None:
    _, second = nodes_of(pier)
    await pier.publish(second, [device("only")])
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await pier.add_pod("bare", claim="one", is_owned=False)
    pod = await pier.quay.bound("bare")
    assert node_of(pod) == second
    assert pins(pod) == []
    claim = await pier.claim("one")
    managers = {entry["manager"] for entry in claim["metadata"]["managedFields"] if "f:status" in entry["fieldsV1"]}
    assert managers == {"berthmaster"}


async def test_the_planner_may_add_one_finalizer_to_a_claim_and_nothing_else(cluster: Cluster, pier: Pier) -> None:
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    path = f"/apis/resource.k8s.io/v1/namespaces/{pier.quay.namespace}/resourceclaims/one"
    async with client_of(cluster, "planner") as planner:
        for change in (
            {"labels": {"x": "y"}},
            {"annotations": {"x": "y"}},
            {"finalizers": ["example.com/mine"]},
        ):
            with pytest.raises(ApiError) as refused:
                await planner.merge_patch(path, msgspec.json.encode({"metadata": change}))
            assert refused.value.status == 403
        await planner.merge_patch(path, msgspec.json.encode({"metadata": {"finalizers": [FINALIZER]}}))
        with pytest.raises(ApiError) as refused:
            await planner.merge_patch(path, msgspec.json.encode({"metadata": {"finalizers": None}}))
        assert refused.value.status == 403
        with pytest.raises(ApiError) as refused:
            await planner.delete(path)
        assert refused.value.status == 403


async def test_the_examples_of_the_guide_run_side_by_side(cluster: Cluster, pier: Pier) -> None:
    """manifests/examples/gpus: one server by claim, one on a whole card, three on shares of a card."""
    mebi = 80 * 1024
    whole = fake_nodes.uniform(1, is_sharing=False, prefix="whole", gpus=1, gpu_memory_mib=mebi)
    shared = fake_nodes.uniform(1, is_sharing=True, prefix="shared", gpus=1, gpu_memory_mib=mebi)
    await add_nodes(cluster, [*whole, *shared])
    first, second = nodes_of(pier)
    await pier.add_class("gpu.nvidia.com", ['device.driver == "gpu.nvidia.com"'])
    cards = [device(f"gpu-{i}", {"productName": "NVIDIA L40S"}, {"memory": "46068Mi"}) for i in range(2)]
    await pier.publish(first, cards, driver="gpu.nvidia.com")
    large = device("gpu-0", {"productName": "NVIDIA H100 80GB HBM3"}, {"memory": "81559Mi"})
    await pier.publish(second, [large], driver="gpu.nvidia.com")
    kubectl(cluster, "apply", "--server-side", "-k", str(EXAMPLES / "gpus"))
    quay = Quay(pier.quay.client, "gpus", "")
    try:
        pods = await quay.all_bound(5, within_s=60.0)
        where = {pod["metadata"]["labels"]["app"]: node_of(pod) for pod in pods}
        assert where["translate"] == "whole-0000"
        assert where["embed"] == "shared-0000"
        chat = next(pod for pod in pods if pod["metadata"]["labels"]["app"] == "chat")
        claims = await Pier(quay).claims()
        assert [devices_of(one) for one in claims] == [["gpu-0"]]
        assert allocation_of(claims[0])["devices"]["results"][0]["request"] == "gpu/one-large"
        assert node_of(chat) == second
    finally:
        kubectl(cluster, "delete", "-k", str(EXAMPLES / "gpus"), "--wait=false")
        for node in (*whole, *shared):
            await pier.quay.client.delete(f"/api/v1/nodes/{node.name}")


async def test_plan_shows_the_devices_that_gated_pods_would_get(cluster: Cluster, pier: Pier) -> None:
    first, _ = nodes_of(pier)
    await pier.publish(first, [device("only")])
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await asyncio.to_thread(cluster.kill, "planner")
    try:
        await pier.add_pod("gated", claim="one")
        command = [
            sys.executable,
            "-m",
            "berthmaster",
            "plan",
            "--dry-run",
            "--json",
            f"--kubeconfig={cluster.kubeconfig}",
        ]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
        (placed,) = json.loads(done.stdout)["placements"]
        assert placed["node"] == first
        assert placed["claimed"] == [["dev.example.com", first, "only"]]
        assert devices_of(await pier.claim("one")) == []
    finally:
        await asyncio.to_thread(cluster.start, "planner")
    await pier.quay.bound("gated", within_s=40.0)
