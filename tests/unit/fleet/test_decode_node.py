from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fleet import labels
from fleet.constraints import Taint
from fleet.kube.decode import node_from
from fleet.node import Node
from tests.support.builders import node_json, node_object, slice_json, slice_object

SHARED = {labels.DEVICE_SHARING: "true"}


def read(slices: Sequence[dict[str, Any]] = (), **words: Any) -> Node:
    return node_from(node_object(node_json(**words)), [slice_object(s) for s in slices])


def gpu(name: str, *, model: str = "NVIDIA H100", memory: str | None = "80Gi", **more: Any) -> dict[str, Any]:
    device: dict[str, Any] = {
        "name": name,
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}"}, "productName": {"string": model}},
        **more,
    }
    if memory is not None:
        device["capacity"] = {"memory": {"value": memory}}
    return device


def healthy(node: Node) -> list[str]:
    return [device.id for device in node.devices if device.is_healthy]


def test_an_empty_object_is_a_node_without_room() -> None:
    node = node_from(node_object({"metadata": {"name": "n1"}}), ())
    assert (node.name, node.devices, node.allocatable.pod_slots, node.is_sharing) == ("n1", (), 0, False)


def test_rules_and_amounts() -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    node = read(
        gpus=2,
        allocatable={"cpu": "63500m", "ephemeral-storage": "1Ki", labels.GPU_MILLI: "9", "memory": "1Gi"},
        labels={"zone": "a"},
        taints=taints,
        unschedulable=True,
    )
    assert node.taints == (Taint(key="gpu", value="yes"), Taint(key="soft", effect="PreferNoSchedule"))
    assert (node.is_cordoned, node.labels["zone"], node.uid) == (True, "a", "uid-n1")
    assert (node.allocatable.milli_cpu, node.allocatable.memory_bytes, node.allocatable.pod_slots) == (
        63500,
        2**30,
        110,
    )
    assert node.allocatable.extended == (("ephemeral-storage", 1024), ("nvidia.com/gpu", 2)), (
        "the extender's are not the scheduler's"
    )


def test_a_classic_node_has_as_many_healthy_counters_as_are_allocatable() -> None:
    node = read(gpus=4, allocatable_gpus=3, labels={labels.GPU_PRODUCT: "Tesla-T4", labels.GPU_MEMORY: "15360"})
    assert healthy(node) == ["0", "1", "2"]
    assert {(d.model, d.memory_mib) for d in node.devices} == {("Tesla-T4", 15360)}
    assert node.device_problems == ()


def test_devices_of_alike_nodes_are_one_value() -> None:
    assert read(gpus=8).devices is read(name="n2", gpus=8).devices


def test_a_sharing_node_names_its_dead() -> None:
    node = read(gpus=4, allocatable_gpus=2, labels=SHARED, annotations={labels.UNHEALTHY_DEVICES: " 0, 3"})
    assert healthy(node) == ["1", "2"]
    assert node.device_problems == ()


@pytest.mark.parametrize(
    ("allocatable", "dead"),
    [(1, ""), (2, ""), (1, "0"), (0, "0"), (1, "7"), (3, "0,,1")],
)
def test_a_sharing_node_whose_dead_cards_nobody_can_name_gives_none(allocatable: int, dead: str) -> None:
    annotations = {labels.UNHEALTHY_DEVICES: dead}
    assert read(gpus=3, allocatable_gpus=allocatable, labels=SHARED, annotations=annotations).device_problems


def test_dead_names_of_absent_cards_do_not_matter() -> None:
    node = read(gpus=1, labels=SHARED, annotations={labels.UNHEALTHY_DEVICES: "1"})
    assert (healthy(node), node.device_problems) == (["0"], ())


def test_a_driver_that_is_not_up_yet_gives_nothing() -> None:
    assert read(gpus=2, allocatable_gpus=0, labels=SHARED).device_problems
    assert read(labels=SHARED).devices == ()


def test_cards_advertised_several_times_are_counted_once_on_a_sharing_node() -> None:
    node = read(
        gpus=20,
        allocatable_gpus=10,
        labels=SHARED | {labels.GPU_COUNT: "2"},
        annotations={labels.UNHEALTHY_DEVICES: "1"},
    )
    assert (len(node.devices), healthy(node), node.device_problems) == (2, ["0"], ())


def test_without_a_plugin_the_label_counts_the_cards() -> None:
    assert len(read(labels=SHARED | {labels.GPU_COUNT: "8"}).devices) == 8
    assert read(labels={labels.GPU_COUNT: "8"}).devices == (), "a classic node has what the kubelet offers"


def test_a_label_that_lags_behind_invents_no_card() -> None:
    assert len(read(gpus=1, labels=SHARED | {labels.GPU_COUNT: "2"}).devices) == 1


@pytest.mark.parametrize("label", [labels.GPU_MEMORY, labels.GPU_COUNT])
@pytest.mark.parametrize("text", ["many", "-1", "1.5", "", "９"])
def test_labels_that_are_no_numbers_close_the_devices(label: str, text: str) -> None:
    node = read(gpus=2, labels=SHARED | {label: text})
    assert any(label in problem for problem in node.device_problems)


def test_amounts_that_cannot_be_read_are_no_room_and_are_named() -> None:
    node = read(gpus=2, allocatable={"cpu": "many", labels.NVIDIA_GPU: "1.5"})
    assert (node.allocatable.milli_cpu, node.allocatable.of(labels.NVIDIA_GPU)) == (0, 0)
    assert len(node.device_problems) == 3, node.device_problems


def test_absurd_counts_stay_bounded() -> None:
    node = read(gpus=10**12, labels=SHARED, allocatable={"memory": str(10**40)})
    assert len(node.devices) == 1024
    assert node.allocatable.memory_bytes == 2**52


def test_resource_slices_tell_more_than_counts() -> None:
    slices = [slice_json(devices=[gpu("gpu-0"), gpu("gpu-1", model="NVIDIA A100", memory="40Gi")])]
    node = read(slices, gpus=8, labels=SHARED)
    assert [(d.id, d.model, d.memory_mib) for d in node.devices] == [
        ("gpu-0", "NVIDIA H100", 81920),
        ("gpu-1", "NVIDIA A100", 40960),
    ]


def test_slices_of_other_drivers_count_where_they_are_of_gpus() -> None:
    attributes = {"gpu.example.com/productName": {"string": "X1"}, "gpu.example.com/cores": {"int": 5}}
    device = {"name": "x-0", "attributes": attributes, "capacity": {"gpu.example.com/memory": {"value": "1Gi"}}}
    cores = slice_json(name="cpus", driver="dra.cpu", devices=[{"name": "cpu-0", "attributes": {"numa": {"int": 0}}}])
    card = {"name": "nic-0", "attributes": {"productName": {"string": "CX-7"}, "uuid": {"string": "N-1"}}}
    nics = slice_json(name="nics", driver="dra.net", devices=[card])
    node = read([slice_json(driver="gpu.example.com", devices=[device]), cores, nics])
    assert [(d.id, d.model, d.memory_mib) for d in node.devices] == [("x-0", "X1", 1024)]
    assert len(read([cores], gpus=2).devices) == 2, "slices without GPUs leave the counts standing"


def test_partitions_are_no_devices() -> None:
    mig = gpu("gpu-0-mig-0") | {"attributes": {"type": {"string": "mig"}, "uuid": {"string": "MIG-1"}}}
    assert [d.id for d in read([slice_json(devices=[gpu("gpu-0"), mig])]).devices] == ["gpu-0"]


def test_taints_and_annotations_kill_devices_by_name_or_uuid() -> None:
    devices = [
        gpu("a", taints=[{"key": "dead", "effect": "NoExecute"}]),
        gpu("b", taints=[{"key": "odd", "effect": "None"}]),
        gpu("c"),
        gpu("d", taints=[{"key": "dead", "effect": "NoSchedule"}]),
        gpu("e"),
    ]
    node = read([slice_json(devices=devices)], annotations={labels.UNHEALTHY_DEVICES: "c,GPU-e"})
    assert healthy(node) == ["b"]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_json(name="s1", devices=[gpu("gpu-0"), gpu("gpu-1")], generation=1)
    new = slice_json(name="s2", devices=[gpu("gpu-0")], generation=2)
    node = read([old, new])
    assert ([d.id for d in node.devices], node.device_problems) == (["gpu-0"], ())


def test_a_pool_in_pieces_gives_nothing_until_it_is_whole() -> None:
    one = slice_json(name="s1", devices=[gpu("gpu-0")], slices=2)
    two = slice_json(name="s2", devices=[gpu("gpu-1")], slices=2)
    assert "1 of 2" in read([one]).device_problems[0]
    whole = read([two, one])
    assert ([d.id for d in whole.devices], whole.device_problems) == (["gpu-0", "gpu-1"], ())
    assert whole == read([one, two]), "the order of arrival does not matter"


def test_one_name_for_two_devices_closes_the_node() -> None:
    twins = [
        slice_json(name="s1", pool="p1", devices=[gpu("gpu-0")]),
        slice_json(name="s2", pool="p2", devices=[gpu("gpu-0")]),
    ]
    assert "gpu-0" in read(twins).device_problems[0]


def test_memory_that_is_unknown_or_unreadable() -> None:
    node = read([slice_json(devices=[gpu("a", memory=None), gpu("b", memory="much")])])
    assert [d.memory_mib for d in node.devices] == [None, None]
    assert len(node.device_problems) == 1
