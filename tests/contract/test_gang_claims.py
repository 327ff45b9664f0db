"""Gangs with resource claims on the real control plane: devices, seats and pins for all members or for none."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.kube import paths
from tests.support.cluster import StartCluster
from tests.support.dra import (
    FINALIZER,
    GROUP,
    Pier,
    allocation_of,
    device,
    devices_of,
    pier_of,
    request,
    reservers_of,
)
from tests.support.eventually import eventually
from tests.support.quay import gates_of, node_of, note

pytestmark = [pytest.mark.contract, pytest.mark.slow]

_NUMBERS = itertools.count(1)
SIZE = 4


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("gang-claims", Options(has_scaler=False, has_warmpool=False))
    yield started
    started.down()


@pytest.fixture
async def pier(cluster: Cluster) -> AsyncIterator[Pier]:
    """A namespace of the test's own, with two nodes of 8 cores and two devices each."""
    name = f"gang-claims-{next(_NUMBERS)}"
    nodes = fake_nodes.uniform(2, is_sharing=False, prefix=name, gpus=0, milli_cpu=8000)
    async with pier_of(cluster, name, nodes) as opened:
        for node in nodes:
            await opened.publish(node.name, [device(f"d{i}") for i in range(2)])
        yield opened


async def add_member(pier: Pier, number: int, gang: str = "g", size: int = SIZE, **claim: str) -> None:
    name = f"{gang}{number}"
    marks = {labels.GANG: gang, labels.GANG_SIZE: str(size), "app": name}
    meta = pier.quay.pod_json(name, metadata={"labels": marks})["metadata"]
    await pier.add_pod(name, metadata=meta, **claim)


def given(claims: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return pool and device of all that claims have."""
    results = [one for claim in claims for one in allocation_of(claim).get("devices", {}).get("results", [])]
    return [(one["pool"], one["device"]) for one in results]


async def stands(pier: Pier, gang: str = "g") -> None:
    """Assert that every member runs where the device is that its own claim, and no other, has."""
    pods = {pod["metadata"]["name"]: pod for pod in await pier.quay.pods() if pod["metadata"]["name"][0] == gang[0]}
    held = given(await pier.claims())
    assert len(set(held)) == len(held) == SIZE
    for name, pod in pods.items():
        (claim,) = [one for one in await pier.claims() if name in reservers_of(one)]
        assert given([claim])[0][0] == node_of(pod)
        assert gates_of(pod) == []
    assert len(pods) == SIZE


async def nothing_is_held(pier: Pier) -> None:
    await eventually(pier.claims, lambda found: not given(found), within_s=40.0, what="all devices are free")
    pods = await pier.quay.pods()
    assert not any(note(pod, labels.SEAT) or node_of(pod) for pod in pods)


async def test_a_gang_gets_the_devices_of_its_templates_as_a_whole(pier: Pier) -> None:
    await pier.add_template("each", [request("gpu", pier.device_class)])
    for i in range(SIZE - 1):
        await add_member(pier, i, template="each")
    for i in range(SIZE - 1):
        await pier.quay.says(f"g{i}", "GangIncomplete")
    assert given(await pier.claims()) == []
    await add_member(pier, SIZE - 1, template="each")
    await pier.quay.all_bound(SIZE)
    await stands(pier)
    managers = {
        entry["manager"]
        for claim in await pier.claims()
        for entry in claim["metadata"]["managedFields"]
        if "f:status" in entry["fieldsV1"]
    }
    assert managers == {"berthmaster"}


async def test_a_gang_with_more_claims_than_devices_holds_none_and_goes_when_there_are_more(pier: Pier) -> None:
    await pier.add_template("each", [request("gpu", pier.device_class)])
    await pier.add_claim("theirs", [request("gpu", pier.device_class)])
    await pier.add_pod("single", claim="theirs")
    await pier.quay.bound("single")
    for i in range(SIZE):
        await add_member(pier, i, template="each")
    text = await pier.quay.says("g0", "GangDoesNotFit")
    assert text.startswith("3 of 4 members fit at once")
    assert len(given(await pier.claims())) == 1
    await pier.quay.delete_pod("single")
    await pier.quay.all_bound(SIZE)
    await eventually(pier.claims, lambda found: len(given(found)) == SIZE, what="the claim of its own is free")
    await stands(pier)


async def test_members_share_a_claim_with_each_other_and_with_a_pod_outside(pier: Pier) -> None:
    await pier.add_template("each", [request("gpu", pier.device_class)])
    await pier.add_claim("common", [request("gpu", pier.device_class)])
    await pier.add_pod("outside", claim="common")
    home = node_of(await pier.quay.bound("outside"))
    for i in range(2):
        await add_member(pier, i, claim="common")
    for i in range(2, SIZE):
        await add_member(pier, i, template="each")
    await pier.quay.all_bound(SIZE + 1)
    assert {node_of(await pier.quay.pod(f"g{i}")) for i in range(2)} == {home}
    assert sorted(reservers_of(await pier.claim("common"))) == ["g0", "g1", "outside"]
    held = given(await pier.claims())
    assert len(set(held)) == len(held) == 3


async def test_a_leader_killed_half_way_leaves_a_gang_that_the_next_one_finishes(cluster: Cluster, pier: Pier) -> None:
    await pier.add_template("each", [request("gpu", pier.device_class)])
    for gang in ("g", "h"):
        for i in range(SIZE):
            await add_member(pier, i, gang, template="each")
        await eventually(pier.claims, given, within_s=30.0, every_s=0.01, what="a device is given")
        cluster.kill("planner")
        cluster.start("planner")
        await pier.quay.all_bound(SIZE, within_s=60.0)
        await stands(pier, gang)
        for i in range(SIZE):
            await pier.quay.delete_pod(f"{gang}{i}")
        await eventually(pier.claims, lambda found: not found, within_s=30.0, what="the gang and its claims are gone")


async def test_what_a_dead_leader_had_given_to_half_a_gang_is_taken_back_once_a_claim_is_gone(
    cluster: Cluster, pier: Pier
) -> None:
    """As a leader leaves it that dies between two allocations, after which somebody deletes a claim."""
    first, _ = (f"{pier.quay.namespace}-{i:04}" for i in range(2))
    await asyncio.to_thread(cluster.kill, "planner")
    try:
        for i in range(SIZE):
            await pier.add_claim(f"c{i}", [request("gpu", pier.device_class)])
            await add_member(pier, i, claim=f"c{i}")
        for i in range(2):
            await give(pier, f"c{i}", first, f"d{i}", f"g{i}")
        for name in ("c1", "c3"):  # one with devices, and one without
            await pier.quay.client.delete(claim_path(pier, name))
        assert (await pier.claim("c1"))["metadata"]["deletionTimestamp"]
        assert await pier.claim("c3") == {}
    finally:
        await asyncio.to_thread(cluster.start, "planner")
    await pier.quay.says("g0", "ClaimPending", within_s=60.0)
    await nothing_is_held(pier)
    await eventually(lambda: pier.claim("c1"), lambda found: not found, within_s=40.0, what="c1 is gone at last")
    for name in ("c1", "c3"):
        await pier.add_claim(name, [request("gpu", pier.device_class)])
    await pier.quay.all_bound(SIZE, within_s=40.0)
    await stands(pier)


async def test_what_a_dead_leader_had_given_to_half_a_gang_is_used_by_the_next_one(
    cluster: Cluster, pier: Pier
) -> None:
    _, second = (f"{pier.quay.namespace}-{i:04}" for i in range(2))
    await asyncio.to_thread(cluster.kill, "planner")
    try:
        for i in range(SIZE):
            await pier.add_claim(f"c{i}", [request("gpu", pier.device_class)])
            await add_member(pier, i, claim=f"c{i}")
        await give(pier, "c2", second, "d1", "g2")
    finally:
        await asyncio.to_thread(cluster.start, "planner")
    await pier.quay.all_bound(SIZE, within_s=60.0)
    await stands(pier)
    assert given([await pier.claim("c2")]) == [(second, "d1")]


async def test_a_member_that_goes_half_way_costs_the_others_what_they_were_given(cluster: Cluster, pier: Pier) -> None:
    first, _ = (f"{pier.quay.namespace}-{i:04}" for i in range(2))
    await asyncio.to_thread(cluster.kill, "planner")
    try:
        for i in range(SIZE):
            await pier.add_claim(f"c{i}", [request("gpu", pier.device_class)])
            await add_member(pier, i, claim=f"c{i}")
        for i in range(2):
            await give(pier, f"c{i}", first, f"d{i}", f"g{i}")
        await pier.quay.delete_pod("g3")
    finally:
        await asyncio.to_thread(cluster.start, "planner")
    await pier.quay.says("g0", "GangIncomplete", within_s=60.0)
    await nothing_is_held(pier)
    await pier.add_claim("single", [request("gpu", pier.device_class, count=2)])
    await pier.add_pod("single", claim="single")
    await pier.quay.bound("single")
    assert sorted(devices_of(await pier.claim("single"))) == ["d0", "d1"]


def claim_path(pier: Pier, name: str, subresource: str = "") -> str:
    return paths.custom(GROUP, "resourceclaims", namespace=pier.quay.namespace, name=name, subresource=subresource)


async def give(pier: Pier, name: str, node: str, given_device: str, pod_name: str) -> None:
    """Allocate a claim for a gated pod, as the planner does."""
    pod = await pier.quay.pod(pod_name)
    await pier.quay.patch(claim_path(pier, name), {"metadata": {"finalizers": [FINALIZER]}})
    result = {"request": "gpu", "driver": "dev.example.com", "pool": node, "device": given_device}
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [only]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": pod_name, "uid": pod["metadata"]["uid"]}],
    }
    await pier.quay.patch(claim_path(pier, name, "status"), {"status": status})
