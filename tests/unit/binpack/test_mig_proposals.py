"""How to cut empty cards for pods that wait: brute force over all layouts, and the words of it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berthmaster import proposal_words
from berthmaster.explain_node import claim_holders, explain_node
from binpack import mig
from binpack.mig.layouts import best_layout
from binpack.mig.proposals import proposals
from fleet.device import Device, Partition
from fleet.pod import Berth
from tests.support import devices
from tests.support.builders import a_node, a_pod, a_state

H100: dict[str, Any] = {"model": "NVIDIA-H100-80GB-HBM3", "memory_mib": 81559}
A30 = Device(id="0", model="NVIDIA-A30", memory_mib=24576, partitions=())
SMALL = ("1g.10gb", "2g.20gb", "3g.40gb")


@given(st.dictionaries(st.sampled_from(["1g.6gb", "1g.6gb+me", "2g.12gb", "4g.24gb"]), st.integers(0, 3)))
@settings(deadline=None)
def test_no_other_layout_serves_more(waiting: dict[str, int]) -> None:
    geometry = mig.geometry_of(A30)
    assert geometry is not None
    sizes = {start.partition: start.slices for start in geometry.starts}
    most = max(
        sum(sizes[one] for one in chosen)
        for many in range(5)
        for chosen in combinations(sizes, many)
        if mig.occupied(geometry, chosen) is not None
        and all(n <= waiting.get(profile, 0) for profile, n in Counter(one.profile for one in chosen).items())
    )
    found = best_layout(A30.model, A30.memory_mib, waiting)
    assert (found.slices if found is not None else 0) == most
    if found is not None:
        assert mig.occupied(geometry, found.partitions) is not None


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ({"3g.40gb": 1, "2g.20gb": 1}, [("2g.20gb", 0), ("3g.40gb", 4)]),
        ({"4g.40gb": 1, "3g.40gb": 5}, [("3g.40gb", 0), ("3g.40gb", 4)]),
        ({"1g.10gb": 2, "7g.80gb": 1}, [("7g.80gb", 0)]),
        ({"1g.10gb": 1}, [("1g.10gb", 6)]),
        ({"1g.5gb": 1}, None),
        ({}, None),
    ],
)
def test_layouts_of_an_h100(waiting: dict[str, int], expected: list[tuple[str, int]] | None) -> None:
    found = best_layout(H100["model"], H100["memory_mib"], waiting)
    assert (None if found is None else [(one.profile, one.start) for one in found.partitions]) == expected


def test_an_empty_card_of_made_instances_is_cut_anew_before_a_whole_one_is() -> None:
    node = a_node(gpus=3, mig={"1": (Partition("7g.80gb", 0),), "2": (Partition("3g.40gb", 0),)}, **H100)
    state = a_state(node, a_pod("r", node="n1", profile="3g.40gb", devices=("2:3g.40gb@0",)))
    waiting = [a_pod(f"w{i}", profile="3g.40gb") for i in range(3)] + [a_pod("other", whole=1)]
    first, second = proposals({"n1": state}, waiting)
    assert (first.device, first.turns_mode_on, first.pods) == ("1", False, ("default/w0", "default/w1"))
    assert first.commands == (
        "nvidia-smi mig -i 1 -dci",
        "nvidia-smi mig -i 1 -dgi",
        "nvidia-smi mig -i 1 -cgi 3g.40gb:0,3g.40gb:4 -C",
        "kubectl annotate node n1 --overwrite 'berthmaster.dev/mig-devices=2=3g.40gb@0;1=3g.40gb@0,3g.40gb@4'",
    )
    assert (second.device, second.turns_mode_on, second.pods) == ("0", True, ("default/w2",))
    assert second.commands[0] == "nvidia-smi -i 0 -mig 1"
    assert "not in MIG mode now" in next(proposal_words.lines(second))
    assert proposal_words.as_json(first)["instances"] == ["3g.40gb@0", "3g.40gb@4"]


def test_nothing_is_proposed_of_cards_in_use_of_other_models_or_without_cpu() -> None:
    used = a_state(a_node("a", gpus=1, **H100), a_pod("r", node="a", milli=10, devices=("0",)))
    lean = a_state(a_node("b", gpus=1, milli_cpu=100, **H100))
    open_ = a_state(a_node("c", gpus=1, mig={"0": ()}, **H100))
    pod = a_pod(profile="1g.10gb", milli_cpu=1000)
    assert proposals({state.node.name: state for state in (used, lean, open_)}, [pod]) == ()
    picky = a_pod(profile="1g.10gb", models=("A100",))
    assert proposals({"b": lean}, [picky]) == ()


def test_a_node_is_explained_device_by_device() -> None:
    node = a_node(
        gpus=4,
        dead={"3"},
        mig={"1": (), "2": (Partition("3g.40gb", 0), Partition("3g.40gb", 4))},
        islands=(("0", "1"),),
        extended={"nvidia.com/mig-1g.10gb": 4},
        **H100,
    )
    residents = [
        a_pod("s", node="n1", milli=300, devices=("0",), extended={"nvidia.com/mig-1g.10gb": 1}),
        a_pod("m", node="n1", profile="3g.40gb", devices=("1:3g.40gb@4",)),
    ]
    holders = {pod.key: Berth(node="n1", devices=pod.devices or ()) for pod in residents}
    waiting = [a_pod("w", profile="1g.10gb")]
    found = explain_node(a_state(node, *residents), holders, waiting, ["look here"])
    assert found.kind == "sharing"
    assert [(row.mode, row.island, row.is_healthy, row.holders) for row in found.devices] == [
        ("whole or shares", 1, True, ("default/s",)),
        ("MIG", 1, True, ("default/m (3g.40gb@4)",)),
        ("MIG, made", 0, True, ()),
        ("whole or shares", 0, False, ()),
    ]
    assert found.devices[0].free == "700 milli-GPU, 81559 MiB"
    assert found.devices[1].free.startswith("4 of 8 memory slices; may start: 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb")
    assert found.devices[2].free == "2 of 2 instances; may start: 3g.40gb"
    assert found.advertised == (("nvidia.com/mig-1g.10gb", 3, 4),)
    assert [proposal.device for proposal in found.proposals] == ["2"]
    assert found.warnings == ("look here",)


def test_a_node_is_explained_with_the_claims_that_hold_its_devices() -> None:
    mine, far = devices.given("n1", "0", pods=("p",)), devices.given("n2", "0", pods=("q",))
    held = [devices.a_claim("c", **mine), devices.a_claim("far", **far), devices.a_claim("none")]
    claimed = claim_holders(held, [(devices.DRIVER, "n1", "0"), (devices.DRIVER, "n1", "1")])
    assert claimed == {"0": ("default/p (claim c)",)}
    found = explain_node(a_state(a_node(gpus=2, **H100)), {}, [], [], claimed)
    assert [row.holders for row in found.devices] == [("default/p (claim c)",), ()]
