"""The referee of bench.chaos must see what it is there for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bench.chaos.judge import over_allocated, torn_gangs, wrong_with
from bench.chaos.room import fits, free_by_node, shape_of
from fleet import labels

POOL = "bench.berthmaster.dev/pool"
PINNED = "requiredDuringSchedulingIgnoredDuringExecution"


def a_node(name: str = "n", gpus: int = 4, **notes: str) -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "20", labels.NVIDIA_GPU: str(gpus)}
    return {
        "metadata": {
            "name": name,
            "labels": {POOL: "sharing", labels.GPU_MEMORY: "80000"},
            "annotations": {f"berthmaster.dev/{key.replace('_', '-')}": text for key, text in notes.items()},
        },
        "spec": {},
        "status": {"capacity": dict(amounts), "allocatable": dict(amounts)},
    }


def a_pod(name: str, requests: dict[str, str], node: str = "", devices: str = "", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "labels": more.get("labels", {}),
            "annotations": ({labels.DEVICES: devices} if devices else {}) | more.get("notes", {}),
        },
        "spec": {
            "containers": [{"resources": {"requests": requests}}],
            "nodeSelector": {POOL: "sharing"},
            **({"nodeName": node} if node else {}),
            **more.get("spec", {}),
        },
        "status": {},
    }


WHOLE = {labels.GPU: "1", "cpu": "2"}
GATED = {"schedulingGates": [{"name": labels.PLAN_GATE}]}


def test_a_binding_to_a_device_that_somebody_has_is_seen() -> None:
    resident = a_pod("a", WHOLE, "n", "1")
    assert wrong_with(a_pod("b", WHOLE, "n", "2"), [resident], [a_node()]) == ()
    assert "2 holders" in " ".join(wrong_with(a_pod("b", WHOLE, "n", "1"), [resident], [a_node()]))


def test_a_binding_to_a_device_that_died_is_forgiven_as_long_as_nobody_could_know() -> None:
    pod = a_pod("b", WHOLE, "n", "3")
    before, after = a_node(gpus=4), a_node(gpus=3)
    assert wrong_with(pod, [], [before, after]) == ()
    assert "does not exist" in wrong_with(pod, [], [after])[0]


def test_what_was_wrong_before_is_not_held_against_the_next() -> None:
    orphans = [a_pod("a", WHOLE, "n", "3")]
    small = a_node(gpus=2)
    assert wrong_with(a_pod("b", WHOLE, "n", "0"), orphans, [small]) == ()
    assert wrong_with(a_pod("c", {"cpu": "15"}, "n"), orphans, [small])


def test_everything_is_counted_against_nodes_as_they_were_whole() -> None:
    pods = [a_pod("a", WHOLE, "n", "3"), a_pod("b", WHOLE, "n", "0")]
    assert over_allocated([a_node()], pods) == ()
    assert over_allocated([a_node()], [*pods, a_pod("c", WHOLE, "n", "0")])


@pytest.mark.parametrize("holds", ["seat", "pin", "bound"])
def test_part_of_a_gang_is_seen_by_whatever_it_holds(holds: str) -> None:
    marks = {labels.GANG: "g", labels.GANG_SIZE: "2"}
    waiting = a_pod("a", WHOLE, labels=marks, spec=GATED)
    holder = {
        "seat": a_pod("b", WHOLE, labels=marks, notes={labels.SEAT: "n=0"}, spec=GATED),
        "pin": a_pod("b", WHOLE, labels=marks, spec=pinned_to("n")),
        "bound": a_pod("b", WHOLE, "n", "0", labels=marks),
    }[holds]
    assert list(torn_gangs([waiting, holder])) == ["g"]
    assert torn_gangs([waiting]) == torn_gangs([holder, copy.deepcopy(holder)]) == {}


def pinned_to(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"affinity": {"nodeAffinity": {PINNED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}}


@pytest.mark.parametrize(
    ("requests", "count"),
    [
        ({labels.GPU: "1", "cpu": "1"}, 1),
        ({labels.GPU: "2", "cpu": "1"}, 0),
        ({labels.GPU_MILLI: "250", "cpu": "100m"}, 7),
        ({labels.GPU_MILLI: "250", labels.GPU_MEMORY_MIB: "40000", "cpu": "100m"}, 4),
        ({"cpu": "4"}, 2),
    ],
)
def test_room_is_what_bindings_pins_and_seats_leave(requests: dict[str, str], count: int) -> None:
    pods = [
        a_pod("a", WHOLE, "n", "0"),
        a_pod("b", {labels.GPU: "1", "cpu": "2"}, devices="1", spec=pinned_to("n")),
        a_pod("c", {labels.GPU_MILLI: "250", "cpu": "2"}, notes={labels.SEAT: "n=2"}, spec=GATED),
    ]
    free = free_by_node([a_node()], pods)["n"]
    assert fits(shape_of(a_pod("x", requests)), free) == count


def test_nodes_that_take_nobody_and_devices_that_are_dead_have_no_room() -> None:
    shape = shape_of(a_pod("x", WHOLE))
    cordoned, sick, doubtful = a_node(), a_node(unhealthy_devices="0,1"), a_node()
    cordoned["spec"]["unschedulable"] = True
    sick["status"]["allocatable"][labels.NVIDIA_GPU] = "2"
    doubtful["status"]["allocatable"][labels.NVIDIA_GPU] = "3"
    assert free_by_node([cordoned], []) == {}
    assert fits(shape, free_by_node([sick], [])["n"]) == 2
    assert fits(shape, free_by_node([doubtful], [])["n"]) == 0
