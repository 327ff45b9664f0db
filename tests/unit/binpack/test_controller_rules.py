"""Triage, waiting, hand-over and repair: the rules around the planner, with time as an argument."""

from __future__ import annotations

import pytest

from binpack.controller.repair import RepairReason, RepairShop
from binpack.controller.triage import Handling, can_be_handed_over, handling
from binpack.controller.waiting import WaitingRoom
from binpack.wording import sentence
from fleet import labels
from fleet.device import AskKind, DeviceAsk
from fleet.plan import Reason, Shortfall, Unplaced
from fleet.pod import Owner, Phase, Pod
from fleet.resources import Resources

REPLICAS = Owner(kind="ReplicaSet", name="llm", uid="rs-1")
GATED = (labels.PLAN_GATE,)


def a_gated_pod(**changes):
    values = {"uid": "u1", "name": "p", "scheduler_name": "berthmaster", "gates": GATED, "owner": REPLICAS} | changes
    return Pod(**values)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, Handling.PIN, id="owned and plain"),
        pytest.param({"gates": ()}, Handling.NONE, id="never gated"),
        pytest.param({"node_name": "n1"}, Handling.NONE, id="bound"),
        pytest.param({"is_terminating": True}, Handling.NONE, id="going away"),
        pytest.param({"phase": Phase.FAILED}, Handling.NONE, id="terminal"),
        pytest.param({"owner": None}, Handling.STEER, id="bare: nobody would make a new one"),
        pytest.param({"owner": Owner(kind="Job", name="j", uid="j")}, Handling.STEER, id="a job counts deletions"),
        pytest.param({"unmodelled": ("host ports",)}, Handling.STEER, id="kube-scheduler may refuse"),
        pytest.param({"gates": ("other.io/g", labels.PLAN_GATE)}, Handling.FOREIGN_GATE, id="foreign gate"),
        pytest.param({"problems": ("gpu-milli is -5",)}, Handling.HOLD, id="malformed"),
        pytest.param({"unmodelled": ("gang a",), "owner": None}, Handling.HOLD, id="gang"),
        pytest.param(
            {"problems": ("x",), "gates": ("other.io/g", labels.PLAN_GATE)}, Handling.HOLD, id="malformed beats gate"
        ),
    ],
)
def test_handling(changes, expected):
    assert handling(a_gated_pod(**changes)) is expected


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (None, True),
        (DeviceAsk(kind=AskKind.CLASSIC, count=2), True),
        (DeviceAsk(kind=AskKind.CHOSEN), False),
        (DeviceAsk(kind=AskKind.SHARE, milli_gpu=300), False),
    ],
)
def test_only_what_an_autoscaler_understands_is_handed_over(ask, expected):
    assert can_be_handed_over(a_gated_pod(ask=ask)) is expected


def test_the_sentence_names_the_smallest_change():
    pod = a_gated_pod(
        ask=DeviceAsk(kind=AskKind.CHOSEN, count=2, models=("G2",)), requests=Resources(milli_cpu=12_000, pod_slots=1)
    )
    shortfall = Shortfall(node="n0173", missing=(("milli_cpu", 4000),))
    unplaced = Unplaced(pod_uid="u1", reason=Reason.INSUFFICIENT, shortfall=shortfall)
    assert sentence(pod, unplaced) == "needs 2 free G2 devices on one node and 12 cores: best node n0173 lacks 4 cores"


def test_a_text_that_changed_too_soon_after_the_last_is_said_later() -> None:
    room = WaitingRoom(hand_over_after_s=30, repeat_s=30)
    assert room.enter("a", Reason.INSUFFICIENT, "lacks 4 cores", 0.0)
    assert room.unsaid(99.0) == {}  # it is about to be said for the first time
    room.said("a", 0.0)
    assert not room.enter("a", Reason.INSUFFICIENT, "lacks 3 cores", 5.0)
    assert room.unsaid(29.0) == {}
    assert room.unsaid(30.0) == {"a": "lacks 3 cores"}
    room.said("a", 30.0)
    assert room.unsaid(99.0) == {}


@pytest.mark.parametrize("reason", [Reason.CLAIM_PENDING, Reason.VOLUME])
def test_another_cause_under_the_same_reason_is_said_within_seconds(reason: Reason) -> None:
    room = WaitingRoom(hand_over_after_s=30, repeat_s=30, cause_repeat_s=3)
    assert room.enter("a", reason, "claim is not made yet", 0.0)
    room.said("a", 0.0)
    assert not room.enter("a", reason, "there is no device class", 1.0)
    assert room.unsaid(2.9) == {}
    assert room.unsaid(3.0) == {"a": "there is no device class"}
    assert room.enter("a", reason, "there is no device class", 3.0)


def test_a_new_reason_is_said_at_once_and_new_numbers_seldom():
    room = WaitingRoom(hand_over_after_s=30, repeat_s=30)
    assert room.enter("u1", Reason.INSUFFICIENT, "lacks 4 cores", 0.0)
    room.said("u1", 0.0)
    assert not room.enter("u1", Reason.INSUFFICIENT, "lacks 4 cores", 100.0)
    assert not room.enter("u1", Reason.INSUFFICIENT, "lacks 3 cores", 29.9)
    assert room.enter("u1", Reason.INSUFFICIENT, "lacks 3 cores", 30.0)
    assert room.enter("u1", Reason.NO_NODE_ALLOWED, "no node is allowed", 1.0)
    assert room.counts() == {"NoNodeAllowed": 1}


def test_hand_over_is_due_after_the_wait_counted_from_the_first_miss():
    room = WaitingRoom(hand_over_after_s=30)
    room.enter("late", Reason.INSUFFICIENT, "a", 5.0)
    room.enter("early", Reason.INSUFFICIENT, "a", 0.0)
    room.enter("early", Reason.NO_SUCH_DEVICE, "b", 20.0)
    room.enter("held", Reason.FOREIGN_GATE, "c", 0.0)
    assert room.due_for_hand_over(29.9) == ()
    assert room.due_for_hand_over(30.0) == ("early",)
    assert room.due_for_hand_over(40.0) == ("early", "late")
    room.leave("early")
    assert room.due_for_hand_over(35.0) == ("late",)


def a_pinned_pod(uid, **changes):
    return a_gated_pod(**{"uid": uid, "name": uid, "gates": (), "pinned_node": "n1", "is_pin_ours": True} | changes)


def test_a_pod_pinned_to_a_vanished_node_is_given_up_at_once():
    pinned = {"u1": a_pinned_pod("u1")}
    (repair,) = RepairShop().due(pinned, {"n2"}, 0.0)
    assert (repair.pod.uid, repair.reason) == ("u1", RepairReason.NODE_GONE)
    assert RepairShop().due(pinned, {"n1"}, 0.0) == ()


def test_one_refusal_is_forgiven_and_the_second_is_not():
    shop = RepairShop()
    refused = a_pinned_pod("u1", is_unschedulable=True)
    shop.observe(refused, 0.0)
    assert shop.due({"u1": refused}, {"n1"}, 5.0) == ()
    shop.observe(refused, 6.0)
    (repair,) = shop.due({"u1": refused}, {"n1"}, 12.0)
    assert repair.reason is RepairReason.REFUSED_TWICE


def test_a_pod_that_was_taken_after_all_starts_afresh():
    shop = RepairShop()
    refused = a_pinned_pod("u1", is_unschedulable=True)
    shop.observe(refused, 0.0)
    shop.observe(a_pinned_pod("u1"), 10.0)
    shop.observe(refused, 20.0)
    assert shop.due({"u1": refused}, {"n1"}, 25.0) == ()


def test_repairs_are_rate_limited_per_owner():
    shop = RepairShop(per_owner_s=10.0)
    other = Owner(kind="ReplicaSet", name="b", uid="rs-2")
    pinned = {"u1": a_pinned_pod("u1"), "u2": a_pinned_pod("u2"), "u3": a_pinned_pod("u3", owner=other)}
    assert [repair.pod.uid for repair in shop.due(pinned, set(), 0.0)] == ["u1", "u3"]
    del pinned["u1"]
    assert [repair.pod.uid for repair in shop.due(pinned, set(), 9.9)] == []
    assert [repair.pod.uid for repair in shop.due(pinned, set(), 10.0)] == ["u2", "u3"]


def test_a_pin_that_is_not_ours_is_never_given_up():
    shop = RepairShop()
    agent = Owner(kind="DaemonSet", name="agent", uid="ds-1")
    refused = a_pinned_pod("u1", owner=agent, is_pin_ours=False, is_unschedulable=True)
    shop.observe(refused, 0.0)
    assert shop.due({"u1": refused}, {"n1"}, 60.0) == ()
    assert shop.due({"u1": refused}, set(), 60.0) == ()


def test_a_bare_pod_is_never_deleted():
    pinned = {"u1": a_pinned_pod("u1", owner=None)}
    assert RepairShop().due(pinned, set(), 0.0) == ()


@pytest.mark.parametrize(
    "unplaced",
    [
        Unplaced(pod_uid="u1", reason=Reason.MALFORMED, detail="x" * 100_000),
        Unplaced(pod_uid="u1", reason=Reason.NO_SUCH_DEVICE, detail="none has \x1b[2J\x00\nroot:"),
        Unplaced(pod_uid="u1", reason=Reason.PLANNER_FAULT, detail="\r\n"),
    ],
)
def test_what_comes_from_outside_ends_as_one_printable_line(unplaced):
    """A reason goes into a condition, an event, a log and a terminal."""
    ask = DeviceAsk(kind=AskKind.CHOSEN, models=("\x1b[31mA100", "m" * 5000))
    text = sentence(a_gated_pod(ask=ask, problems=("y" * 5000,)), unplaced)
    assert len(text) <= 900
    assert text.isprintable()


def test_a_classic_gpu_is_named_once():
    pod = a_gated_pod(
        ask=DeviceAsk(kind=AskKind.CLASSIC, count=2),
        requests=Resources(milli_cpu=1000, pod_slots=1, extended=((labels.NVIDIA_GPU, 2), ("example.com/x", 1))),
    )
    shortfall = Shortfall(node="n1", missing=((labels.NVIDIA_GPU, 1), ("devices", 1)))
    unplaced = Unplaced(pod_uid="u1", reason=Reason.INSUFFICIENT, shortfall=shortfall)
    text = "needs 2 free devices on one node, 1 core and 1 example.com/x: best node n1 lacks 1 free device"
    assert sentence(pod, unplaced) == text
