"""Whatever stands in the annotations that describe devices: a reason, no device given twice, no end of the process."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack import mig
from binpack.check import check
from binpack.check_instances import can_begin
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.mig.cards import CARDS
from fleet import labels
from fleet.device import Device, Partition
from fleet.kube.decode import node_from, pod_from
from fleet.kube.device_notes import noted
from fleet.plan import Placement, Plan
from tests.support.builders import node_json, node_object, pod_json, pod_object

H100 = {labels.GPU_PRODUCT: "NVIDIA-H100-80GB-HBM3", labels.GPU_MEMORY: "81559", labels.DEVICE_SHARING: "true"}
instance = st.builds(
    lambda profile, start, uuid: f"{profile}@{start}{uuid}",
    st.sampled_from(["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "9g.99gb", "1g.10gb+me"]),
    st.integers(0, 8),
    st.sampled_from(["", "", ":MIG-a", ":MIG-b", ":GPU-c"]),
)
mig_note = st.one_of(
    st.lists(
        st.builds(
            lambda d, i: f"{d}={','.join(i)}", st.sampled_from(["0", "1", "all", "7"]), st.lists(instance, max_size=4)
        ),
        max_size=3,
    ).map(";".join),
    st.sampled_from(
        ["all", "0", "0;1", "0;0", "=", ";", "@", "0=", "𝟘", "0=1g.10gb@-1", "1" * 20_000, "0=" + "1g.10gb@0," * 900]
    ),
    st.text(max_size=20),
)
island_note = st.one_of(st.from_regex(r"[0-3,; ]{0,12}", fullmatch=True), st.text(max_size=12), st.just("0," * 9000))
model_note = st.one_of(
    st.from_regex(r"(H100|A100|NVIDIA)(=[0-9]{1,3})?(@[0-9.]{1,4})?(,H100=[0-9])?", fullmatch=True),
    st.sampled_from(["H100=0", "H100=-1", "H100@0", "H100@1e309", "H100@nan", "=", "@", ",", "H100=٣", "H100," * 900]),
    st.text(max_size=12),
)
ask = st.sampled_from(
    [{labels.GPU: 1}, {labels.GPU: 2}, {labels.GPU: 4}, {labels.GPU_MILLI: 300}, {labels.GPU_MILLI: 1000}]
)
pod_notes = st.fixed_dictionaries(
    {},
    optional={
        labels.MIG_PROFILE: st.sampled_from(["1g.10gb", "3g.40gb", "7g.80gb", "9g.99gb", "", "٣g.1gb"])
        | st.text(max_size=6),
        labels.GPU_MODELS: model_note,
        labels.SAME_ISLAND: st.sampled_from(["required", "preferred", "", "Required", "🏝"]),
    },
)


@given(mig_text=mig_note, islands=island_note, pods=st.lists(st.tuples(ask, pod_notes), max_size=8))
@settings(deadline=None, max_examples=300)
def test_no_device_or_slice_is_given_twice_whatever_the_annotations_say(
    mig_text: str, islands: str, pods: list[tuple[dict[str, int], dict[str, str]]]
) -> None:
    obj = node_json("n", labels=H100, annotations={labels.MIG_DEVICES: mig_text, labels.ISLANDS: islands})
    amounts = {"cpu": "64", "memory": "1Ti", "pods": "110", labels.NVIDIA_GPU: "4"}
    obj["status"] = {"allocatable": amounts, "capacity": amounts}
    node = node_from(node_object(obj), [])
    ledger = Ledger()
    ledger.set_node(node)
    state = ledger.state("n")
    assert state is not None
    index = Index([state])
    placements: list[Placement] = []
    wanted = []
    for number, (amount, notes) in enumerate(pods):
        obj = pod_json(name=f"p{number}", uid=f"p{number}", annotations=notes)
        obj["spec"]["containers"] = [{"name": "c", "resources": {"requests": amount}}]
        pod = pod_from(pod_object(obj))
        answer = index.place(pod)
        if pod.problems:
            assert not isinstance(answer, Placement)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            placements.append(answer)
            wanted.append(pod)
    assert check({"n": state}, wanted, Plan(placements=tuple(placements))) == ()
    held: dict[str, set[int]] = {}
    for pod, placement in zip(wanted, placements, strict=True):
        for name in placement.berth.devices:
            device, _, place = name.partition(":") if "@" in name else (name, "", "")
            if place:
                profile, _, start = place.partition("@")
                size = {
                    "1g.10gb": 1,
                    "1g.10gb+me": 1,
                    "1g.20gb": 2,
                    "2g.20gb": 2,
                    "3g.40gb": 4,
                    "4g.40gb": 4,
                    "7g.80gb": 8,
                }
                slices = set(range(int(start), int(start) + size.get(profile, 1)))
                assert not slices & held.setdefault(device, set())
                held[device] |= slices
            elif pod.ask is not None and pod.ask.is_whole:
                assert device not in held
                held[device] = set(range(9))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.product}-{card.memory_gb}")
def test_made_instances_are_given_exactly_where_they_can_be_there_together(card: Any) -> None:
    model, memory_mib = f"NVIDIA-{card.product}-{card.memory_gb}GB", card.memory_gb * 1024
    empty = Device(id="0", model=model, memory_mib=memory_mib, partitions=())
    starts = [
        Partition(profile.name, start) for profile in card.profiles if not profile.has_media for start in profile.starts
    ]
    for pair in combinations(starts, 2):
        made = Device(id="0", model=model, memory_mib=memory_mib, partitions=tuple(sorted(pair)))
        may = can_begin(empty, pair[:1], pair[1])
        assert (mig.geometry_of(made) is not None) is may, pair
        assert can_begin(made, pair[:1], pair[1]) is may, pair


def test_made_instances_of_an_unknown_card_cannot_begin_at_one_place() -> None:
    two = (Partition("1g.5gb", 3), Partition("2g.7gb", 3))
    device = Device(id="0", model="FPGA", partitions=two)
    assert mig.geometry_of(device) is None
    assert not can_begin(device, (), two[0])
    apart = Device(id="0", model="FPGA", partitions=(two[0], Partition("2g.7gb", 1)))
    assert mig.geometry_of(apart) is not None
    assert can_begin(apart, (), two[0])


def test_an_operator_is_told_that_listed_instances_overlap() -> None:
    annotations = {labels.MIG_DEVICES: "0=7g.80gb@0,1g.10gb@3"}
    obj = node_json("n", labels=H100, annotations=annotations)
    amounts = {"cpu": "64", "pods": "110", labels.NVIDIA_GPU: "2"}
    obj["status"] = {"allocatable": amounts, "capacity": amounts}
    ledger = Ledger()
    ledger.set_node(node_from(node_object(obj), []))
    assert any("cannot be there together" in warning for warning in ledger.warnings())


@given(mig_note, island_note)
def test_notes_of_any_kind_are_read_or_refused_by_name(mig_text: str, islands: str) -> None:
    devices = tuple(Device(id=str(i), model="NVIDIA-H100-80GB-HBM3", memory_mib=81559) for i in range(4))
    problems: list[str] = []
    found = noted(devices, {labels.MIG_DEVICES: mig_text, labels.ISLANDS: islands}, problems)
    assert [one.id for one in found] == ["0", "1", "2", "3"]
    assert all(labels.DOMAIN in problem and len(problem) < 400 for problem in problems)
