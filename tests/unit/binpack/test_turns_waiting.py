"""What waiting pods and closed nodes are told, and when those who wait are looked at again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.controller.writer import Outcome
from fleet import labels
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.planning import running

OTHER_GATE = "example.com/later"


def gpus(node="n1", count=1):
    return a_node(node, gpus=count, milli_cpu=64_000)


# -- waiting ---------------------------------------------------------------------------------------------------


async def test_a_pod_without_room_says_so_with_the_numbers_once():
    async with running([a_node("n1", gpus=1, milli_cpu=2000)]) as bridge:
        bridge.see(a_pod(whole=1, milli_cpu=6000))
        await bridge.pass_s(1)
        ((status, reason, text),) = bridge.writer.said("say")
        assert (status, reason) == (True, "Insufficient")
        assert "needs 1 free device on one node and 6 cores: best node n1 lacks 4 cores" in text
        assert bridge.recorder.reasons("p1") == ["Insufficient"]
        await bridge.pass_s(25)
        assert len(bridge.writer.said("say")) == 1


async def test_a_share_says_that_it_cannot_be_handed_over_and_never_is():
    async with running() as bridge:
        bridge.see(a_pod(milli=300))
        await bridge.pass_s(3600)
        assert not bridge.writer.said("ungate")
        assert "cannot be handed over" in bridge.writer.said("say")[0][2]


@pytest.mark.parametrize("held", [{"gates": (OTHER_GATE, labels.PLAN_GATE)}, {"problems": ("gpu-milli: -5",)}])
async def test_a_held_share_does_not_speak_of_hand_over(held):
    async with running([gpus()]) as bridge:
        bridge.see(replace(a_pod(milli=300), **held))
        await bridge.pass_s(5)
        ((_, _, text),) = bridge.writer.said("say")
        assert "handed over" not in text


async def test_a_malformed_pod_is_told_in_condition_event_and_metric_and_never_written():
    async with running([gpus()]) as bridge:
        bridge.see(replace(a_pod(whole=1), problems=("gpu-milli: -5 is negative",)))
        await bridge.pass_s(120)
        assert bridge.recorder.reasons("p1") == ["Malformed"]
        assert bridge.value("berthmaster_malformed_total", kind="pod") == 1
        assert [verb for verb, _, _ in bridge.writer.calls if verb != "say"] == []


async def test_room_that_appears_is_used_within_a_fifth_of_a_second():
    async with running() as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(10)
        bridge.add_nodes(gpus())
        await bridge.pass_s(0.2)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("0",))]


async def test_room_that_appears_while_a_batch_is_collected_is_not_overlooked():
    async with running() as bridge:
        bridge.see(a_pod("waits", whole=1))
        await bridge.pass_s(10)
        bridge.see(replace(a_pod("bare", milli_cpu=1), owner=None))
        await bridge.pass_s(0.01)
        bridge.add_nodes(gpus(count=2))
        bridge.world.refresh()  # as the decider does in the middle of a turn
        await bridge.pass_s(1)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("0",))]


async def test_a_foreign_gate_is_waited_for_and_then_the_pod_is_placed_at_once():
    async with running([gpus()]) as bridge:
        pod = a_pod(whole=1)
        bridge.see(replace(pod, gates=(OTHER_GATE, labels.PLAN_GATE)))
        await bridge.pass_s(60)
        assert not bridge.plans
        assert bridge.writer.said("say")[0][1] == "ForeignGate"
        bridge.see(pod)
        await bridge.pass_s(0.05)
        assert bridge.writer.said("pin")


async def test_a_placed_pod_does_not_go_on_saying_that_it_waits():
    async with running() as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(5)
        bridge.catch_up()
        bridge.add_nodes(gpus())
        await bridge.pass_s(1)
        assert bridge.writer.pods["uid-p1"].says_waiting
        bridge.catch_up()
        await bridge.pass_s(2)
        assert not bridge.writer.pods["uid-p1"].says_waiting
        assert bridge.writer.said("say")[-1][:2] == (False, "Placed")


async def test_what_an_earlier_leader_said_is_taken_back_when_the_pod_is_placed():
    async with running([gpus()]) as bridge:
        bridge.see(replace(a_pod(whole=1), says_waiting=True))
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert not bridge.writer.pods["uid-p1"].says_waiting


async def test_words_about_one_pod_never_overtake_each_other():
    """The condition is on its way while the pod is placed: the last word must be that it has a berth."""
    async with running() as bridge:
        bridge.writer.hold("say")
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(5)
        bridge.add_nodes(gpus())
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(1)
        bridge.writer.let_go("say")
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(3)
        assert not bridge.writer.pods["uid-p1"].says_waiting
        assert bridge.writer.most_at_once["uid-p1"] <= 2  # a patch and a condition, never two conditions


async def test_that_a_pod_waits_no_longer_is_said_though_its_pin_is_confirmed_late():
    """The watch shows pin and condition before either write is answered: the correction queues behind the condition."""
    async with running() as bridge:
        bridge.writer.hold("say")
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
        bridge.writer.hold("pin")
        bridge.add_nodes(gpus())
        await bridge.pass_s(1)
        waiting = bridge.writer.pods["uid-p1"]
        bridge.writer.pods["uid-p1"] = replace(waiting, gates=(), pinned_node="n1", devices=("0",), says_waiting=True)
        bridge.catch_up()
        await bridge.pass_s(2)
        bridge.writer.let_go("pin")
        await bridge.pass_s(1)
        bridge.writer.let_go("say")
        await bridge.pass_s(30)
        assert not bridge.writer.pods["uid-p1"].says_waiting


async def test_a_word_that_could_not_be_written_is_said_later():
    async with running() as bridge:
        bridge.writer.answer("say", Outcome.FAILED, Outcome.NOT_LEADING)
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(10)
        assert len(bridge.writer.said("say")) == 3
        assert bridge.writer.pods["uid-p1"].says_waiting
        assert bridge.recorder.reasons("p1") == ["NoNodes"]


async def test_a_word_that_became_void_while_it_could_not_be_written_is_not_said():
    async with running() as bridge:
        bridge.writer.answer("say", *[Outcome.FAILED] * 3)
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
        bridge.add_nodes(gpus())
        await bridge.pass_s(0.5)
        bridge.catch_up()
        await bridge.pass_s(120)
        assert len(bridge.writer.said("say")) <= 2
        assert not bridge.writer.pods["uid-p1"].says_waiting


async def test_words_that_fail_for_ever_do_not_silence_the_others():
    async with running() as bridge:
        bridge.writer.answer("say", *[Outcome.FAILED] * 20)
        bridge.see(*(a_pod(f"p{i}", whole=1) for i in range(10)))
        await bridge.pass_s(120)
        assert all(pod.says_waiting for pod in bridge.writer.pods.values())


# -- what people are told of nodes -----------------------------------------------------------------------------


async def test_a_node_that_is_closed_for_devices_is_told_loudly():
    async with running([gpus()]) as bridge:
        bridge.see(
            replace(a_pod("bad", whole=1, node="n1"), problems=("devices ',': odd",), record_problem="devices ',': odd")
        )
        await bridge.pass_s(2)
        assert bridge.recorder.reasons("n1") == ["DevicesClosed"]
        assert bridge.value("berthmaster_malformed_total", kind="node") == 1
        await bridge.pass_s(60)
        assert bridge.recorder.reasons("n1") == ["DevicesClosed"]
