"""Resource claims on a real API server with kube-scheduler, controller manager and slices of our own."""

from __future__ import annotations

import asyncio

import pytest

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
from tests.support.quay import gates_of, node_of, pins

pytestmark = pytest.mark.contract


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
