"""Resource claims beside kube-scheduler, rights, the guide and the command that shows a plan."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.pins import TOOLS
from fleet.errors import ApiError
from tests.support.cluster import add_nodes, client_of, kubectl
from tests.support.dra import (
    FINALIZER,
    Pier,
    allocation_of,
    device,
    devices_of,
    nodes_of,
    publish_alike,
    request,
)
from tests.support.eventually import eventually
from tests.support.quay import Quay, gates_of, node_of, pins

pytestmark = pytest.mark.contract

EXAMPLES = TOOLS.parent / "manifests/examples"


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


async def test_the_planner_may_add_one_finalizer_to_a_claim_and_nothing_else(
    claims_cluster: Cluster, pier: Pier
) -> None:
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    path = f"/apis/resource.k8s.io/v1/namespaces/{pier.quay.namespace}/resourceclaims/one"
    async with client_of(claims_cluster, "planner") as planner:
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


async def test_the_examples_of_the_guide_run_side_by_side(claims_cluster: Cluster, pier: Pier) -> None:
    """manifests/examples/gpus: one server by claim, one on a whole card, three on shares of a card."""
    mebi = 80 * 1024
    whole = fake_nodes.uniform(1, is_sharing=False, prefix="whole", gpus=1, gpu_memory_mib=mebi)
    shared = fake_nodes.uniform(1, is_sharing=True, prefix="shared", gpus=1, gpu_memory_mib=mebi)
    await add_nodes(claims_cluster, [*whole, *shared])
    first, second = nodes_of(pier)
    await pier.add_class("gpu.nvidia.com", ['device.driver == "gpu.nvidia.com"'])
    cards = [device(f"gpu-{i}", {"productName": "NVIDIA L40S"}, {"memory": "46068Mi"}) for i in range(2)]
    await pier.publish(first, cards, driver="gpu.nvidia.com")
    large = device("gpu-0", {"productName": "NVIDIA H100 80GB HBM3"}, {"memory": "81559Mi"})
    await pier.publish(second, [large], driver="gpu.nvidia.com")
    kubectl(claims_cluster, "apply", "--server-side", "-k", str(EXAMPLES / "gpus"))
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
        kubectl(claims_cluster, "delete", "-k", str(EXAMPLES / "gpus"), "--wait=false")
        for node in (*whole, *shared):
            await pier.quay.client.delete(f"/api/v1/nodes/{node.name}")


async def test_plan_shows_the_devices_that_gated_pods_would_get(claims_cluster: Cluster, pier: Pier) -> None:
    first, _ = nodes_of(pier)
    await pier.publish(first, [device("only")])
    await pier.add_claim("one", [request("gpu", pier.device_class)])
    await asyncio.to_thread(claims_cluster.kill, "planner")
    try:
        await pier.add_pod("gated", claim="one")
        command = [
            sys.executable,
            "-m",
            "berthmaster",
            "plan",
            "--dry-run",
            "--json",
            f"--kubeconfig={claims_cluster.kubeconfig}",
        ]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
        (placed,) = json.loads(done.stdout)["placements"]
        assert placed["node"] == first
        assert placed["claimed"] == [["dev.example.com", first, "only"]]
        assert devices_of(await pier.claim("one")) == []
    finally:
        await asyncio.to_thread(claims_cluster.start, "planner")
    await pier.quay.bound("gated", within_s=40.0)
