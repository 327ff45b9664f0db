from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.fit import devices_for, holds, mismatch, missing, model_matches, refusal
from binpack.state import NodeState
from fleet import labels
from fleet.constraints import Mismatch, NodeConstraints, Taint
from fleet.device import AskKind, Device, DeviceAsk
from fleet.node import Node
from fleet.pod import Berth, Pod
from tests.support.builders import a_node, a_pod, a_state


@pytest.mark.parametrize(
    ("wanted", "model", "matches"),
    [
        ("H100", "NVIDIA-H100-80GB-HBM3", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb-hbm3", True),
        ("H100-80GB", "NVIDIA-H100-80GB-HBM3", True),
        ("H10", "NVIDIA-H100-80GB-HBM3", False),
        ("100", "NVIDIA-H100-80GB-HBM3", False),
        ("H100-HBM3", "NVIDIA-H100-80GB-HBM3", False),
        ("A100", "NVIDIA-H100-80GB-HBM3", False),
        ("G2", "G2", True),
        ("G2", "", False),
        ("", "G2", False),
        ("-", "G2-1", False),
    ],
)
def test_models_match_by_whole_words(wanted: str, model: str, matches: bool) -> None:
    assert model_matches(wanted, model) is matches


def used(*pods: Pod, node: Node | None = None) -> NodeState:
    return a_state(node or a_node(gpus=4, memory_mib=1000), *pods)


HALF = a_pod("half", node="n1", milli=500, mib=500, devices=("0",))
FULL = a_pod("full", node="n1", whole=1, devices=("1",))


@pytest.mark.parametrize(
    ("pod", "devices"),
    [
        (a_pod(), ()),
        (a_pod(whole=1), ("2",)),
        (a_pod(whole=2), ("2", "3")),
        (a_pod(milli=500), ("0",)),
        (a_pod(milli=501), ("2",)),
        (a_pod(mib=500), ("0",)),
        (a_pod(mib=501), ("2",)),
        (a_pod(milli=500, mib=500, count=3), ("0", "2", "3")),
        (a_pod(milli=1000), ("2",)),
    ],
)
def test_the_first_devices_that_will_do(pod: Pod, devices: tuple[str, ...]) -> None:
    state = used(HALF, FULL)
    assert devices_for(pod, state) == devices
    assert missing(pod, state) == ()
    assert holds(pod, Berth(node="n1", devices=devices), state)


@pytest.mark.parametrize(
    ("pod", "lacks"),
    [
        (a_pod(whole=3), (("devices", 1),)),
        (a_pod(whole=9), (("devices", 7),)),
        (a_pod(milli=600, count=3), (("milli_gpu", 100),)),
        (a_pod(milli=600, count=4), (("milli_gpu", 600),)),
        (a_pod(mib=1200), (("gpu_memory_mib", 200),)),
        (a_pod(milli=1000, mib=1200, count=3), (("milli_gpu", 500), ("gpu_memory_mib", 700))),
        (a_pod(milli=1, count=5), (("devices", 1),)),
        (a_pod(classic=1), (("devices", 1),)),
    ],
)
def test_what_is_missing_is_the_smallest_change_that_would_help(pod: Pod, lacks: tuple[tuple[str, int], ...]) -> None:
    state = used(HALF, FULL)
    assert missing(pod, state) == lacks
    assert devices_for(pod, state) is None


def test_devices_come_first_and_resources_follow() -> None:
    state = used(node=a_node(gpus=1, milli_cpu=8000, memory_gib=4, pod_slots=0))
    pod = a_pod(whole=2, milli_cpu=12000, memory_gib=8, extended={"example.com/x": 3})
    assert missing(pod, state) == (
        ("devices", 1),
        ("milli_cpu", 4000),
        ("memory_bytes", 4 * 2**30),
        ("pod_slots", 1),
        ("example.com/x", 3),
    )


def test_classic_counts_say_devices_once() -> None:
    state = used(a_pod("x", node="n1", classic=3), node=a_node(gpus=4, is_sharing=False))
    assert missing(a_pod(classic=3), state) == (("devices", 2),)
    assert devices_for(a_pod(classic=1), state) == ()
    assert missing(a_pod(whole=1), state) == (("devices", 1),)
    assert missing(a_pod(milli=10), state) == (("devices", 1),)


def test_what_the_scheduler_counts_binds_a_classic_pod_too() -> None:
    node = a_node(gpus=4, is_sharing=False, extended={labels.NVIDIA_GPU: 1})
    assert missing(a_pod(classic=2), used(node=node)) == (("devices", 1),)


def test_blocked_nodes_give_no_device_but_take_the_rest() -> None:
    state = used(node=a_node(gpus=4, device_problems=("doubt",)))
    assert missing(a_pod(whole=1), state) == (("devices", 1),)
    assert missing(a_pod(milli=1), state) == (("devices", 1),)
    assert missing(a_pod(milli_cpu=1), state) == ()


def test_the_dead_are_never_given() -> None:
    state = used(node=a_node(gpus=2, dead=("0",)))
    assert devices_for(a_pod(milli=10), state) == ("1",)
    assert missing(a_pod(milli=10, count=2), state) == (("devices", 1),)
    assert missing(a_pod(whole=2), state) == (("devices", 1),)


def test_models_limit_and_their_order_leads() -> None:
    cards = [Device(id="a", model="NVIDIA-A100"), Device(id="h", model="NVIDIA-H100"), Device(id="a2", model="A100")]
    state = used(node=replace(a_node(), devices=tuple(cards)))
    assert devices_for(a_pod(whole=1, models=("H100",)), state) == ("h",)
    assert devices_for(a_pod(whole=1, models=("H100", "A100")), state) == ("a",)
    assert devices_for(a_pod(whole=1, models=("H100", "A100"), is_ordered=True), state) == ("h",)
    assert missing(a_pod(milli=1, count=2, models=("H100",)), state) == (("devices", 1),)
    assert missing(a_pod(whole=1, models=("B200",)), state) == (("devices", 1),)


def test_of_a_card_of_unknown_memory_only_the_milli_gpu_tell_that_it_is_full() -> None:
    assert devices_for(a_pod(mib=10**6), used(node=a_node(gpus=1))) == ("0",)
    for full in ({"whole": 1}, {"milli": 1000}):
        taken = used(a_pod("w", node="n1", devices=("0",), **full), node=a_node(gpus=1))
        assert missing(a_pod(mib=1), taken) == (("milli_gpu", 1),)


def test_a_whole_device_needs_the_memory_asked_for() -> None:
    for memory_mib, devices in ((None, ("0",)), (80_000, ("0",)), (79_999, None)):
        ask = DeviceAsk(kind=AskKind.CHOSEN, memory_mib=80_000)
        state = used(node=a_node(gpus=1, memory_mib=memory_mib))
        assert devices_for(replace(a_pod(), ask=ask), state) == devices


def test_names_labels_and_taints_are_judged_apart() -> None:
    pod = a_pod(constraints=NodeConstraints(node_selector=(("zone", "a"),)))
    assert mismatch(pod, a_node(labels={"zone": "a"})) is None
    assert mismatch(pod, a_node()) is Mismatch.SELECTOR
    assert mismatch(a_pod(), a_node(taints=(Taint(key="k"),))) is Mismatch.TAINT


@pytest.mark.parametrize(
    ("pod", "berth", "words"),
    [
        (a_pod(whole=1), Berth(node="n2", devices=("2",)), "n2"),
        (a_pod(whole=1), Berth(node="n1", devices=("1",)), "device 1"),
        (a_pod(whole=1), Berth(node="n1", devices=("0",)), "device 0"),
        (a_pod(milli=501), Berth(node="n1", devices=("0",)), "device 0"),
        (a_pod(whole=1), Berth(node="n1", devices=("9",)), "device 9"),
        (a_pod(whole=1), Berth(node="n1"), "1 different"),
        (a_pod(whole=2), Berth(node="n1", devices=("2", "2")), "2 different"),
        (a_pod(whole=1), Berth(node="n1", devices=("2", "3")), "1 different"),
        (a_pod(whole=3), Berth(node="n1", devices=("1", "2", "3")), "1 devices"),
        (a_pod(milli_cpu=2**60), Berth(node="n1"), "milli_cpu"),
        (a_pod(constraints=NodeConstraints(node_selector=(("a", "b"),))), Berth(node="n1"), "node selector"),
    ],
)
def test_an_exact_berth_is_refused_in_words(pod: Pod, berth: Berth, words: str) -> None:
    state = used(HALF, FULL)
    assert words in refusal(pod, berth, state)
    assert not holds(pod, berth, state)


def test_a_berth_without_named_devices_is_right_where_none_are_named() -> None:
    assert holds(a_pod(), Berth(node="n1"), used())
    assert holds(a_pod(classic=1), Berth(node="n1"), used(node=a_node(gpus=1, is_sharing=False)))
