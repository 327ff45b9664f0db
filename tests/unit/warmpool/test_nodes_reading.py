"""From API objects to what is seen of a node, and the pod that pulls."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fleet import labels
from fleet.constraints import Taint
from fleet.kube.objects import ResourceSliceObject
from tests.support.warm_world import IMAGE, a_pool, proven
from warmpool.controller.slices import SliceBook
from warmpool.nodes.proof import missing_images, unproven_images
from warmpool.nodes.puller import puller_name, puller_pod
from warmpool.nodes.reading import WarmNode, WarmPod, facts_from, puller_of, users
from warmpool.nodes.seen import NodeFacts, NodeSeen, Puller
from warmpool.values import Image

POOL = a_pool()


def a_warm_node(**parts: Any) -> WarmNode:
    return msgspec.json.decode(json.dumps(parts), type=WarmNode)


def a_warm_pod(**parts: Any) -> WarmPod:
    return msgspec.json.decode(json.dumps(parts), type=WarmPod)


def test_everything_that_matters_is_read() -> None:
    node = a_warm_node(
        metadata={
            "name": "w1",
            "uid": "u",
            "labels": {labels.POOL: "g1"},
            "annotations": {
                labels.WARM: "x",
                labels.CLAIM: "c",
                labels.CLOSING: "Surplus",
                labels.SHAPE: "s",
                labels.SPARE: "true",
                labels.KEEP: "true",
                labels.DO_NOT_DISRUPT: "true",
            },
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "x"}]},
        status={
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "1"},
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": labels.WARM_CONDITION, "status": "False", "reason": "NotReady", "message": "m"},
            ],
            "images": [{"names": ["a@sha256:1", "a:1"]}, {"names": None}, {"names": ["b:2"]}],
        },
    )
    facts = facts_from(node, POOL, heartbeat="7")
    assert node.pool == "g1"
    assert facts.is_ready
    assert facts.is_unschedulable
    assert facts.is_deleting
    assert facts.taints == (Taint(key="k", effect="NoSchedule"),)
    assert facts.devices == 8
    assert facts.images == {"a@sha256:1", "a:1", "b:2"}
    assert (facts.warm, facts.claim, facts.closing, facts.shape) == ("x", "c", "Surplus", "s")
    assert (facts.is_spare, facts.is_kept, facts.is_protected) == (True, True, True)
    assert facts.condition == ("False", "NotReady", "m")
    assert facts.heartbeat == "7"


def test_a_bare_node_has_nothing_and_says_so() -> None:
    facts = facts_from(a_warm_node(metadata={"name": "w", "uid": "u"}), POOL)
    assert (facts.is_ready, facts.devices, facts.images, facts.condition) == (False, None, frozenset(), None)
    assert not facts.has_annotations


@pytest.mark.parametrize(("amount", "devices"), [("0", 0), (3, 3), ("many", None), ("1k", None)])
def test_devices_that_cannot_be_read_are_not_announced(amount: object, devices: int | None) -> None:
    node = a_warm_node(metadata={}, status={"allocatable": {"nvidia.com/gpu": amount}})
    assert facts_from(node, POOL).devices == devices


def test_a_node_with_only_the_pools_own_pods_is_empty() -> None:
    """kubernetes-sigs/cluster-proportional-autoscaler#142: placeholders kept the nodes, nodes kept the placeholders."""
    pods = [
        a_warm_pod(metadata={"uid": "puller", "labels": {labels.PULLER: "true"}}),
        a_warm_pod(metadata={"uid": "daemon", "ownerReferences": [{"kind": "DaemonSet"}]}),
        a_warm_pod(metadata={"uid": "static", "annotations": {"kubernetes.io/config.mirror": "x"}}),
        a_warm_pod(metadata={"uid": "done"}, status={"phase": "Succeeded"}),
        a_warm_pod(metadata={"uid": "dead"}, status={"phase": "Failed"}),
    ]
    assert users(pods) == ()
    going = a_warm_pod(metadata={"uid": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"})
    model = a_warm_pod(metadata={"uid": "model", "ownerReferences": [{"kind": "ReplicaSet"}]})
    assert users([*pods, model, going]) == ("going", "model")


def test_a_pod_belongs_to_the_node_it_is_bound_or_pinned_to() -> None:
    assert a_warm_pod(metadata={"annotations": {labels.PINNED: "w1"}}).node == "w1"
    assert a_warm_pod(metadata={"annotations": {labels.PINNED: "w1"}}, spec={"nodeName": "w2"}).node == "w2"
    assert a_warm_pod(metadata={}).node == ""


@pytest.mark.parametrize(
    ("status", "deleted", "puller"),
    [
        ({"phase": "Pending"}, False, Puller.PULLING),
        ({}, False, Puller.PULLING),
        ({"phase": "Running"}, False, Puller.HOLDING),
        ({"phase": "Running"}, True, Puller.ENDED),
        ({"phase": "Failed"}, False, Puller.ENDED),
        ({"phase": "Succeeded"}, False, Puller.ENDED),
        ({"phase": "Unknown"}, False, Puller.ENDED),
    ],
)
def test_how_far_the_pulling_pod_is(status: dict[str, str], deleted: bool, puller: Puller) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    assert puller_of(a_warm_pod(metadata=meta, status=status)) is puller
    assert puller_of(None) is Puller.NONE


@pytest.mark.parametrize(
    ("reference", "digest", "listed", "is_there"),
    [
        ("reg.io/rt:1", "", "reg.io/rt:1", True),
        ("reg.io/rt:1", "", "reg.io/rt:2", False),
        ("reg.io/rt", "", "reg.io/rt:latest", True),
        ("reg.io/rt:1", "sha256:a", "reg.io/rt@sha256:a", True),
        ("reg.io/rt:1", "sha256:a", "reg.io/rt:1", False),  # the tag moved
        ("localhost:5000/rt", "sha256:a", "localhost:5000/rt@sha256:a", True),
        ("reg.io/rt:1@sha256:a", "", "reg.io/rt@sha256:a", True),  # tag and digest in one
        ("reg.io/rt:1@sha256:a", "sha256:b", "reg.io/rt@sha256:b", True),
        ("localhost:5000/rt", "", "localhost:5000/rt:latest", True),
        ("nginx:1", "", "docker.io/library/nginx:1", True),
        ("library/nginx", "", "docker.io/library/nginx:latest", True),
        ("team/rt:1", "", "docker.io/team/rt:1", True),
    ],
)
def test_an_image_is_there_under_the_name_a_kubelet_lists(
    reference: str, digest: str, listed: str, is_there: bool
) -> None:
    pool = a_pool(images=(Image(reference=reference, digest=digest),))
    facts = proven("w1", pool, images=frozenset({listed}))
    assert (missing_images(facts, pool) == ()) is is_there


def test_the_puller_mounts_each_image_and_pulls_with_the_replicas_secrets() -> None:
    pool = a_pool(pull_secrets=("reg",), images=(IMAGE, Image(reference="b:2")))
    pod = puller_pod(pool, "w1", namespace="ns")
    spec = pod["spec"]
    assert [volume["image"]["reference"] for volume in spec["volumes"]] == ["reg/rt@sha256:aaa", "b:2"]
    assert len(spec["containers"][0]["volumeMounts"]) == 2
    assert spec["imagePullSecrets"] == [{"name": "reg"}]
    assert spec["nodeName"] == "w1"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert not spec["automountServiceAccountToken"]
    assert len(pod["metadata"]["name"]) <= 63


def test_where_images_are_no_volumes_init_containers_pull() -> None:
    spec = puller_pod(a_pool(), "w1", namespace="ns", has_image_volumes=False)["spec"]
    assert [container["image"] for container in spec["initContainers"]] == [IMAGE.pinned]
    assert spec["volumes"] == []


def test_models_are_fetched_before_the_pod_runs() -> None:
    pool = a_pool(models=("https://example.com/m#sha256=0",))
    spec = puller_pod(pool, "w1", namespace="ns", fetch_image="berthmaster:1")["spec"]
    (fetch,) = spec["initContainers"]
    assert fetch["command"][:3] == ["berthmaster-fetch", "file", "https://example.com/m#sha256=0"]


def test_another_set_of_images_is_another_puller() -> None:
    names = {
        puller_name(a_pool(), "w1"),
        puller_name(a_pool(), "w2"),
        puller_name(a_pool(images=()), "w1"),
        puller_name(a_pool(models=("m",)), "w1"),
    }
    assert len(names) == 4


def test_where_the_list_of_images_is_cut_off_the_mounted_image_is_the_proof() -> None:
    def facts(count: int) -> NodeFacts:
        images = [{"names": [f"large:{number}"]} for number in range(count)]
        status = {"conditions": [{"type": "Ready", "status": "True"}], "images": images}
        return facts_from(a_warm_node(metadata={"name": "w1", "uid": "u"}, status=status), POOL)

    for count, puller, missing in ((49, Puller.HOLDING, 1), (50, Puller.PULLING, 1), (50, Puller.HOLDING, 0)):
        assert len(unproven_images(NodeSeen(facts=facts(count), puller=puller), POOL)) == missing


def a_slice(name: str, driver: str = "gpu.example.com", *, count: int = 1, tainted: int = 0, gpus: int = 2) -> Any:
    taint = {"key": "sick", "effect": "NoSchedule"}
    devices = [{"name": f"{name}-{i}", "taints": [taint] if i < tainted else []} for i in range(gpus)]
    pool = {"name": "w1", "generation": 1, "resourceSliceCount": count}
    spec = {"driver": driver, "nodeName": "w1", "pool": pool, "devices": devices}
    return msgspec.json.decode(json.dumps({"metadata": {"name": name}, "spec": spec}), type=ResourceSliceObject)


def test_gpus_that_stand_in_slices_alone_prove_a_node_once_the_slices_are_complete() -> None:
    book = SliceBook()
    node = a_warm_node(metadata={"name": "w1"}, status={"allocatable": {"cpu": "1"}})
    assert book.devices("w1") is None
    assert book.set(a_slice("a", count=2)) == "w1"
    assert book.devices("w1") is None
    book.set(a_slice("b", count=2, tainted=1))
    assert book.devices("w1") == 3
    assert facts_from(node, POOL, sliced=book.devices("w1")).devices == 3
    book.remove(a_slice("a"))
    assert book.devices("w1") is None
    book.remove(a_slice("b"))
    book.set(a_slice("net", driver="nic.example.com"))
    assert book.devices("w1") is None


def test_what_a_device_plugin_announces_goes_before_slices() -> None:
    node = a_warm_node(metadata={"name": "w1"}, status={"allocatable": {"nvidia.com/gpu": "1"}})
    assert facts_from(node, POOL, sliced=8).devices == 1
