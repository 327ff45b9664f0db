"""The manifests on a real API server: they apply, gate whom they should, guard records, and grant what is needed."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError, Invalid
from fleet.kube import paths
from fleet.kube.client import Client
from tests.support.cluster import POLICED, StartCluster, client_of, kubectl
from tests.support.rights import is_allowed

pytestmark = pytest.mark.contract

MANIFESTS = Path(__file__).parents[2] / "manifests"
PLANNER, EXTENDER, SCHEDULER = (
    f"system:serviceaccount:{labels.NAMESPACE}:berthmaster-{name}" for name in ("planner", "extender", "scheduler")
)
GATE = {"name": labels.PLAN_GATE}
DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("manifests", POLICED)
    for name in ("plain", "managed", "declined"):
        kubectl(cluster, "create", "namespace", name)
    kubectl(cluster, "label", "namespace", "managed", f"{labels.MANAGED_LABEL}=true")
    kubectl(cluster, "label", "namespace", "declined", f"{labels.MANAGED_LABEL}=false")
    for name in ("plain", "managed", "declined", "kube-system", labels.NAMESPACE):
        kubectl(cluster, "-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    yield cluster
    cluster.down()


@pytest.fixture
async def planner(cluster: Cluster) -> AsyncIterator[Client]:
    async with client_of(cluster, "planner") as client:
        yield client


def a_pod(name: str = "p", annotations: dict[str, str] | None = None, owner: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": annotations or {},
            "ownerReferences": [owner] if owner else [],
        },
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            **spec,
        },
    }


async def create(client: Client, namespace: str, pod: dict[str, Any], *, stores: bool = False) -> dict[str, Any]:
    answer = await client.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        params={} if stores else {"dryRun": "All"},
        body=json.dumps(pod).encode(),
    )
    created: dict[str, Any] = json.loads(answer)
    return created


@pytest.mark.parametrize("folder", ["overlays/kwok", "base", "overlays/before-1.36", "extender-config"])
def test_every_folder_applies_twice(cluster: Cluster, folder: str) -> None:
    for _ in range(2):
        kubectl(cluster, "apply", "--server-side", f"--kustomize={MANIFESTS / folder}")


def test_the_examples_of_the_installation_guide_are_accepted(cluster: Cluster) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (MANIFESTS.parent / "docs/install.md").read_text(), re.DOTALL)
    examples = [block for block in blocks if "kind:" in block]  # the others are values of Helm charts
    assert len(examples) >= 2
    for example in examples:
        kubectl(cluster, "-n", "managed", "create", "--dry-run=server", "-f", "-", text=example)


def test_older_clusters_get_everything_but_the_gating(cluster: Cluster) -> None:
    kinds = {
        folder: set(re.findall(r"^kind: (\w+)", kubectl(cluster, "kustomize", str(MANIFESTS / folder)), re.MULTILINE))
        for folder in ("base", "overlays/before-1.36")
    }
    gating = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert kinds["overlays/before-1.36"] == kinds["base"] - gating


def test_our_own_pods_are_admitted_and_not_gated(cluster: Cluster) -> None:
    """The namespace enforces the restricted pod security standard, and nobody may wait for himself."""
    kubectl(cluster, "apply", "--server-side", f"--kustomize={MANIFESTS / 'base'}")
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + 60.0
    while True:
        pods = json.loads(kubectl(cluster, "-n", labels.NAMESPACE, "get", "pods", "-o", "json"))["items"]
        names = {pod["metadata"]["name"].rsplit("-", 2)[0] for pod in pods}
        if names >= {"berthmaster-planner", "berthmaster-scheduler"}:
            break
        assert clock.monotonic_s() < deadline_s, kubectl(cluster, "-n", labels.NAMESPACE, "get", "events")
        clock.sleep_blocking(0.2)
    assert not any(pod["spec"].get("schedulingGates") for pod in pods)


@pytest.mark.parametrize(
    ("namespace", "pod", "scheduler", "gates"),
    [
        ("plain", a_pod(schedulerName="berthmaster"), "berthmaster", [GATE]),
        ("plain", a_pod(), "default-scheduler", None),
        ("plain", a_pod(schedulerName="other"), "other", None),
        ("managed", a_pod(), "berthmaster", [GATE]),
        ("managed", a_pod(schedulerName="berthmaster"), "berthmaster", [GATE]),
        ("managed", a_pod(schedulerName="other"), "other", None),
        ("declined", a_pod(schedulerName="berthmaster"), "berthmaster", [GATE]),
        ("declined", a_pod(), "default-scheduler", None),
        # Nobody's gate is lost, and ours is never there twice.
        ("plain", a_pod(schedulerName="berthmaster", schedulingGates=[GATE]), "berthmaster", [GATE]),
        ("managed", a_pod(schedulerName="berthmaster", schedulingGates=[GATE]), "berthmaster", [GATE]),
        ("managed", a_pod(schedulingGates=[GATE]), "berthmaster", [GATE]),
        ("managed", a_pod(schedulingGates=[GATE, {"name": "x"}]), "berthmaster", [GATE, {"name": "x"}]),
        ("managed", a_pod(schedulingGates=[{"name": "x"}]), "berthmaster", [{"name": "x"}, GATE]),
        # Pods with a node, DaemonSets' pods, and what the gate's removal depends on.
        ("managed", a_pod(nodeName="n"), "default-scheduler", None),
        ("managed", a_pod(schedulerName="berthmaster", nodeName="n"), "berthmaster", None),
        ("plain", a_pod(schedulerName="berthmaster", nodeName="n"), "berthmaster", None),
        ("managed", a_pod(owner=DAEMONSET), "default-scheduler", None),
        ("plain", a_pod(owner=DAEMONSET, schedulerName="berthmaster"), "berthmaster", None),
        ("managed", a_pod(owner=DAEMONSET | {"kind": "ReplicaSet"}), "berthmaster", [GATE]),
        ("kube-system", a_pod(schedulerName="berthmaster"), "berthmaster", None),
    ],
)
async def test_gating(admin: Client, namespace: str, pod: dict[str, Any], scheduler: str, gates: Any) -> None:
    spec = (await create(admin, namespace, pod))["spec"]
    assert (spec["schedulerName"], spec.get("schedulingGates")) == (scheduler, gates)


async def test_our_namespace_is_never_gated_even_when_labelled(cluster: Cluster, admin: Client) -> None:
    kubectl(cluster, "label", "namespace", labels.NAMESPACE, f"{labels.MANAGED_LABEL}=true", "--overwrite")
    restricted = {
        "runAsNonRoot": True,
        "runAsUser": 1,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "main", "image": "none", "securityContext": restricted}
    spec = (await create(admin, labels.NAMESPACE, a_pod(containers=[container])))["spec"]
    assert (spec["schedulerName"], spec.get("schedulingGates")) == ("default-scheduler", None)


RECORDS = [
    labels.DEVICES,
    labels.CANDIDATES,
    labels.PINNED,
    labels.SEAT,
    labels.MOVING_TO,
    labels.MOVING_BY,
    labels.MOVED_FROM,
    labels.DRAW,
]


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("value", ["0", ""])
async def test_nobody_brings_a_record_along(admin: Client, name: str, value: str) -> None:
    with pytest.raises(ApiError, match=f"only the planner.*{PLANNER}") as refused:
        await create(admin, "plain", a_pod(annotations={name: value}))
    assert refused.value.status == 403


async def test_only_the_planner_writes_records(admin: Client, planner: Client) -> None:
    await create(admin, "plain", a_pod("guarded", schedulerName="berthmaster"), stores=True)
    path = paths.pod("plain", "guarded")
    status = paths.pod("plain", "guarded", "status")

    def note(value: str | None, **others: str) -> bytes:
        return json.dumps({"metadata": {"annotations": {labels.DEVICES: value, **others}}}).encode()

    with pytest.raises(ApiError, match="only the planner"):
        await admin.merge_patch(path, note("0"))
    for name in RECORDS:
        with pytest.raises(ApiError, match="only the planner"):
            await admin.merge_patch(path, json.dumps({"metadata": {"annotations": {name: "n1"}}}).encode())
    await planner.merge_patch(path, note("0"))
    for where in (path, status):
        with pytest.raises(ApiError, match="only the planner"):
            await admin.merge_patch(where, note("1"))
        with pytest.raises(ApiError, match="only the planner"):
            await admin.merge_patch(where, note(None))
    # What does not touch the record is nobody's business.
    await admin.merge_patch(path, note("0", other="x"))
    await admin.merge_patch(status, json.dumps({"status": {"message": "hello"}}).encode())
    await planner.merge_patch(path, note("1"))
    await planner.merge_patch(path, note(None))
    await planner.json_patch(path, json.dumps([{"op": "remove", "path": "/spec/schedulingGates/0"}]).encode())


@pytest.mark.parametrize("path", ["pods/{}/binding", "bindings"])
async def test_a_binding_brings_no_record_along(admin: Client, path: str) -> None:
    name = f"bound-{len(path)}"
    await create(admin, "plain", a_pod(name, schedulerName="other"), stores=True)
    binding: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {labels.DEVICES: "7"}},
        "target": {"kind": "Node", "name": "n"},
    }
    url = f"/api/v1/namespaces/plain/{path.format(name)}"
    with pytest.raises(ApiError, match="only the planner"):
        await admin.create(url, json.dumps(binding).encode())
    binding["metadata"]["annotations"] = {"other": "x"}
    await admin.create(url, json.dumps(binding).encode())
    bound = json.loads(await admin.get(paths.pod("plain", name)))
    assert bound["spec"]["nodeName"] == "n"
    assert labels.DEVICES not in bound["metadata"]["annotations"]


READS = [(verb, group, kind) for group, kind in (("", "pods"), ("", "nodes")) for verb in ("get", "list", "watch")] + [
    (verb, "resource.k8s.io", "resourceslices") for verb in ("get", "list", "watch")
]
LEASES = "coordination.k8s.io"
MAY = {
    PLANNER: [
        *((*read, "") for read in READS if read != ("get", "resource.k8s.io", "resourceslices")),
        ("patch", "", "pods", ""),
        ("delete", "", "pods", ""),
        ("patch", "", "pods/status", ""),
        ("create", "events.k8s.io", "events", ""),
        ("patch", "events.k8s.io", "events", ""),
        ("patch", "", "nodes", ""),  # the claim on a warm node; a policy holds it to that annotation
        ("watch", "berthmaster.dev", "warmpools", ""),
        ("create", LEASES, "leases", ""),
        ("get", LEASES, "leases", "berthmaster-planner"),
        ("patch", LEASES, "leases", "berthmaster-planner"),
    ],
    EXTENDER: [(*read, "") for read in READS],
    SCHEDULER: [
        *((*read, "") for read in READS),
        ("create", "", "pods/binding", ""),
        ("patch", "", "pods/status", ""),
        ("list", "", "persistentvolumes", ""),
        ("list", "storage.k8s.io", "storageclasses", ""),
        ("create", LEASES, "leases", ""),
        ("get", LEASES, "leases", "berthmaster-scheduler"),
        ("update", LEASES, "leases", "berthmaster-scheduler"),
    ],
}
WRITES = [(verb, "", "pods", "") for verb in ("create", "update", "patch", "delete")]
CLUSTER_WIDE = ("nodes", "resourceslices", "warmpools")
MAY_NOT = {
    PLANNER: [
        ("create", "", "pods", ""),
        ("update", "", "pods", ""),
        ("deletecollection", "", "pods", ""),
        ("create", "", "pods/binding", ""),
        ("create", "", "pods/exec", ""),
        ("update", "", "nodes", ""),
        ("delete", "", "nodes", ""),
        ("patch", "", "nodes/status", ""),
        ("patch", "berthmaster.dev", "warmpools", ""),
        ("get", "berthmaster.dev", "warmpools", ""),
        ("get", "resource.k8s.io", "resourceslices", ""),
        ("create", "resource.k8s.io", "resourceclaims", ""),
        ("delete", "resource.k8s.io", "resourceclaims", ""),
        ("patch", "scheduling.k8s.io", "podgroups", ""),
        ("patch", "policy", "poddisruptionbudgets", ""),
        ("get", "", "secrets", ""),
        ("list", "", "configmaps", ""),
        ("patch", LEASES, "leases", "berthmaster-scheduler"),
        ("delete", LEASES, "leases", "berthmaster-planner"),
        ("impersonate", "", "users", ""),
    ],
    EXTENDER: [
        *WRITES,
        ("patch", "", "pods/status", ""),
        ("create", "", "pods/binding", ""),
        ("get", "", "secrets", ""),
    ],
    SCHEDULER: [("create", "", "pods", ""), ("patch", "", "pods", ""), ("get", "", "secrets", "")],
}


@pytest.mark.parametrize("user", [PLANNER, EXTENDER, SCHEDULER])
async def test_rights_suffice_and_go_no_further(cluster: Cluster, admin: Client, user: str) -> None:
    kubectl(cluster, "apply", "--server-side", f"--kustomize={MANIFESTS / 'base'}")
    for verb, group, kind, name in MAY[user]:
        namespace = labels.NAMESPACE if kind == "leases" else ("" if kind in CLUSTER_WIDE else "plain")
        assert await is_allowed(admin, user, verb, group, kind, name, namespace), (verb, kind)
    for verb, group, kind, name in MAY_NOT[user]:
        namespace = labels.NAMESPACE if kind == "leases" else "plain"
        assert not await is_allowed(admin, user, verb, group, kind, name, namespace), (verb, kind)
    assert not await is_allowed(admin, user, "create", LEASES, "leases", "", "kube-system") or user == SCHEDULER


async def test_a_gate_and_a_node_are_refused_by_the_api(admin: Client) -> None:
    """Why pods with a node are spared: gating them would fail their creation."""
    with pytest.raises(Invalid):
        await create(admin, "plain", a_pod(nodeName="n", schedulingGates=[GATE]))
