"""What providers write and read, without a cluster: fates, NodeClaims, Machines, buffers, nodes handed back."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest

from fleet import labels
from fleet.resources import Resources
from tests.support import json_patch
from tests.support.warm_world import a_pool
from warmpool.providers import adopt, karpenter, machinedeployment
from warmpool.providers.capacitybuffer import capacity_buffer, pod_template
from warmpool.providers.fate import Cloud, fate
from warmpool.providers.kwok_objects import Record, devices_patch, machine_of, node_object, record_object
from warmpool.providers.objects import offer_text, read_offer
from warmpool.providers.provider import MachinePhase, OrdersOnly, Refusal, machine_names
from warmpool.values import Offer, Shape

SHAPE = Shape(
    instance_type="g8",
    devices=8,
    device_model="H100",
    allocatable=Resources(milli_cpu=64_000, memory_bytes=2**39),
    labels=(("team", "ml"),),
)
SPOT = Offer(zone="z1", capacity_type="spot")
POOL = a_pool(
    shape=SHAPE,
    provider_settings={
        "nodeClassGroup": "g",
        "nodeClassKind": "K",
        "nodeClassName": "n",
        "namespace": "capi",
        "name": "md",
    },
)


def test_the_same_name_has_the_same_fate_and_another_seed_another() -> None:
    cloud = Cloud()
    assert fate(cloud, "m", Offer()) == fate(cloud, "m", Offer())
    assert fate(cloud, "m", Offer()) != fate(Cloud(seed=1), "m", Offer())


def test_fates_have_the_means_that_were_asked_for() -> None:
    cloud = Cloud(shortage_ratio=0.25, slow_pull_ratio=0.1, slow_pull_times=10.0, vanish_per_hour=1.0)
    fates = [fate(cloud, f"m{index}", Offer()) for index in range(4000)]
    assert np.mean([one.registered_s for one in fates]) == pytest.approx(284.0, rel=0.03)
    assert np.std([one.devices_s for one in fates]) == pytest.approx(0.3 * 126.0, rel=0.1)
    assert np.mean([one.pull_s for one in fates]) == pytest.approx(101.0 * 1.9, rel=0.1)
    assert np.mean([one.is_refused for one in fates]) == pytest.approx(0.25, abs=0.03)
    assert np.mean([one.vanishes_s for one in fates]) == pytest.approx(3600.0, rel=0.1)
    assert all(one.launched_s <= one.registered_s for one in fates)


def test_time_is_scaled_and_short_offers_refuse() -> None:
    slow, fast = fate(Cloud(), "m", SPOT), fate(Cloud(time_scale=100.0), "m", SPOT)
    assert fast.registered_s == pytest.approx(slow.registered_s / 100.0)
    assert not slow.is_refused
    assert fate(Cloud(short_offers=frozenset({SPOT})), "m", SPOT).is_refused
    assert slow.vanishes_s == math.inf


def test_a_cloud_that_cannot_be_is_told() -> None:
    assert Cloud().problems() == []
    wrong = Cloud(launch_s=-1.0, pull_s=math.nan, shortage_ratio=1.5, time_scale=0.0).problems()
    assert [problem.partition(":")[0] for problem in wrong] == ["launch_s", "pull_s", "shortage_ratio", "time_scale"]


def test_a_simulated_node_is_born_tainted_and_without_devices() -> None:
    node = node_object(POOL, SPOT, "g1-k-0")
    assert [taint["key"] for taint in node["spec"]["taints"]] == [labels.POOL, "readiness.k8s.io/g1"]
    assert labels.NVIDIA_GPU not in node["status"]["allocatable"]
    assert node["status"]["allocatable"]["cpu"] == "64000m"
    assert node["metadata"]["labels"][labels.POOL] == "g1"
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z1"
    assert node["metadata"]["labels"]["team"] == "ml"


def test_a_record_tells_the_machine() -> None:
    made = record_object(POOL, SPOT, "g1-k-0", "ns")
    record = msgspec.json.decode(json.dumps(made), type=Record)
    machine = machine_of(record, {})
    assert (machine.pool, machine.offer, machine.phase) == ("g1", SPOT, MachinePhase.ORDERED)
    assert machine.shape == SHAPE.fingerprint
    assert machine_of(record, {"g1-k-0": 1}).phase is MachinePhase.REGISTERED
    patch = json.loads(devices_patch(record) or b"")
    assert patch["status"]["allocatable"] == {labels.NVIDIA_GPU: "8"}
    made["data"]["refused"] = "no capacity"
    refused = machine_of(msgspec.json.decode(json.dumps(made), type=Record), {})
    assert (refused.phase, refused.refusal) == (MachinePhase.FAILED, Refusal.INSUFFICIENT_CAPACITY)


def test_a_shape_without_devices_announces_none() -> None:
    made = record_object(a_pool(shape=Shape()), Offer(), "n", "ns")
    assert devices_patch(msgspec.json.decode(json.dumps(made), type=Record)) is None


def test_the_same_key_names_the_same_machines() -> None:
    assert machine_names("g1", "k", 2) == ("g1-k-0", "g1-k-1")


async def test_whoever_takes_orders_is_told_no_number() -> None:
    with pytest.raises(TypeError, match="g1"):
        await OrdersOnly().resize(POOL, 3)


@pytest.mark.parametrize("offer", [Offer(), SPOT, Offer(zone="z")])
def test_an_offer_reads_back(offer: Offer) -> None:
    assert read_offer(offer_text(offer)) == offer


def test_a_text_that_is_no_offer_is_a_free_choice() -> None:
    assert read_offer("") == Offer()


def test_a_node_claim_asks_for_the_shape_and_never_expires() -> None:
    claim = karpenter.node_claim(POOL, SPOT, "g1-k-0")
    spec = claim["spec"]
    assert {one["key"]: one["values"] for one in spec["requirements"]} == {
        "node.kubernetes.io/instance-type": ["g8"],
        "topology.kubernetes.io/zone": ["z1"],
        "karpenter.sh/capacity-type": ["spot"],
    }
    assert spec["resources"]["requests"][labels.NVIDIA_GPU] == "8"
    assert spec["startupTaints"] == [{"key": "readiness.k8s.io/g1", "effect": "NoSchedule"}]
    assert spec["taints"] == [{"key": labels.POOL, "value": "g1", "effect": "NoSchedule"}]
    assert spec["expireAfter"] == "Never"
    assert "karpenter.sh/nodepool" not in claim["metadata"]["labels"], "no NodePool may disrupt it"


@pytest.mark.parametrize(
    ("status", "going", "phase", "refusal"),
    [
        ({}, False, MachinePhase.ORDERED, None),
        ({"conditions": [{"type": "Launched", "status": "Unknown"}]}, False, MachinePhase.ORDERED, None),
        ({"conditions": [{"type": "Launched", "status": "True"}]}, False, MachinePhase.LAUNCHED, None),
        (
            {"nodeName": "n", "conditions": [{"type": "Launched", "status": "True"}]},
            False,
            MachinePhase.REGISTERED,
            None,
        ),
        ({}, True, MachinePhase.FAILED, Refusal.INSUFFICIENT_CAPACITY),
        ({"conditions": [{"type": "Launched", "status": "True"}]}, True, MachinePhase.LAUNCHED, None),
    ],
)
def test_how_far_a_node_claim_is(status: Any, going: bool, phase: MachinePhase, refusal: Refusal | None) -> None:
    meta: dict[str, Any] = {"name": "c", "labels": {labels.POOL: "g1"}, "annotations": {labels.OFFER: "z1/spot"}}
    if going:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body = json.dumps({"metadata": meta, "status": status})
    machine = karpenter.machine_of(msgspec.json.decode(body, type=karpenter.NodeClaim))
    assert (machine.phase, machine.refusal, machine.is_deleting, machine.offer) == (phase, refusal, going, SPOT)


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({}, MachinePhase.ORDERED),
        ({"phase": "Provisioning"}, MachinePhase.ORDERED),
        ({"phase": "Provisioned"}, MachinePhase.LAUNCHED),
        ({"phase": "Running", "nodeRef": {"name": "n"}}, MachinePhase.REGISTERED),
        ({"phase": "Failed"}, MachinePhase.FAILED),
    ],
)
def test_how_far_a_cluster_api_machine_is(status: Any, phase: MachinePhase) -> None:
    body = json.dumps({"metadata": {"name": "m", "uid": "u"}, "status": status})
    machine = machinedeployment.machine_of(msgspec.json.decode(body, type=machinedeployment.CapiMachine), POOL)
    assert machine.phase is phase


def test_a_virtual_pod_fills_a_node_and_tolerates_its_taints() -> None:
    spec = pod_template(POOL)["template"]["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["requests"] == {"cpu": "64000m", "memory": str(2**39), labels.NVIDIA_GPU: "8"}
    assert container["resources"]["limits"] == {labels.NVIDIA_GPU: "8"}
    assert {one["key"] for one in spec["tolerations"]} == {labels.POOL, "readiness.k8s.io/g1"}
    assert capacity_buffer(POOL, 3)["spec"]["replicas"] == 3


def test_a_node_handed_back_keeps_nothing_of_ours() -> None:
    obj: dict[str, Any] = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "annotations": {"theirs": "x", labels.WARM: "i", labels.CLOSING: "PoolGone"},
        },
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "readiness.k8s.io/g1", "effect": "NoSchedule"},
                {"key": "theirs", "effect": "NoSchedule"},
                {"key": labels.POOL, "value": "g1", "effect": "NoSchedule"},
            ],
        },
    }
    node = msgspec.json.decode(json.dumps(obj), type=adopt._Node)
    after = json_patch.apply(obj, msgspec.json.encode(adopt.hand_back(node, POOL)))
    assert after["spec"] == {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}
    assert after["metadata"]["annotations"] == {"theirs": "x"}
