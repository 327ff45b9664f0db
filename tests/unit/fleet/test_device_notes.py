"""What annotations of nodes and pods say of MIG, islands and models with counts."""

from __future__ import annotations

from typing import Any

import pytest

from fleet import labels
from fleet.berths import format_devices, locate, parse_devices, parse_partition, partition_name
from fleet.device import Alternative, AskKind, Partition
from fleet.errors import DecodeError
from fleet.kube.decode import node_from, pod_from
from fleet.node import Node
from fleet.pod import Pod
from tests.support.builders import node_json, node_object, pod_json, pod_object

GPU = {labels.GPU: "1"}


def a_read_node(annotations: dict[str, str], *, is_sharing: bool = True) -> Node:
    sharing = {labels.DEVICE_SHARING: "true"} if is_sharing else {}
    return node_from(node_object(node_json(gpus=4, labels=sharing, annotations=annotations)), ())


def a_read_pod(requests: dict[str, Any], annotations: dict[str, str]) -> Pod:
    return pod_from(pod_object(pod_json(requests=requests, annotations=annotations)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [(), (), (), ()]),
        ("1", [None, (), None, None]),
        (" 1 ; 3 ", [None, (), None, ()]),
        ("0=3g.40gb@4,3g.40gb@0", [(Partition("3g.40gb", 0), Partition("3g.40gb", 4)), None, None, None]),
        ("all;2=1g.10gb+me@6", [(), (), (Partition("1g.10gb+me", 6),), ()]),
        ("9", [None, None, None, None]),
        ("", [None, None, None, None]),
    ],
)
def test_devices_in_mig_mode(text: str, expected: list[tuple[Partition, ...] | None]) -> None:
    node = a_read_node({labels.MIG_DEVICES: text})
    assert not node.device_problems
    assert [device.partitions for device in node.devices] == expected


@pytest.mark.parametrize("text", ["0,1", "0;0", "0=", "0=2g@0", "0=2g.20gb", "0=1g.5gb@0,1g.5gb@0", ";", "=1g.5gb@0"])
def test_what_cannot_be_read_closes_the_node(text: str) -> None:
    """`0,1` among it: a comma parts instances, and nobody should think that both devices were named."""
    (problem,) = a_read_node({labels.MIG_DEVICES: text}).device_problems
    assert labels.MIG_DEVICES in problem


def test_islands_are_numbered_and_belong_to_sharing_nodes_alone() -> None:
    node = a_read_node({labels.ISLANDS: "0,2; 3,7"})
    assert [device.island for device in node.devices] == [1, 0, 1, 2]
    classic = a_read_node({labels.ISLANDS: "0,2", labels.MIG_DEVICES: "all"}, is_sharing=False)
    assert [(device.island, device.partitions) for device in classic.devices] == [(0, None)] * 4


@pytest.mark.parametrize("text", ["0,0", "0,1;1", "0,,1", ";", "0," * 9000])
def test_a_device_of_two_islands_is_told(text: str) -> None:
    (problem,) = a_read_node({labels.ISLANDS: text}).device_problems
    assert labels.ISLANDS in problem


def test_a_pod_asks_for_an_instance() -> None:
    pod = a_read_pod(GPU, {labels.MIG_PROFILE: "3g.40gb", labels.GPU_MODELS: "H100,A100"})
    assert not pod.problems
    assert pod.ask is not None
    assert (pod.ask.kind, pod.ask.profile, pod.ask.milli_gpu) == (AskKind.PARTITION, "3g.40gb", 428)
    assert (pod.ask.models, pod.ask.is_ordered, pod.ask.is_whole) == (("H100", "A100"), True, False)


@pytest.mark.parametrize(
    ("requests", "annotations", "word"),
    [
        ({labels.GPU: "2"}, {labels.MIG_PROFILE: "1g.10gb"}, "exactly one"),
        ({labels.GPU_MILLI: "200"}, {labels.MIG_PROFILE: "1g.10gb"}, "exactly one"),
        ({"nvidia.com/gpu": "1"}, {labels.MIG_PROFILE: "1g.10gb"}, "exactly one"),
        ({"cpu": "1"}, {labels.MIG_PROFILE: "1g.10gb"}, "exactly one"),
        (GPU, {labels.MIG_PROFILE: "small"}, "'small' is not a MIG profile"),
        (GPU, {labels.MIG_PROFILE: "0g.5gb"}, "not a MIG profile"),
        (GPU, {labels.SAME_ISLAND: "yes"}, "neither required nor preferred"),
        ({labels.GPU_MILLI: "200"}, {labels.SAME_ISLAND: "required"}, "can be of one island"),
        ({"nvidia.com/gpu": "2"}, {labels.SAME_ISLAND: "required"}, "can be of one island"),
        (GPU, {labels.GPU_MODELS: "H100=1@0.5,A100"}, "a cost is said of some"),
        (GPU, {labels.GPU_MODELS: "H100@cheap"}, "cost"),
        (GPU, {labels.GPU_MODELS: "H100@0"}, "no cost"),
        (GPU, {labels.GPU_MODELS: "H100=2"}, "1 device"),
    ],
)
def test_a_wish_that_cannot_be_read_is_quoted(requests: dict[str, Any], annotations: dict[str, str], word: str) -> None:
    pod = a_read_pod(requests, annotations)
    assert pod.ask is None
    assert any(word in problem for problem in pod.problems), pod.problems


def test_one_island_is_asked_for() -> None:
    pod = a_read_pod({labels.GPU: "2"}, {labels.SAME_ISLAND: "required"})
    assert pod.ask is not None
    assert pod.ask.is_one_island
    indifferent = a_read_pod({labels.GPU: "2"}, {labels.SAME_ISLAND: "preferred"})
    assert indifferent.ask is not None
    assert not indifferent.ask.is_one_island


def test_models_have_counts_and_costs_of_their_own() -> None:
    pod = a_read_pod({labels.GPU: "4"}, {labels.GPU_MODELS: "B300=1@0.8, H200=2@1 ,H100@1.25"})
    assert not pod.problems
    assert not pod.unmodelled
    assert pod.ask is not None
    assert pod.ask.alternatives == (
        Alternative(model="B300", count=1, cost_milli=800),
        Alternative(model="H200", count=2, cost_milli=1000),
        Alternative(model="H100", count=4, cost_milli=1250),
    )
    assert (pod.ask.count, pod.ask.models, pod.ask.is_ordered) == (4, ("B300", "H200", "H100"), True)
    assert [(one.count, one.models, one.is_ordered) for one in pod.ask.variants()] == [
        (1, ("B300",), False),
        (2, ("H200",), False),
        (4, ("H100",), False),
    ]


def test_equal_counts_without_costs_are_a_plain_list_of_models() -> None:
    pod = a_read_pod({labels.GPU: "2"}, {labels.GPU_MODELS: "H200=2,H100"})
    assert pod.ask is not None
    assert pod.ask.alternatives == ()
    assert pod.ask.models == ("H200", "H100")
    assert pod.ask.variants() == (pod.ask,)


def test_on_classic_nodes_only_the_count_of_the_spec_can_be_had() -> None:
    pod = a_read_pod({"nvidia.com/gpu": "2"}, {labels.GPU_MODELS: "B300=1,H100=2"})
    assert pod.ask is not None
    assert (pod.ask.count, pod.ask.models) == (2, ("H100",))
    assert pod.unmodelled == ("gpu-models with other counts",)


def test_a_record_names_instances() -> None:
    text = "0:2g.20gb@2"
    assert parse_devices(text) == (text,)
    assert format_devices((text, "GPU-5a3c:1g.10gb+me@6")) == "0:2g.20gb@2,GPU-5a3c:1g.10gb+me@6"
    assert locate(text, ()) == ("0", Partition("2g.20gb", 2))
    assert locate("0000:3b:00.0:1g.5gb@0", ()) == ("0000:3b:00.0", Partition("1g.5gb", 0))
    assert locate("0000:3b:00.0", ()) == ("0000:3b:00.0", None)


def test_an_instance_with_a_uuid_is_recorded_by_it() -> None:
    node = a_read_node({labels.MIG_DEVICES: "0=3g.40gb@0:MIG-aa-1,3g.40gb@4;1=7g.80gb@0:MIG-bb-2"})
    assert not node.device_problems
    first, second = node.devices[:2]
    assert partition_name(first, Partition("3g.40gb", 0)) == "MIG-aa-1"
    assert partition_name(first, Partition("3g.40gb", 4)) == "0:3g.40gb@4"
    assert locate("MIG-bb-2", node.devices) == ("1", Partition("7g.80gb", 0))
    assert locate("MIG-gone", node.devices) == ("MIG-gone", None)
    assert second.partitions == (Partition("7g.80gb", 0, "MIG-bb-2"),)
    (problem,) = a_read_node({labels.MIG_DEVICES: "0=3g.40gb@0:MIG-aa;1=3g.40gb@0:MIG-aa"}).device_problems
    assert "UUID is named twice" in problem


@pytest.mark.parametrize("text", ["0:2g.20gb@", "0:2g.20gb@100", "0@2", "0:2g.20gb@2x", ":2g.20gb@2", "0:2g.20gb@2@2"])
def test_a_record_of_no_instance_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_devices(text)


@pytest.mark.parametrize("text", ["", "2g.20gb", "2g.20gb@", "@2", "2g.20gb@-1", "g.20gb@2", "2G.20GB@2"])
def test_an_instance_is_a_profile_and_a_start(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_partition(text)
