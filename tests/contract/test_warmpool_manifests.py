"""What the API server makes of the warm pool's manifests: refusals with reasons, defaults, and rights that suffice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import ApiError, Conflict, Invalid
from fleet.kube import paths
from fleet.kube.client import Client
from tests.support.cluster import POLICED, StartCluster, client_of, kubectl
from tests.support.eventually import eventually
from tests.support.rights import is_allowed
from tests.support.warming import DIGEST, a_pool, pool_path
from warmpool.controller.keeper import Keeper
from warmpool.controller.objects import ToldPoolObject
from warmpool.controller.world import Pool
from warmpool.nodes.puller import puller_pod
from warmpool.resource import spec_of

pytestmark = pytest.mark.contract

MANIFESTS = Path(__file__).parents[2] / "manifests"
CONTROLLER = f"system:serviceaccount:{labels.NAMESPACE}:berthmaster-warmpool"
LEASES = "coordination.k8s.io"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("warmpool-manifests", POLICED)
    kubectl(cluster, "-n", "default", "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    yield cluster
    cluster.down()


@pytest.fixture
async def warmpool(cluster: Cluster) -> AsyncIterator[Client]:
    async with client_of(cluster, "warmpool") as client:
        yield client


async def create(client: Client, obj: dict[str, Any], *, stores: bool = False) -> dict[str, Any]:
    params = {} if stores else {"dryRun": "All"}
    body = json.dumps(obj).encode()
    created: dict[str, Any] = json.loads(await client.request("POST", pool_path(), params=params, body=body))
    return created


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"size": {"min": 5, "max": 4}}, "size.min is above size.max: min <= max must hold"),
        ({"size": {}}, "spec.size.max: Required"),
        ({"size": {"max": 0}}, "spec.size.max"),
        ({"objective": {"static": 9}}, "objective.static lies outside size.min to size.max"),
        (
            {"objective": {"static": 2, "hitRate": 0.9}},
            "objective is one of hitRate, missCost with idleCost, and static",
        ),
        ({"objective": {"hitRate": 1}}, "objective.hitRate must be from 0.5 to 0.9999"),
        ({"objective": {"hitRate": 0.3}}, "objective.hitRate must be from 0.5 to 0.9999"),
        ({"objective": {"missCost": 3}}, "objective.missCost and idleCost are given together"),
        ({"objective": {"missCost": 0, "idleCost": 1}}, "objective.missCost and idleCost must be above 0"),
        ({"images": [{"reference": "a b"}]}, "spec.images[0].reference"),
        ({"images": [{"reference": "a", "digest": "sha256:1"}]}, "spec.images[0].digest"),
        (
            {"images": [{"reference": f"a@{DIGEST}", "digest": DIGEST}]},
            "holds a digest already: give it in digest alone",
        ),
        ({"images": [{"reference": "a"}, {"reference": "a"}]}, "Duplicate value"),
        ({"shape": {}}, "shape says nothing: give instanceType, resources or devices"),
        ({"shape": {"resources": {"cpu": "many"}}}, "spec.shape.resources"),
        ({"shape": {"instanceType": "x"}}, "provider kwok makes the node itself: give shape.resources"),
        ({"shape": {"resources": {"cpu": 1}, "devices": {"count": 0}}}, "spec.shape.devices.count"),
        ({"provider": {"kind": "cloud"}}, "spec.provider.kind"),
        ({"provider": {"kind": "karpenter"}}, "needs the settings nodeClassGroup, nodeClassKind and nodeClassName"),
        ({"provider": {"kind": "machinedeployment"}}, "needs the settings namespace and name"),
        ({"provider": {"kind": "adopt", "settings": {"selector": "a=b"}}}, "label them instead of settings.selector"),
        ({"provider": {"kind": "adopt"}, "expireAfter": "1h"}, "this provider cannot replace a node that is named"),
        ({"expireAfter": "soon"}, "spec.expireAfter"),
        ({"expireAfter": "0s"}, "must be above 0"),
        ({"warmTimeout": "0m"}, "must be above 0"),
        ({"rotation": {"surge": 0}}, "spec.rotation.surge"),
        ({"serves": {"matchLabels": {"a": "b"}}}, "serves.matchLabels without serves.namespaces names nobody"),
        ({"pull": {"namespace": "Not A Name"}}, "spec.pull.namespace"),
        ({"mode": "stop"}, 'supported values: "observe", "act"'),
    ],
)
async def test_a_contradiction_is_refused_with_its_reason(admin: Client, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        await create(admin, a_pool("refused", **spec))
    assert message in refused.value.message


async def test_a_name_that_would_not_fit_is_refused(admin: Client) -> None:
    for name in ("a" * 41, "a.b"):
        with pytest.raises(Invalid, match="stands in names of nodes, labels and taints"):
            await create(admin, a_pool(name))


async def test_what_is_left_out_is_filled_in_as_the_code_has_it(admin: Client) -> None:
    obj = a_pool("filled")
    for name in ("objective", "mode", "images"):
        del obj["spec"][name]
    filled = (await create(admin, obj))["spec"]
    assert filled["mode"] == "observe"
    assert filled["shape"]["devices"]["resource"] == labels.NVIDIA_GPU
    assert spec_of("filled", filled) == spec_of("filled", obj["spec"])


async def test_a_pool_keeps_its_provider_and_bad_edits_change_nothing(admin: Client, cluster: Cluster) -> None:
    await create(admin, a_pool("edited"), stores=True)
    for change, message in (
        ({"provider": {"kind": "adopt"}}, "make a new pool and delete this one"),
        ({"size": {"max": 1}}, "objective.static lies outside"),
    ):
        with pytest.raises(Invalid, match=message):
            await admin.merge_patch(pool_path("edited"), json.dumps({"spec": change}).encode())
    assert json.loads(await admin.get(pool_path("edited")))["spec"]["size"] == {"min": 0, "max": 6}
    shown = kubectl(cluster, "get", "wp")
    assert shown.split()[:10] == ["NAME", "WANTED", "WARM", "ORDERED", "CLAIMED", "HITS", "IDLE", "MODE", "OK", "AGE"]


async def test_status_and_finalizer_are_all_that_the_controller_may_write_of_a_pool(
    admin: Client, warmpool: Client
) -> None:
    await create(admin, a_pool("apart"), stores=True)
    body = b'{"spec":{"mode":"observe"},"status":{"warm":3}}'
    await warmpool.merge_patch(pool_path("apart", "status"), body)
    found = json.loads(await admin.get(pool_path("apart")))
    assert (found["spec"]["mode"], found["status"]["warm"]) == ("act", 3)
    keeper, pool = Keeper(warmpool, labels.PULL_NAMESPACE), pool_named("apart", found["metadata"]["uid"])
    await keeper.hold(pool)
    assert json.loads(await admin.get(pool_path("apart")))["metadata"]["finalizers"] == [labels.POOL_FINALIZER]
    await keeper.let_go(pool)
    for change in (
        {"spec": {"size": {"max": 7}}},
        {"metadata": {"finalizers": ["x.example.com/y"]}},
        {"metadata": {"labels": {"a": "b"}}},
    ):
        with pytest.raises(ApiError, match="but its status and its finalizer") as refused:
            await warmpool.merge_patch(pool_path("apart"), json.dumps(change).encode())
        assert refused.value.status == 403


def pool_named(name: str, uid: str) -> Any:
    return Pool(
        name=name,
        uid=uid,
        spec=None,
        generation=1,
        problems=(),
        is_deleting=False,
        is_kept=False,
        told=ToldPoolObject(),
    )


NODE: dict[str, Any] = {
    "metadata": {"name": "marked", "labels": {labels.POOL: "g1"}, "annotations": {"theirs": "x"}},
    "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
}
OURS = [
    {"key": "theirs", "effect": "NoSchedule"},
    {"key": labels.POOL, "value": "g1", "effect": "NoSchedule"},
    {"key": f"{labels.READINESS_PREFIX}g1", "effect": "NoSchedule"},
]


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        (
            {"metadata": {"annotations": {labels.WARM: "x", labels.CLOSING: "Surplus", labels.DO_NOT_DISRUPT: "true"}}},
            True,
        ),
        ({"spec": {"taints": OURS, "unschedulable": True}}, True),
        ({"spec": {"unschedulable": None}}, True),
        ({"metadata": {"annotations": {"theirs": None}}}, False),
        ({"metadata": {"annotations": {labels.KEEP: "true"}}}, False),
        ({"metadata": {"labels": {labels.POOL: "g2"}}}, False),
        ({"metadata": {"finalizers": ["x.example.com/y"]}}, False),
        ({"spec": {"taints": []}}, False),
        ({"spec": {"taints": [*OURS[:1], {"key": "other", "effect": "NoSchedule"}]}}, False),
        ({"spec": {"taints": [*OURS[:1], {"key": labels.POOL, "value": "g1", "effect": "NoExecute"}]}}, False),
        ({"spec": {"providerID": "kwok://x"}}, False),
        ({"status": {"conditions": [{"type": labels.WARM_CONDITION, "status": "True"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, False),
        ({"status": {"allocatable": {"cpu": "1"}}}, False),
        ({"status": {"images": [{"names": ["a"], "sizeBytes": 1}]}}, False),
    ],
)
async def test_of_a_node_of_a_pool_the_controller_may_change_its_own_marks_alone(
    admin: Client, warmpool: Client, change: dict[str, Any], is_allowed: bool
) -> None:
    with suppress(Conflict):
        await admin.create(paths.NODES, json.dumps(NODE).encode())
    path = f"{paths.node('marked')}/status" if "status" in change else paths.node("marked")
    if is_allowed and "taints" in change.get("spec", {}):
        # Kubernetes taints it too: nobody looks after this node.
        there = json.loads(await admin.get(paths.node("marked")))["spec"]["taints"]
        others = [taint for taint in there if taint["key"] not in {one["key"] for one in OURS}]
        change = {"spec": change["spec"] | {"taints": [*change["spec"]["taints"], *others]}}
    body = json.dumps(change).encode()
    if is_allowed:
        await warmpool.merge_patch(path, body, strategic="status" in change)
        return
    with pytest.raises(ApiError, match="the warm pool may change") as refused:
        await warmpool.merge_patch(path, body, strategic="status" in change)
    assert refused.value.status == 403
    # Nobody else is held to that.
    if "providerID" not in str(change):
        await admin.request("PATCH", path, params={"dryRun": "All"}, body=body, content_type=MERGE)


async def test_other_nodes_are_out_of_its_hands(admin: Client, warmpool: Client) -> None:
    with suppress(Conflict):
        await admin.create(paths.NODES, b'{"metadata":{"name":"foreign"}}')
    with pytest.raises(ApiError, match="nodes of its pools only") as refused:
        await warmpool.merge_patch(paths.node("foreign"), b'{"spec":{"unschedulable":true}}')
    assert refused.value.status == 403


def puller(**spec: Any) -> dict[str, Any]:
    pool = spec_of("g1", a_pool("g1")["spec"]).pool
    pod = puller_pod(pool, "marked", namespace=labels.PULL_NAMESPACE)
    pod["spec"] |= spec
    return pod


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, ""),
        ({"nodeName": ""}, "bound to a node"),
        ({"automountServiceAccountToken": True}, "no account's token"),
        ({"hostNetwork": True}, "forbidden|host"),
        ({"volumes": [{"name": "image-0", "secret": {"secretName": "x"}}]}, "mounts images"),
        ({"volumes": [{"name": "image-0", "hostPath": {"path": "/"}}]}, "forbidden|mounts images"),
    ],
)
async def test_the_pods_it_may_make_pull_images_and_do_nothing_else(
    admin: Client, warmpool: Client, spec: dict[str, Any], message: str
) -> None:
    with suppress(Conflict):
        await admin.create(paths.NODES, json.dumps(NODE).encode())
    path, body = paths.pods(labels.PULL_NAMESPACE), json.dumps(puller(**spec)).encode()
    if not message:
        # As it is made, it is admitted where pods are held to the strictest standard.
        await warmpool.request("POST", path, params={"dryRun": "All"}, body=body)
        return
    with pytest.raises(ApiError, match=message) as refused:
        await warmpool.request("POST", path, params={"dryRun": "All"}, body=body)
    assert refused.value.status == 403


async def test_it_makes_and_deletes_nobody_elses_pods(admin: Client, warmpool: Client) -> None:
    pod = puller()
    pod["metadata"] = {"name": "theirs", "namespace": labels.PULL_NAMESPACE}
    path = paths.pods(labels.PULL_NAMESPACE)
    with pytest.raises(ApiError, match="only pods that pull images"):
        await warmpool.create(path, json.dumps(pod).encode())
    await admin.create(path, json.dumps(pod).encode())
    with pytest.raises(ApiError, match="only pods that pull images"):
        await warmpool.delete(paths.pod(labels.PULL_NAMESPACE, "theirs"))


async def test_only_the_planner_says_how_a_draw_ended(admin: Client, warmpool: Client, cluster: Cluster) -> None:
    note = {labels.DRAW: '{"pool":"g1","outcome":"miss","why":"NoNodes"}'}
    pod = {
        "metadata": {"name": "drawn", "annotations": note},
        "spec": {"containers": [{"name": "main", "image": "none"}], "automountServiceAccountToken": False},
    }
    with pytest.raises(ApiError, match="only the planner"):
        await admin.create(paths.pods("default"), json.dumps(pod).encode())
    pod["metadata"]["annotations"] = {}
    await admin.create(paths.pods("default"), json.dumps(pod).encode())
    body = json.dumps({"metadata": {"annotations": note}}).encode()
    with pytest.raises(ApiError, match="only the planner"):
        await admin.merge_patch(paths.pod("default", "drawn"), body)
    async with client_of(cluster, "planner") as planner:
        await planner.merge_patch(paths.pod("default", "drawn"), body)


READS = ("get", "list", "watch")
MAY = [
    *((verb, labels.DOMAIN, labels.POOL_PLURAL, "", "") for verb in (*READS, "patch")),
    ("patch", labels.DOMAIN, f"{labels.POOL_PLURAL}/status", "", ""),
    *((verb, labels.DOMAIN, labels.AUTOSCALER_PLURAL, "", "plain") for verb in READS),
    *((verb, "", "nodes", "", "") for verb in (*READS, "patch")),
    ("patch", "", "nodes/status", "", ""),
    *((verb, "", "pods", "", "plain") for verb in READS),
    ("create", "", "pods/eviction", "", "plain"),
    *((verb, "", "pods", "", labels.PULL_NAMESPACE) for verb in ("create", "delete")),
    *((verb, "", "configmaps", "", labels.PULL_NAMESPACE) for verb in ("get", "create", "patch")),
    *((verb, "apps", "daemonsets", "", "plain") for verb in READS),
    *((verb, "events.k8s.io", "events", "", "plain") for verb in ("create", "patch")),
    ("list", LEASES, "leases", "", "kube-node-lease"),
    ("create", LEASES, "leases", "", labels.NAMESPACE),
    *((verb, LEASES, "leases", "berthmaster-warmpool", labels.NAMESPACE) for verb in ("get", "patch")),
]
MAY_NOT = [
    *((verb, labels.DOMAIN, labels.POOL_PLURAL, "", "") for verb in ("create", "update", "delete")),
    *((verb, "", "pods", "", "plain") for verb in ("create", "update", "patch", "delete")),
    *((verb, "", "pods", "", labels.NAMESPACE) for verb in ("create", "delete")),
    ("create", "", "pods/exec", "", "plain"),
    *((verb, "", "secrets", "", labels.PULL_NAMESPACE) for verb in READS),
    *((verb, "", "configmaps", "", labels.NAMESPACE) for verb in ("get", "patch")),
    ("update", "", "nodes", "", ""),
    ("create", "karpenter.sh", "nodeclaims", "", ""),
    ("patch", "cluster.x-k8s.io", "machinedeployments", "", "plain"),
    ("patch", LEASES, "leases", "berthmaster-scaler", labels.NAMESPACE),
    ("patch", LEASES, "leases", "", "kube-node-lease"),
    ("impersonate", "", "users", "", ""),
]


async def allowed(admin: Client, verb: str, group: str, kind: str, name: str, namespace: str) -> bool:
    return await is_allowed(admin, CONTROLLER, verb, group, kind, name, namespace)


async def test_rights_suffice_and_go_no_further(admin: Client) -> None:
    for right in MAY:
        assert await allowed(admin, *right), right
    for right in MAY_NOT:
        assert not await allowed(admin, *right), right


async def test_a_provider_is_a_right_of_its_own(admin: Client, cluster: Cluster) -> None:
    right = ("create", "karpenter.sh", "nodeclaims", "", "")
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "providers/karpenter.yaml"))
    await eventually(lambda: allowed(admin, *right), what="the right is aggregated")
    kubectl(cluster, "delete", "-f", str(MANIFESTS / "providers/karpenter.yaml"))
