"""Fake nodes say exactly what the planner will read of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berthmaster.local import fake_nodes
from binpack.trace import load_nodes
from fleet.constraints import Taint
from fleet.device import Device
from fleet.kube.decode_node import node_from
from fleet.kube.objects import NodeObject
from fleet.node import Node
from fleet.resources import Resources

amounts = st.integers(0, 2**40)


def read_back(node: Node) -> Node:
    body = msgspec.json.encode(fake_nodes.manifest(node, now_s=1.8e9, kubelet="v1.37.2"))
    return node_from(msgspec.json.decode(body, type=NodeObject), [])


@given(
    count=st.integers(0, 16),
    model=st.sampled_from(["", "A100", "NVIDIA-H100"]),
    memory_mib=st.none() | st.integers(1, 200_000),
    milli_cpu=amounts,
    memory_bytes=amounts,
    pod_slots=st.integers(0, 10_000),
    is_sharing=st.booleans(),
    is_cordoned=st.booleans(),
    taint=st.none() | st.builds(Taint, key=st.just("k"), value=st.just("v"), effect=st.just("NoExecute")),
)
def test_the_planner_reads_back_what_was_meant(
    count: int,
    model: str,
    memory_mib: int | None,
    milli_cpu: int,
    memory_bytes: int,
    pod_slots: int,
    is_sharing: bool,
    is_cordoned: bool,
    taint: Taint | None,
) -> None:
    meant = Node(
        name="n",
        allocatable=Resources(milli_cpu=milli_cpu, memory_bytes=memory_bytes, pod_slots=pod_slots),
        devices=tuple(Device(id=str(i), model=model, memory_mib=memory_mib) for i in range(count)),
        is_sharing=is_sharing,
        is_cordoned=is_cordoned,
        taints=(taint,) if taint else (),
    )
    found = read_back(meant)
    assert found.devices == meant.devices
    assert found.device_problems == ()
    assert (found.is_sharing, found.is_cordoned, found.taints) == (is_sharing, is_cordoned, meant.taints)
    advertised = (("nvidia.com/gpu", count),) if count else ()
    assert found.allocatable == replace(meant.allocatable, extended=advertised)


def test_all_1213_nodes_of_openb_read_back() -> None:
    nodes = load_nodes()
    assert len(nodes) == 1213
    for node in nodes:
        found = read_back(node)
        assert (found.devices, found.is_sharing) == (node.devices, True)
        assert found.allocatable.milli_cpu == node.allocatable.milli_cpu
        assert found.allocatable.memory_bytes == node.allocatable.memory_bytes


def test_a_fake_node_is_ready_and_kwok_s() -> None:
    made = fake_nodes.manifest(fake_nodes.uniform(1, is_sharing=False)[0], now_s=0.0, kubelet="v1.37.2")
    assert made["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    conditions = {condition["type"]: condition for condition in made["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["Ready"]["lastHeartbeatTime"] == "1970-01-01T00:00:00Z"
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_uniform_nodes_have_different_names_and_the_label_on_wish() -> None:
    shared, classic = fake_nodes.uniform(3, is_sharing=True), fake_nodes.uniform(3, is_sharing=False)
    assert len({node.name for node in shared}) == 3
    assert all(read_back(node).is_sharing for node in shared)
    assert not any(read_back(node).is_sharing for node in classic)
