"""What the API server makes of the scaler's manifests: refusals with reasons, defaults, and rights that suffice."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import ApiError, Conflict, Invalid
from fleet.kube import paths
from fleet.kube.client import Client
from scaler.config import parsed
from scaler.resource import spec_of
from tests.support.autoscaling import an_autoscaler
from tests.support.cluster import POLICED, StartCluster, client_of, kubectl, with_kubectl
from tests.support.rights import is_allowed

pytestmark = pytest.mark.contract

MANIFESTS = Path(__file__).parents[2] / "manifests"
WHERE = paths.autoscalers("default")
SCALER = f"system:serviceaccount:{labels.NAMESPACE}:berthmaster-scaler"
LEASES = "coordination.k8s.io"


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("scaler-manifests", POLICED)
    kubectl(cluster, "-n", "default", "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    yield cluster
    cluster.down()


@pytest.fixture
async def scaler(cluster: Cluster) -> AsyncIterator[Client]:
    async with client_of(cluster, "scaler") as client:
        yield client


async def create(client: Client, obj: dict[str, Any], *, stores: bool = False) -> dict[str, Any]:
    params = {} if stores else {"dryRun": "All"}
    created: dict[str, Any] = json.loads(
        await client.request("POST", WHERE, params=params, body=json.dumps(obj).encode())
    )
    return created


BALANCER = {"balancer": {"name": "main", "backend": "b"}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minReplicas": 50, "maxReplicas": 10}, "minReplicas is above maxReplicas: min <= max must hold"),
        ({"maxReplicas": 0}, "spec.maxReplicas"),
        ({"minReplicas": -1}, "spec.minReplicas"),
        ({"targetConcurrency": {"initial": 0}}, "spec.targetConcurrency.initial"),
        ({"targetConcurrency": {"initial": 5, "min": 6}}, "initial is below min: min <= initial <= max must hold"),
        ({"targetConcurrency": {"initial": 5, "max": 4}}, "initial is above max: min <= initial <= max must hold"),
        ({"targetConcurrency": {"initial": 5, "min": 4, "max": 3}}, "min is above max"),
        ({"targetConcurrency": {"initial": 5, "limit": 3}}, "a replica would never reach its target"),
        ({"targetConcurrency": {}}, "spec.targetConcurrency.initial: Required"),
        ({"targetConcurrency": {"initial": 1e308}}, "spec.targetConcurrency.initial"),
        ({"behavior": {"startTimeSeconds": 1e9}}, "spec.behavior.startTimeSeconds"),
        ({"behavior": {"scaleDown": {"lookBackSeconds": 1e9}}}, "spec.behavior.scaleDown.lookBackSeconds"),
        ({"targetRef": {"kind": "Deployment", "name": ".."}}, "spec.targetRef.name"),
        ({"targetRef": {"kind": "Deployment", "name": "a", "apiVersion": "../../v1"}}, "spec.targetRef.apiVersion"),
        ({"targetRef": {"kind": "Deployment", "name": "a", "apiVersion": "x.io/v1"}}, "is of apps/v1"),
        ({"signals": {}}, "one of signals.balancer and signals.prometheus.inFlight must be given"),
        ({"signals": {"prometheus": {"name": "p"}}}, "one of signals.balancer and signals.prometheus.inFlight"),
        ({"signals": {"balancer": {"name": "http://x", "backend": "b"}}}, "spec.signals.balancer.name"),
        (
            {"signals": BALANCER | {"extra": [{"name": "q", "query": "q", "target": 1}]}},
            "signals.extra is asked of signals.prometheus.name, which is not given",
        ),
        ({"slo": {"errorRatio": 1}}, "slo.errorRatio must lie between 0 and 1"),
        ({"slo": {"latencySeconds": 0}}, "slo.latencySeconds must be above 0"),
        ({"behavior": {"periodSeconds": 0}}, "behavior.periodSeconds must be at least 1"),
        ({"behavior": {"scaleUp": {"maxRatio": 0.5}}}, "behavior.scaleUp.maxRatio must be at least 1"),
        ({"behavior": {"scaleDown": {"maxRatio": 2}}}, "behavior.scaleDown.maxRatio must be above 0 and at most 1"),
        ({"behavior": {"mode": "wild"}}, 'supported values: "steady", "thrifty"'),
        ({"forecast": {"mode": "always"}}, "spec.forecast.mode"),
        ({"mode": "stop"}, 'supported values: "observe", "act"'),
    ],
)
async def test_a_contradiction_is_refused_with_its_reason(admin: Client, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        await create(admin, an_autoscaler(**spec))
    assert message in refused.value.message


async def test_what_is_left_out_is_filled_in_as_the_code_has_it(admin: Client) -> None:
    obj = an_autoscaler(targetConcurrency={"initial": 5})
    for name in ("behavior", "minReplicas"):
        del obj["spec"][name]
    filled = (await create(admin, obj))["spec"]
    assert filled["behavior"]["scaleDown"] == {"lookBackSeconds": 300, "maxRatio": 1}
    assert spec_of(filled) == spec_of(obj["spec"])


async def test_a_merge_that_contradicts_is_refused_as_a_whole(admin: Client, cluster: Cluster) -> None:
    await create(admin, an_autoscaler("merged", minReplicas=2, maxReplicas=4), stores=True)
    path = paths.autoscalers("default", "merged")
    with pytest.raises(Invalid, match="min <= max must hold"):
        await admin.merge_patch(path, b'{"spec":{"minReplicas":5}}')
    spec = json.loads(await admin.get(path))["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 4)
    kubectl(cluster, "scale", "ca/merged", "--replicas=3")
    assert json.loads(await admin.get(path))["spec"]["minReplicas"] == 3


async def test_status_and_spec_are_written_apart(admin: Client, scaler: Client) -> None:
    await create(admin, an_autoscaler("apart"), stores=True)
    path = paths.autoscalers("default", "apart")
    await scaler.merge_patch(f"{path}/status", b'{"spec":{"maxReplicas":99},"status":{"readyReplicas":3}}')
    found = json.loads(await admin.get(path))
    assert (found["spec"]["maxReplicas"], found["status"]["readyReplicas"]) == (20, 3)


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        ({"metadata": {"annotations": {labels.POD_DELETION_COST: "-1000"}}}, True),
        ({"metadata": {"annotations": {labels.POD_DELETION_COST: None}}}, True),
        ({"metadata": {"annotations": {"other": "x"}}}, False),
        ({"metadata": {"annotations": {"theirs": None}}}, False),
        ({"metadata": {"annotations": {"theirs": "changed"}}}, False),
        ({"metadata": {"labels": {"app": "other"}}}, False),
        ({"metadata": {"finalizers": ["x.example.com/y"]}}, False),
        ({"spec": {"activeDeadlineSeconds": 1}}, False),
        ({"spec": {"containers": [{"name": "main", "image": "other"}]}}, False),
    ],
)
async def test_the_scaler_may_mark_pods_and_change_nothing_else_of_them(
    admin: Client, scaler: Client, change: dict[str, Any], is_allowed: bool
) -> None:
    pod = {
        "metadata": {"name": "marked", "labels": {"app": "shop"}, "annotations": {"theirs": "x"}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "automountServiceAccountToken": False},
    }
    path = paths.pod("default", "marked")
    with suppress(Conflict):
        await admin.create(paths.pods("default"), json.dumps(pod).encode())
    body = json.dumps(change).encode()
    if is_allowed:
        await scaler.merge_patch(path, body)
        return
    with pytest.raises(ApiError, match="the scaler may change nothing of a pod but the annotation") as refused:
        await scaler.merge_patch(path, body)
    assert refused.value.status == 403
    # Nobody else is held to that.
    if "spec" not in change:
        await admin.request(
            "PATCH", path, params={"dryRun": "All"}, body=body, content_type="application/merge-patch+json"
        )


READS = ("get", "list", "watch")
SCALED = ("deployments", "statefulsets")
MAY = [
    *((verb, labels.DOMAIN, labels.AUTOSCALER_PLURAL, "", "plain") for verb in (*READS, "patch")),
    ("patch", labels.DOMAIN, f"{labels.AUTOSCALER_PLURAL}/status", "", "plain"),
    *((verb, "apps", kind, "", "plain") for verb in READS for kind in SCALED),
    *((verb, "apps", f"{kind}/scale", "", "plain") for verb in ("get", "patch") for kind in SCALED),
    *((verb, "", "pods", "", "plain") for verb in (*READS, "patch")),
    *((verb, "", "nodes", "", "") for verb in READS),
    *((verb, "autoscaling", "horizontalpodautoscalers", "", "plain") for verb in READS),
    *((verb, "events.k8s.io", "events", "", "plain") for verb in ("create", "patch")),
    ("create", LEASES, "leases", "", labels.NAMESPACE),
    *((verb, LEASES, "leases", "berthmaster-scaler", labels.NAMESPACE) for verb in ("get", "patch")),
]
MAY_NOT = [
    *((verb, "apps", "deployments", "", "plain") for verb in ("create", "update", "patch", "delete")),
    ("patch", "apps", "replicasets/scale", "", "plain"),
    *((verb, labels.DOMAIN, labels.AUTOSCALER_PLURAL, "", "plain") for verb in ("create", "update", "delete")),
    *((verb, "", "pods", "", "plain") for verb in ("create", "update", "delete")),
    ("create", "", "pods/exec", "", "plain"),
    ("get", "", "secrets", "", labels.NAMESPACE),
    ("list", "", "configmaps", "", "plain"),
    *((verb, "", "nodes", "", "") for verb in ("patch", "update", "delete")),
    ("patch", LEASES, "leases", "berthmaster-planner", labels.NAMESPACE),
    ("impersonate", "", "users", "", ""),
]


async def allowed(
    admin: Client, verb: str, group: str, kind: str, name: str, namespace: str, user: str = SCALER
) -> bool:
    return await is_allowed(admin, user, verb, group, kind, name, namespace)


async def test_rights_suffice_and_go_no_further(admin: Client) -> None:
    for right in MAY:
        assert await allowed(admin, *right), right
    for right in MAY_NOT:
        assert not await allowed(admin, *right), right


@pytest.mark.parametrize("folder", ["base", "observer"])
def test_everything_installs_and_the_pods_are_admitted(cluster: Cluster, folder: str) -> None:
    if folder == "observer":
        runtime = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "nvidia",
        }
        kubectl(cluster, "apply", "-f", "-", text=json.dumps(runtime))
    for _ in range(2):
        kubectl(cluster, "apply", "--server-side", f"--kustomize={MANIFESTS / folder}")
    if folder == "base":
        kubectl(
            cluster,
            "-n",
            labels.NAMESPACE,
            "wait",
            "--for=create",
            "pod",
            "-l=app.kubernetes.io/name=berthmaster-scaler",
            "--timeout=30s",
        )


async def test_the_example_of_a_balancer_with_its_exporter_installs_and_may_only_read(
    cluster: Cluster, admin: Client
) -> None:
    kubectl(cluster, "apply", "--server-side", f"--kustomize={MANIFESTS / 'base'}")
    for _ in range(2):
        kubectl(cluster, "apply", "--server-side", f"--kustomize={MANIFESTS / 'examples' / 'haproxy'}")
    kubectl(cluster, "-n", "edge", "wait", "--for=create", "pod/haproxy-1", "--timeout=30s")
    user = "system:serviceaccount:edge:haproxy"
    for verb in READS:
        assert await allowed(admin, verb, labels.DOMAIN, labels.AUTOSCALER_PLURAL, "", "plain", user)
    for verb, kind in (("patch", labels.AUTOSCALER_PLURAL), ("patch", f"{labels.AUTOSCALER_PLURAL}/status")):
        assert not await allowed(admin, verb, labels.DOMAIN, kind, "", "plain", user)
    assert not await allowed(admin, "get", "", "secrets", "", "edge", user)


def test_the_commands_of_the_installation_guide_run(cluster: Cluster, tmp_path: Path) -> None:
    guide = (MANIFESTS.parent / "docs/install.md").read_text()
    section = guide.partition("## The scaler\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    overlay = tmp_path / "my-cluster"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("resources: [../manifests/base]\n")
    # No pod of it can run here: nobody waits for one.
    lines = [line for block in blocks for line in block.splitlines() if "rollout status" not in line]
    with_kubectl(cluster, "\n".join(lines), folder=tmp_path)
    where = ("-n", labels.NAMESPACE, "get", "--output=json")
    deployment = json.loads(kubectl(cluster, *where, "deployment/berthmaster-scaler"))
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--history-token=/etc/berthmaster/tokens/history" in arguments
    stored = json.loads(kubectl(cluster, *where, "configmap/berthmaster-scaler-sources"))
    assert parsed(yaml.safe_load(stored["data"]["sources.yaml"])).balancers.keys() == {"edge"}
    tokens = json.loads(kubectl(cluster, *where, "secret/berthmaster-scaler-tokens"))["data"]
    assert tokens.keys() == {"edge", "history"}
