"""Pods with volume claims on the real control plane: pinned where their volumes are, waiting while nobody can tell."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from tests.support.cluster import add_nodes, client_of
from tests.support.company import ZONE
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, gates_of, node_of, pins

pytestmark = pytest.mark.contract

NODES = {"volumes-0000": "va", "volumes-0001": "vb"}
CLASSES = {"wait-vb": ("WaitForFirstConsumer", ["vb"]), "at-once": ("Immediate", [])}


@pytest.fixture(scope="module")
def zoned(harbour: Cluster) -> Cluster:
    """Two nodes in zones of their own, and two storage classes."""
    nodes = fake_nodes.uniform(2, is_sharing=False, prefix="volumes", gpus=0, milli_cpu=8000)
    asyncio.run(add_nodes(harbour, [replace(n, labels={POOL: "volumes", ZONE: NODES[n.name]}) for n in nodes]))

    async def classes() -> None:
        async with client_of(harbour) as client:
            quay = Quay(client, "none", "volumes")
            for name, (mode, zones) in CLASSES.items():
                allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}] if zones else None
                await quay.create(
                    "/apis/storage.k8s.io/v1/storageclasses",
                    {
                        "metadata": {"name": name},
                        "provisioner": "tests.berthmaster.dev/none",
                        "volumeBindingMode": mode,
                        "allowedTopologies": allowed,
                    },
                )

    asyncio.run(classes())
    return harbour


@pytest.fixture
async def shore(zoned: Cluster, quay: Quay) -> Quay:
    quay.pool = "volumes"
    return quay


async def add_claim(quay: Quay, name: str, **spec: Any) -> None:
    await quay.create(
        f"/api/v1/namespaces/{quay.namespace}/persistentvolumeclaims",
        {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                **spec,
            },
        },
    )


async def add_volume(quay: Quay, zone: str) -> str:
    """Create a volume that nodes of one zone reach, for the claim `data` of the namespace; the controller binds it."""
    name = f"pv-{quay.namespace}"
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    await quay.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": "tests.berthmaster.dev", "volumeHandle": name},
                "claimRef": {"namespace": quay.namespace, "name": "data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    return name


def mounts(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


@pytest.mark.parametrize("node", NODES)
async def test_a_pod_goes_where_its_bound_volume_is(shore: Quay, node: str) -> None:
    await add_volume(shore, NODES[node])
    await add_claim(shore, "data", storageClassName="", volumeName=f"pv-{shore.namespace}")
    await shore.add_pod("p", {"cpu": "100m"}, **mounts("data"))
    pod = await shore.bound("p")
    assert node_of(pod) == node
    assert pins(pod) == [[node]]
    await shore.client.delete(f"/api/v1/persistentvolumes/pv-{shore.namespace}")


async def test_a_pod_waits_for_a_claim_that_does_not_exist_and_goes_on_when_it_is_bound(shore: Quay) -> None:
    await shore.add_pod("p", {"cpu": "100m"}, **mounts("data"))
    assert "claim data does not exist" in await shore.says("p", "VolumeNotReady")
    await add_claim(shore, "data", storageClassName="", volumeName=f"pv-{shore.namespace}")

    async def what_it_says() -> str:
        return await shore.says("p", "VolumeNotReady")

    await eventually(what_it_says, lambda text: "not bound" in text, within_s=60.0, what="the claim is there, unbound")
    assert gates_of(await shore.pod("p"))
    await add_volume(shore, "vb")
    pod = await shore.bound("p", within_s=40.0)
    assert pins(pod) == [["volumes-0001"]]
    await shore.client.delete(f"/api/v1/persistentvolumes/pv-{shore.namespace}")


async def test_a_volume_that_is_made_for_the_pod_is_made_where_the_class_allows(shore: Quay) -> None:
    await add_claim(shore, "data", storageClassName="wait-vb")
    await shore.add_pod("p", {"cpu": "100m"}, **mounts("data"))
    pod = await eventually(lambda: shore.pod("p"), pins, what="the pod is pinned")
    assert pins(pod) == [["volumes-0001"]]

    async def claim() -> dict[str, Any]:
        path = f"/api/v1/namespaces/{shore.namespace}/persistentvolumeclaims/data"
        found: dict[str, Any] = msgspec.json.decode(await shore.client.get(path))
        return found

    found = await eventually(
        claim,
        lambda obj: obj["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node"),
        what="kube-scheduler has asked for the volume",
    )
    assert found["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "volumes-0001"


async def test_a_claim_of_a_class_that_binds_at_once_is_waited_for(shore: Quay) -> None:
    await add_claim(shore, "data", storageClassName="at-once")
    await shore.add_pod("p", {"cpu": "100m"}, **mounts("data"))
    assert "claim data is not bound yet" in await shore.says("p", "VolumeNotReady")
