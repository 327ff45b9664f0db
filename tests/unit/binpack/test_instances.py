"""MIG instances on their way through ledger, index, fit and verifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from binpack import fit
from binpack.check import check
from binpack.index import Index, UnknownBerthError
from binpack.planner import plan_batch, question_of
from binpack.solver.instance import Budget
from binpack.state import NodeState
from binpack.wording import sentence
from fleet.device import Partition
from fleet.node import Node
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth, Pod
from tests.support.builders import a_node, a_pod, a_state

H100: dict[str, Any] = {"model": "NVIDIA-H100-80GB-HBM3", "memory_mib": 81559}
HALVES = (Partition("3g.40gb", 0), Partition("3g.40gb", 4))


def sliced(name: str = "n1", gpus: int = 1, mig: Mapping[str, tuple[Partition, ...]] | None = None) -> Node:
    return a_node(name, gpus=gpus, mig=mig or {str(i): () for i in range(gpus)}, milli_cpu=64_000, **H100)


def holder(name: str, record: str, node: str = "n1") -> Pod:
    profile = record.partition(":")[2].partition("@")[0]
    return a_pod(name, node=node, profile=profile, devices=(record,))


def rules(state: NodeState, pod: Pod, *devices: str) -> list[str]:
    berth = Berth(node=state.node.name, devices=devices)
    plan = Plan(placements=(Placement(pod_uid=pod.uid, berth=berth),))
    return [violation.rule for violation in check({state.node.name: state}, [pod], plan)]


def test_what_is_left_of_a_card_counts_by_its_slices() -> None:
    state = a_state(sliced(), holder("a", "0:1g.10gb@0"), holder("b", "0:3g.40gb@4"))
    (device,) = state.devices
    assert device.partitions == (Partition("1g.10gb", 0), Partition("3g.40gb", 4))
    assert (device.users, device.free_milli, device.free_mib) == (2, 375, 30584)
    assert not device.is_untouched


def test_a_device_in_mig_mode_is_given_by_instances_alone() -> None:
    state = a_state(sliced())
    for pod in (a_pod(whole=1), a_pod(milli=100), a_pod(mib=10)):
        assert fit.missing(pod, state)
        answer = Index([state]).place(pod)
        assert isinstance(answer, Unplaced)
        assert answer.reason is Reason.NO_SUCH_DEVICE
        assert "device is in the wrong mode" in rules(state, pod, "0")


def test_an_instance_is_not_given_of_a_device_out_of_mig_mode() -> None:
    state = a_state(a_node(gpus=1, **H100))
    pod = a_pod(profile="1g.10gb")
    assert isinstance(Index([state]).place(pod), Unplaced)
    assert fit.refusal(pod, Berth(node="n1", devices=("0:1g.10gb@0",)), state)
    assert rules(state, pod, "0:1g.10gb@0") == ["device is in the wrong mode"]


@pytest.mark.parametrize("record", ["0:1g.10gb@7", "0:9g.80gb@0", "MIG-nobodys", "1:1g.10gb@0"])
def test_a_booking_that_cannot_be_counts_nothing(record: str) -> None:
    index = Index([a_state(sliced(), holder("a", "0:1g.10gb@0"))])
    before, slots = index.potential(), index.arrays.copied(np.arange(1))
    pod = a_pod("b", profile="1g.10gb", milli_cpu=2000)
    with pytest.raises(UnknownBerthError):
        index.take(pod, Berth(node="n1", devices=(record,)))
    after = index.arrays.copied(np.arange(1))
    assert {name: column.tolist() for name, column in after.items()} == {
        name: column.tolist() for name, column in slots.items()
    }
    assert index.potential() == before


@pytest.mark.parametrize(
    ("devices", "rule"),
    [
        (("0:1g.10gb@1",), "start of the MIG instance"),  # taken
        (("0:1g.10gb@7",), "start of the MIG instance"),  # no start
        (("0:2g.20gb@2",), "MIG profile"),
        (("0",), "MIG profile"),
        (("1:1g.10gb@0",), "device does not exist"),
        (("0:1g.10gb@2", "0:1g.10gb@3"), "number of devices"),
    ],
)
def test_the_verifier_and_the_extender_refuse_what_may_not_be(devices: tuple[str, ...], rule: str) -> None:
    state = a_state(sliced(), holder("a", "0:1g.10gb@1"))
    pod = a_pod(profile="1g.10gb")
    assert rules(state, pod, *devices) == [rule]
    assert fit.refusal(pod, Berth(node="n1", devices=devices), state)
    assert rules(state, pod, "0:1g.10gb@2") == []
    assert fit.refusal(pod, Berth(node="n1", devices=("0:1g.10gb@2",)), state) == ""


def test_two_pods_of_one_plan_do_not_get_one_start() -> None:
    state = a_state(sliced())
    pods = [a_pod("a", profile="1g.10gb"), a_pod("b", profile="3g.40gb")]
    berths = (Berth(node="n1", devices=("0:1g.10gb@5",)), Berth(node="n1", devices=("0:3g.40gb@4",)))
    placements = tuple(Placement(pod_uid=pod.uid, berth=berth) for pod, berth in zip(pods, berths, strict=True))
    assert [v.rule for v in check({"n1": state}, pods, Plan(placements=placements))] == ["start of the MIG instance"]


@pytest.mark.parametrize(
    "resident",
    [
        a_pod("r", node="n1", whole=1, devices=("0",)),  # has it as a whole
        a_pod("r", node="n1", milli=200, devices=("0",)),
        a_pod("r", node="n1", profile="1g.10gb", devices=("0:1g.10gb@7",)),  # there is no such place
    ],
)
def test_a_device_that_is_held_otherwise_gives_nothing_more(resident: Pod) -> None:
    state = a_state(sliced(gpus=2), resident)
    pod = a_pod(profile="1g.10gb")
    assert [fit.usable(pod.ask, device) for device in state.devices if pod.ask] == [False, True]
    answer = Index([state]).place(pod)
    assert isinstance(answer, Placement)
    assert answer.berth.devices[0].startswith("1:")
    assert rules(state, pod, "0:1g.10gb@0")


def test_an_instance_on_a_device_that_left_mig_mode_holds_all_of_it() -> None:
    state = a_state(a_node(gpus=1, **H100), holder("a", "0:1g.10gb@0"))
    assert state.devices[0].free_milli == 0
    assert isinstance(Index([state]).place(a_pod(milli=10)), Unplaced)


def test_a_record_that_contradicts_its_pod_holds_the_whole_device() -> None:
    state = a_state(a_node(gpus=1, **H100), a_pod("s", node="n1", milli=100, devices=("0:1g.10gb@0",)))
    assert state.devices[0].free_milli == 0


def test_instances_made_beforehand_are_the_ones_given() -> None:
    state = a_state(sliced(mig={"0": HALVES}), holder("a", "0:3g.40gb@4"))
    index = Index([state])
    pod = a_pod(profile="3g.40gb")
    answer = index.place(pod)
    assert isinstance(answer, Placement)
    assert answer.berth.devices == ("0:3g.40gb@0",)
    index.take(pod, answer.berth)
    assert isinstance(index.place(pod), Unplaced)
    index.give_back(pod, answer.berth)
    assert isinstance(index.place(pod), Placement)
    assert isinstance(index.place(a_pod(profile="1g.10gb")), Unplaced)


def test_the_reason_says_what_is_free_and_does_not_help() -> None:
    state = a_state(sliced(), holder("a", "0:1g.10gb@1"), holder("b", "0:1g.10gb@5"))
    pod = a_pod(profile="3g.40gb")
    answer = Index([state]).place(pod)
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.NO_LEGAL_START
    assert sentence(pod, answer) == (
        "needs a MIG instance 3g.40gb of one device: on the best node, n1, 6 memory slices are free, and at none of "
        "them may a 3g.40gb start"
    )


def test_a_profile_that_no_card_has_is_no_such_device() -> None:
    answer = Index([a_state(sliced())]).place(a_pod(profile="1g.5gb"))
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.NO_SUCH_DEVICE
    assert "in MIG mode that can hold a 1g.5gb" in answer.detail


def test_too_little_cpu_is_said_as_such() -> None:
    pod = a_pod(profile="1g.10gb", milli_cpu=65_000)
    answer = Index([a_state(sliced())]).place(pod)
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.INSUFFICIENT
    assert answer.shortfall is not None
    assert answer.shortfall.missing == (("milli_cpu", 1000),)


def test_held_cards_fill_up_before_a_fresh_one_is_broken() -> None:
    index = Index([a_state(sliced("a", gpus=2)), a_state(sliced("b", gpus=2), holder("x", "1:1g.10gb@6", "b"))])
    used = set()
    for number in range(6):
        pod = a_pod(f"p{number}", profile="1g.10gb")
        answer = index.place(pod)
        assert isinstance(answer, Placement)
        used.add((answer.berth.node, answer.berth.devices[0].partition(":")[0]))
        index.take(pod, answer.berth)
    assert used == {("b", "1")}


def test_instances_stay_where_the_free_cpu_can_feed_what_is_left() -> None:
    """Of two equal cards the one goes whose node has no CPU left for another."""
    lean = a_node("z-lean", gpus=1, mig={"0": ()}, milli_cpu=4_000, **H100)
    rich = a_node("a-rich", gpus=1, mig={"0": ()}, milli_cpu=64_000, **H100)
    answer = Index([a_state(lean), a_state(rich)]).place(a_pod(profile="7g.80gb", milli_cpu=4_000))
    assert isinstance(answer, Placement)
    assert answer.berth.node == "z-lean"


def test_a_batch_places_instances_beside_shares_and_whole_devices() -> None:
    states = {state.node.name: state for state in (a_state(sliced("m", gpus=2)), a_state(a_node("s", gpus=2)))}
    pods = [a_pod(f"g{i}", profile="3g.40gb") for i in range(3)] + [a_pod(f"o{i}", profile="1g.10gb") for i in range(4)]
    pods += [a_pod("whole", whole=1), a_pod("share", milli=300)]
    for budget in (None, Budget()):
        plan = plan_batch(Index(states.values()), pods, budget, states)
        assert not plan.unplaced
        assert check(states, pods, plan) == ()
    question = question_of(Index(states.values()), pods, plan)
    assert question is not None
    assert {uid for kind in question.kinds for uid in kind.uids} == {"uid-whole", "uid-share"}


def test_the_index_forgets_what_a_node_no_longer_has() -> None:
    index = Index([a_state(sliced())])
    assert isinstance(index.place(a_pod(profile="1g.10gb")), Placement)
    index.set_node(a_state(a_node("n1", gpus=1, **H100)))
    assert isinstance(index.place(a_pod(profile="1g.10gb")), Unplaced)
    assert isinstance(index.place(a_pod(whole=1)), Placement)
    index.remove_node("n1")
    assert isinstance(index.place(a_pod(profile="1g.10gb")), Unplaced)


def test_advertised_instances_are_a_count_and_leave_idle_nodes_idle() -> None:
    offered = {"nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-3g.40gb": 1}
    nodes = [a_node(name, is_sharing=False, extended=offered, milli_cpu=64_000) for name in ("a", "b")]
    used = a_pod("x", node="b", extended={"nvidia.com/mig-1g.10gb": 3})
    plain = a_node("z", is_sharing=False, milli_cpu=64_000)
    index = Index([a_state(nodes[0]), a_state(nodes[1], used), a_state(plain)])
    for wanted, node in (({"nvidia.com/mig-1g.10gb": 4}, "b"), ({"nvidia.com/mig-1g.10gb": 5}, "a"), ({}, "z")):
        answer = index.place(a_pod(extended=wanted, milli_cpu=1000))
        assert isinstance(answer, Placement)
        assert answer.berth == Berth(node=node)
    assert isinstance(index.place(a_pod(extended={"nvidia.com/mig-1g.10gb": 8})), Unplaced)


def test_a_card_of_unknown_geometry_is_told_and_not_given() -> None:
    from binpack.books import account

    node = a_node(gpus=1, model="NVIDIA-L40S", memory_mib=46068, mig={"0": ()})
    (warning,) = account(node, []).warnings
    assert "no geometry of NVIDIA-L40S is known: list its instances in berthmaster.dev/mig-devices" in warning
    assert isinstance(Index([a_state(node)]).place(a_pod(profile="1g.10gb")), Unplaced)


def test_an_instance_is_given_booked_and_checked_by_its_uuid() -> None:
    made = (Partition("3g.40gb", 0, "MIG-a"), Partition("3g.40gb", 4, "MIG-b"))
    state = a_state(sliced(mig={"0": made}), a_pod("r", node="n1", profile="3g.40gb", devices=("MIG-a",)))
    assert state.devices[0].partitions == (Partition("3g.40gb", 0),)
    assert state.devices[0].free_milli == 500
    index, pod = Index([state]), a_pod(profile="3g.40gb")
    answer = index.place(pod)
    assert isinstance(answer, Placement)
    assert answer.berth.devices == ("MIG-b",) == fit.devices_for(pod, state)
    assert rules(state, pod, "MIG-b") == rules(state, pod, "0:3g.40gb@4") == []
    assert rules(state, pod, "MIG-a") == ["start of the MIG instance"]
    assert rules(state, pod, "MIG-c") == ["device does not exist"]
    assert fit.refusal(pod, Berth(node="n1", devices=("MIG-a",)), state)
    index.take(pod, answer.berth)
    assert isinstance(index.place(pod), Unplaced)
    index.give_back(pod, answer.berth)
    assert isinstance(index.place(pod), Placement)
