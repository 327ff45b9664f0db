"""Seats for pods with resource claims on the real control plane: devices change hands once their claims are free."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.kube import paths
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from fleet.kube.patches import seat_patch
from fleet.pod import Berth
from tests.support.cluster import StartCluster, client_of
from tests.support.dra import FINALIZER, Pier, allocation_of, device, devices_of, pier_of, request, reservers_of
from tests.support.eventually import eventually
from tests.support.quay import gates_of, node_of, note, pins

pytestmark = [pytest.mark.contract, pytest.mark.slow]

URGENT = "urgent"
LINGERS = "tests.berthmaster.dev/lingers"
CARDS = "gpu.example.com"
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_SETTING_HAND_OVER_AFTER_S", "3600")
        started = start_cluster("claimseats", Options(has_scaler=False, has_warmpool=False))

    async def prepare() -> None:
        async with client_of(started) as client:
            body = {"metadata": {"name": URGENT}, "value": 1000}
            await client.create("/apis/scheduling.k8s.io/v1/priorityclasses", json.dumps(body).encode())

    asyncio.run(prepare())
    yield started
    started.down()


@pytest.fixture
async def pier(cluster: Cluster) -> AsyncIterator[Pier]:
    """A namespace of the test's own, with two nodes of 8 cores and a card each that have its name."""
    name = f"claimseats-{next(_NUMBERS)}"
    nodes = fake_nodes.uniform(2, is_sharing=True, prefix=name, gpus=1, model="G2", milli_cpu=8000)
    async with pier_of(cluster, name, nodes) as opened:
        yield opened


def nodes_of(pier: Pier) -> tuple[str, str]:
    return f"{pier.quay.namespace}-0000", f"{pier.quay.namespace}-0001"


async def prepare(pier: Pier, *nodes: str) -> None:
    for node in nodes:
        await pier.publish(node, [device(f"on-{node[-4:]}")])
    await pier.add_template("each", [request("gpu", pier.device_class)])


async def add(pier: Pier, name: str, *, gang: str = "", finalizer: str = "", **words: Any) -> None:
    marks = {labels.GANG: gang, labels.GANG_SIZE: "2"} if gang else {}
    meta: dict[str, Any] = {"labels": {"app": name, **marks}}
    if finalizer:
        meta["finalizers"] = [finalizer]
    await pier.add_pod(name, template="each", metadata=meta, **words)


async def claim_of(pier: Pier, pod: str) -> dict[str, Any]:
    statuses = (await pier.quay.pod(pod)).get("status", {}).get("resourceClaimStatuses", [])
    return await pier.claim(statuses[0]["resourceClaimName"]) if statuses else {}


async def guard(pier: Pier, app: str) -> None:
    """Let nobody evict the pods with this label."""
    path = f"/apis/policy/v1/namespaces/{pier.quay.namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": app}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}}
    await pier.quay.create(path, body)

    async def status() -> dict[str, Any]:
        return dict(json.loads(await pier.quay.client.get(f"{path}/{app}")).get("status", {}))

    await eventually(
        status,
        lambda found: found.get("currentHealthy") == 1 and found.get("disruptionsAllowed") == 0,
        within_s=60.0,
        what="the budget forbids it",
    )


async def no_device_is_given_twice(pier: Pier) -> None:
    given = [
        (result["pool"], result["device"])
        for one in await pier.claims()
        for result in allocation_of(one).get("devices", {}).get("results", [])
    ]
    assert len(given) == len(set(given))
    assert (await pier.quay.recount()).faults == ()


async def test_an_urgent_claim_gets_the_device_of_the_pod_that_no_budget_protects(pier: Pier) -> None:
    await prepare(pier, *nodes_of(pier))
    for name in ("guarded", "free"):
        await add(pier, name)
    await pier.quay.all_bound(2)
    place = node_of(await pier.quay.pod("free"))
    await guard(pier, "guarded")
    await add(pier, URGENT, priorityClassName=URGENT)
    pod = await pier.quay.bound(URGENT, within_s=90.0)
    assert node_of(pod) == place
    assert pins(pod) == [[place]]
    assert note(pod, labels.SEAT) == place
    claim = await claim_of(pier, URGENT)
    assert devices_of(claim) == [f"on-{place[-4:]}"]
    assert reservers_of(claim) == [URGENT]
    assert await pier.quay.pod("free") == {}
    assert node_of(await pier.quay.pod("guarded"))
    assert "Preempted" in {event["reason"] for event in await pier.quay.events("free")}
    await no_device_is_given_twice(pier)


async def test_a_planner_killed_between_eviction_and_allocation_keeps_the_device_for_whom_it_is(
    cluster: Cluster, pier: Pier
) -> None:
    node, _ = nodes_of(pier)
    await prepare(pier, node)
    await add(pier, "slow", finalizer=LINGERS)
    await pier.quay.bound("slow")
    await add(pier, URGENT, priorityClassName=URGENT)
    await pier.quay.says(URGENT, "SeatAwaited", within_s=90.0)
    await eventually(
        lambda: pier.quay.pod("slow"), lambda pod: "deletionTimestamp" in pod["metadata"], within_s=60.0, what="it goes"
    )
    assert allocation_of(await claim_of(pier, URGENT)) == {}
    await asyncio.to_thread(cluster.kill, "planner")
    await add(pier, "rival", priorityClassName=URGENT)
    await pier.quay.patch_pod("slow", {"metadata": {"finalizers": None}})
    await eventually(
        pier.claims,
        lambda found: len(found) == 2 and not any(allocation_of(one) for one in found),
        within_s=60.0,
        what="the claim of the one who went is gone",
    )
    await asyncio.to_thread(cluster.start, "planner")
    assert node_of(await pier.quay.bound(URGENT, within_s=90.0)) == node
    await pier.quay.says("rival", "ClaimUnsatisfied", within_s=90.0)
    assert reservers_of(await claim_of(pier, URGENT)) == [URGENT]
    await no_device_is_given_twice(pier)


async def test_a_planner_killed_between_allocation_and_pin_is_followed_by_one_that_pins(
    cluster: Cluster, pier: Pier
) -> None:
    _, node = nodes_of(pier)
    await prepare(pier, *nodes_of(pier))
    await asyncio.to_thread(cluster.kill, "planner")
    try:
        await add(pier, URGENT)
        claim = await eventually(lambda: claim_of(pier, URGENT), bool, within_s=60.0, what="its claim is made")
        async with client_of(cluster, "planner") as planner:
            path = paths.pod(pier.quay.namespace, URGENT)
            pod = pod_from(msgspec.json.decode(await planner.get(path), type=PodObject))
            await planner.json_patch(path, seat_patch(pod, Berth(node=node)))
        await allocate(pier, claim, node, pod.uid)
    finally:
        await asyncio.to_thread(cluster.start, "planner")
    bound = await pier.quay.bound(URGENT, within_s=90.0)
    assert node_of(bound) == node
    assert devices_of(await claim_of(pier, URGENT)) == [f"on-{node[-4:]}"]
    await no_device_is_given_twice(pier)


async def allocate(pier: Pier, claim: dict[str, Any], node: str, uid: str) -> None:
    """Write what a planner writes before the pin."""
    path = paths.resource_claim(pier.quay.namespace, claim["metadata"]["name"])
    await pier.quay.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    only = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "gpu", "driver": "dev.example.com", "pool": node, "device": f"on-{node[-4:]}"}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": URGENT, "uid": uid}],
    }
    await pier.quay.patch(
        paths.resource_claim(pier.quay.namespace, claim["metadata"]["name"], "status"), {"status": status}
    )


async def test_an_urgent_pod_gets_the_gpu_that_another_held_by_a_claim(pier: Pier) -> None:
    """The driver and we name the card alike, so a claim on it and a record on it exclude each other."""
    node, other = nodes_of(pier)
    await pier.publish(node, [device("card", {"productName": "G2"})], driver=CARDS)
    await pier.add_class(f"{pier.device_class}-cards", [f'device.driver == "{CARDS}"'])
    await pier.add_template("each", [request("gpu", f"{pier.device_class}-cards")])
    await add(pier, "low")
    assert node_of(await pier.quay.bound("low")) == node
    await pier.quay.add_pod("whole", {labels.GPU: "1", "cpu": "1"})
    assert node_of(await pier.quay.bound("whole")) == other
    await pier.quay.add_pod(URGENT, {labels.GPU: "1", "cpu": "1"}, priorityClassName=URGENT)
    pod = await pier.quay.bound(URGENT, within_s=90.0)
    assert gates_of(pod) == []
    gone = "low" if node_of(pod) == node else "whole"
    assert await pier.quay.pod(gone) == {}
    await no_device_is_given_twice(pier)


async def test_a_gang_with_claims_has_others_go_on_both_nodes_and_is_bound_as_a_whole(pier: Pier) -> None:
    await prepare(pier, *nodes_of(pier))
    for name in ("low-a", "low-b"):
        await add(pier, name)
    await pier.quay.all_bound(2)
    for name in ("gang-a", "gang-b"):
        await add(pier, name, gang="train", priorityClassName=URGENT)
    pods = [await pier.quay.bound(name, within_s=90.0) for name in ("gang-a", "gang-b")]
    assert {node_of(pod) for pod in pods} == set(nodes_of(pier))
    assert [await pier.quay.pod(name) for name in ("low-a", "low-b")] == [{}, {}]
    for pod in pods:
        claim = await claim_of(pier, pod["metadata"]["name"])
        assert devices_of(claim) == [f"on-{node_of(pod)[-4:]}"]
    await no_device_is_given_twice(pier)
