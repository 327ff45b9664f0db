"""A real kube-scheduler with each of our two configurations, asking our extender under its own ServiceAccount."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.clock import SystemClock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode import pod_from
from fleet.kube.patches import candidates_patch, pin_patch
from fleet.pod import Berth, Pod
from tests.support.builders import pod_object
from tests.support.cluster import StartCluster, add_nodes, client_of, kubectl

pytestmark = pytest.mark.contract

MANIFESTS = Path(__file__).parents[2] / "manifests"
CONFIGS = {"own": "base/scheduler/scheduler-config.yaml", "existing": "extender-config/scheduler-config.yaml"}
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def bare(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("extender", Options(has_planner=False, has_warmpool=False))
    yield cluster
    cluster.down()


@pytest.fixture(scope="module", params=CONFIGS)
def cluster(bare: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The same cluster, its kube-scheduler restarted with one of our configurations and fresh nodes."""
    kind = request.param
    config = yaml.safe_load((MANIFESTS / CONFIGS[kind]).read_text())
    file = bare.layout.config / "scheduler.yaml"
    config["clientConnection"] = yaml.safe_load(file.read_text())["clientConnection"]
    config["leaderElection"] = {"leaderElect": False}
    for entry in config["extenders"]:
        entry["urlPrefix"] = bare.url("extender")
    bare.stop("kube-scheduler")
    file.write_text(yaml.safe_dump(config))
    bare.start("kube-scheduler")
    kubectl(bare, "create", "namespace", kind)
    kubectl(bare, "-n", kind, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    kubectl(bare, "delete", "nodes", "--all")
    asyncio.run(add_nodes(bare, fake_nodes.uniform(3, is_sharing=True, prefix=kind, gpus=2)))
    return bare


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["cluster"])


def a_pod(name: str, *, scheduler: str = labels.SCHEDULER_NAME, **requests: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


async def create(client: Client, namespace: str, pod: dict[str, Any]) -> Pod:
    body = await client.create(f"/api/v1/namespaces/{namespace}/pods", json.dumps(pod).encode())
    return pod_from(pod_object(json.loads(body)))


async def until(client: Client, pod: Pod, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the pod's object once it is as wanted."""
    deadline_s = CLOCK.monotonic_s() + 30.0
    while True:
        obj: dict[str, Any] = json.loads(await client.get(paths.pod(pod.namespace, pod.name)))
        if is_so(obj):
            return obj
        assert CLOCK.monotonic_s() < deadline_s, obj
        await CLOCK.sleep(0.1)


def is_bound(obj: dict[str, Any]) -> bool:
    return bool(obj["spec"].get("nodeName"))


def refusal(obj: dict[str, Any]) -> str:
    conditions = obj["status"].get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


async def test_a_pinned_pod_is_bound_where_it_was_pinned(cluster: Cluster, namespace: str) -> None:
    async with client_of(cluster) as admin, client_of(cluster, "planner") as planner:
        pod = await create(admin, namespace, a_pod("pinned", **{labels.GPU: "1"}))
        berth = Berth(node=f"{namespace}-0002", devices=("1",))
        await planner.json_patch(paths.pod(namespace, pod.name), pin_patch(pod, berth))
        obj = await until(admin, pod, is_bound)
        assert obj["spec"]["nodeName"] == berth.node
        assert obj["metadata"]["annotations"][labels.DEVICES] == "1"


async def test_a_device_that_is_taken_is_vetoed_with_the_reason(cluster: Cluster, namespace: str) -> None:
    async with client_of(cluster) as admin, client_of(cluster, "planner") as planner:
        berth = Berth(node=f"{namespace}-0001", devices=("0",))
        first = await create(admin, namespace, a_pod("first", **{labels.GPU_MILLI: "600"}))
        await planner.json_patch(paths.pod(namespace, first.name), pin_patch(first, berth))
        await until(admin, first, is_bound)
        second = await create(admin, namespace, a_pod("second", **{labels.GPU_MILLI: "600"}))
        await planner.json_patch(paths.pod(namespace, second.name), pin_patch(second, berth))
        obj = await until(admin, second, lambda obj: "device 0 has 400 milli-GPU free" in refusal(obj))
        assert not is_bound(obj)
        # Room appears: the scheduler tries again by itself.
        await admin.delete(paths.pod(namespace, first.name), uid=first.uid)
        await until(admin, second, is_bound)


async def test_candidates_steer_past_the_one_that_is_taken(cluster: Cluster, namespace: str) -> None:
    async with client_of(cluster) as admin, client_of(cluster, "planner") as planner:
        taken = Berth(node=f"{namespace}-0000", devices=("0",))
        owner = await create(admin, namespace, a_pod("owner", **{labels.GPU: "1"}))
        await planner.json_patch(paths.pod(namespace, owner.name), pin_patch(owner, taken))
        await until(admin, owner, is_bound)
        pod = await create(admin, namespace, a_pod("steered", **{labels.GPU: "1"}))
        right = Berth(node=f"{namespace}-0001", devices=("1",))
        await planner.json_patch(paths.pod(namespace, pod.name), candidates_patch(pod, (taken, right)))
        obj = await until(admin, pod, is_bound)
        assert obj["spec"]["nodeName"] == right.node


async def test_devices_that_were_never_given_are_refused(cluster: Cluster, namespace: str) -> None:
    """Somebody removed the gate by hand."""
    async with client_of(cluster) as admin:
        pod = await create(admin, namespace, a_pod("unplanned", **{labels.GPU: "1"}))
        patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        await admin.json_patch(paths.pod(namespace, pod.name), json.dumps(patch).encode())
        obj = await until(admin, pod, lambda obj: "never planned" in refusal(obj))
        assert not is_bound(obj)


@pytest.mark.parametrize("cluster", ["existing"], indirect=True)
async def test_pods_of_other_profiles_are_left_alone(cluster: Cluster, namespace: str) -> None:
    async with client_of(cluster) as admin:
        pod = await create(admin, namespace, a_pod("foreign", scheduler="default-scheduler", cpu="1"))
        await until(admin, pod, is_bound)


async def test_every_call_was_answered_by_the_protocol(cluster: Cluster, namespace: str) -> None:
    log = cluster.log("kube-scheduler")
    assert "extender" not in "\n".join(line for line in log.splitlines() if line.startswith("E"))
