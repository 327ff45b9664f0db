"""Pods the planner lets go: handed over to an autoscaler, steered, or deleted because they can never start."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from binpack.controller.repair import RepairReason
from binpack.controller.writer import Outcome
from fleet import labels
from fleet.pod import Owner
from tests.support.builders import a_node, a_pod
from tests.support.planning import by_index, running

OTHER_GATE = "example.com/later"


def gpus(node="n1", count=1):
    return a_node(node, gpus=count, milli_cpu=64_000)


# -- hand-over -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod(classic=1), True, id="whole GPU"),
        pytest.param(a_pod(milli_cpu=1), True, id="CPU"),
        pytest.param(replace(a_pod(milli_cpu=1), owner=None), True, id="bare"),
        pytest.param(a_pod(whole=1), False, id="chosen devices"),
        pytest.param(a_pod(milli=500), False, id="share"),
        pytest.param(replace(a_pod(classic=1), problems=("odd",)), False, id="malformed"),
        pytest.param(replace(a_pod(classic=1), gates=(OTHER_GATE, labels.PLAN_GATE)), False, id="foreign gate"),
    ],
)
async def test_what_an_autoscaler_understands_is_handed_over_after_the_setting(pod, expected):
    async with running() as bridge:
        bridge.see(pod)
        await bridge.pass_s(29)
        assert not bridge.writer.said("ungate")
        await bridge.pass_s(3)
        assert len(bridge.writer.said("ungate")) == int(expected)
        if expected:
            assert bridge.writer.pods[pod.uid].gates == ()
            status, reason, text = bridge.writer.said("say")[-1]
            assert (status, reason) == (True, "HandedOver")
            assert "node autoscaler" in text
            assert bridge.recorder.reasons(pod.name)[-1] == "HandedOver"
            bridge.catch_up()
            await bridge.pass_s(60)
            assert len(bridge.writer.said("ungate")) == 1
            assert bridge.writer.said("say")[-1][1] == "HandedOver"


async def test_a_handed_over_pod_stops_saying_so_once_it_runs():
    async with running() as bridge:
        bridge.see(a_pod(classic=1))
        await bridge.pass_s(32)
        bridge.catch_up()
        await bridge.pass_s(5)
        bridge.see(replace(bridge.writer.pods["uid-p1"], node_name="new-node"))
        await bridge.pass_s(2)
        assert bridge.writer.said("say")[-1][:2] == (False, "Placed")


async def test_a_pod_is_not_handed_over_while_it_is_being_decided_on():
    deciding = asyncio.Event()
    deciding.set()

    async def decide(world, batch):
        await deciding.wait()
        return await by_index(world, batch)

    async with running(decide=decide) as bridge:
        bridge.see(a_pod(classic=1))
        await bridge.pass_s(20)
        deciding.clear()
        bridge.add_nodes(a_node("n1", gpus=1, is_sharing=False))
        await bridge.pass_s(20)
        assert not bridge.writer.said("ungate")
        deciding.set()
        await bridge.pass_s(1)
        assert bridge.writer.said("pin")
        assert not bridge.writer.said("ungate")
        assert bridge.writer.most_at_once["uid-p1"] == 1


async def test_a_hand_over_that_fails_leaves_the_pod_planned():
    async with running() as bridge:
        bridge.writer.answer("ungate", Outcome.FAILED)
        bridge.see(a_pod(classic=1))
        await bridge.pass_s(32)
        bridge.add_nodes(a_node("n1", gpus=1, is_sharing=False))
        await bridge.pass_s(5)
        assert bridge.writer.said("pin")


# -- un-pinned pods, repair ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"owner": None}, id="bare"),
        pytest.param({"owner": Owner(kind="Job", name="j", uid="j")}, id="of a job"),
        pytest.param({"unmodelled": ("host ports",)}, id="with a constraint that is not modelled"),
    ],
)
async def test_pods_that_must_not_be_pinned_are_steered_with_candidates(changes):
    async with running([gpus("n1"), gpus("n2"), a_node("cpu")]) as bridge:
        bridge.see(replace(a_pod(whole=1), **changes))
        await bridge.pass_s(1)
        (candidates,) = bridge.writer.said("steer")
        assert {berth.node for berth in candidates} == {"n1", "n2"}
        assert all(berth.devices == ("0",) for berth in candidates)
        assert not bridge.writer.said("pin")
        assert bridge.world.ledger.berth_of("uid-p1") == candidates[0]


async def test_a_steered_pod_says_which_constraint_kept_it_from_being_pinned():
    async with running([gpus()]) as bridge:
        bridge.see(replace(a_pod("host", whole=1), unmodelled=("host ports",)), replace(a_pod("bare"), owner=None))
        await bridge.pass_s(1)
        assert len(bridge.writer.said("steer")) == 2
        text = "steered by candidates, never pinned: host ports cannot be planned yet"
        assert bridge.writer.said("say") == [(False, "UnmodelledConstraint", text)]


async def test_a_pod_pinned_to_a_vanished_node_is_deleted_once_and_its_owner_told():
    async with running([gpus("n1"), gpus("n2")]) as bridge:
        bridge.see(a_pod(whole=1, pin="n1", devices=("0",)))
        await bridge.pass_s(5)
        assert not bridge.writer.said("delete")
        bridge.lose_node("n1")
        await bridge.pass_s(2)
        assert bridge.writer.said("delete") == [RepairReason.NODE_GONE]
        assert bridge.recorder.reasons("p1") == ["PinnedNodeGone"]
        bridge.lose("uid-p1")
        await bridge.pass_s(60)
        assert len(bridge.writer.said("delete")) == 1


async def test_a_pin_to_a_node_the_index_has_not_seen_yet_is_not_repaired():
    async with running([gpus("n1")]) as bridge:
        bridge.world.ledger.set_node(gpus("n2"))
        bridge.see(a_pod(whole=1, pin="n2", devices=("0",)))
        await bridge.pass_s(3)
        assert not bridge.writer.said("delete")


async def test_a_deletion_that_fails_is_tried_again():
    async with running([gpus("n1")]) as bridge:
        bridge.writer.answer("delete", Outcome.FAILED)
        bridge.see(a_pod(whole=1, pin="gone", devices=("0",)))
        await bridge.pass_s(15)
        assert len(bridge.writer.said("delete")) == 2
