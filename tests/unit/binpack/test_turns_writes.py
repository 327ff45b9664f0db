"""Every way a write of the planner can end, and nobody lost or doubled afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.controller.writer import Outcome
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.planning import LOST, running


def gpus(node="n1", count=1):
    return a_node(node, gpus=count, milli_cpu=64_000)


async def test_a_pod_that_changed_is_read_and_planned_again_at_once():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", Outcome.CHANGED)
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(0.2)
        assert [call[0] for call in bridge.writer.calls] == ["pin", "pin"]
        assert bridge.writer.reads == 1
        assert bridge.world.away == {"uid-p1": bridge.world.away["uid-p1"].LANDED}


async def test_a_pod_that_had_waited_and_changed_is_planned_again_too():
    async with running() as bridge:
        bridge.writer.answer("pin", Outcome.CHANGED)
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
        bridge.add_nodes(gpus())
        await bridge.pass_s(1)
        assert len(bridge.writer.said("pin")) == 2


async def test_a_patch_that_is_refused_again_and_again_does_not_spin():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", *[Outcome.CHANGED] * 1000)
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(60)
        assert 5 <= len(bridge.writer.calls) <= 20


async def test_a_failed_patch_is_tried_again_with_growing_pauses_and_the_berth_is_not_given_away():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", *[Outcome.FAILED] * 5)
        bridge.see(a_pod("a", whole=1))
        await bridge.pass_s(0.5)
        bridge.see(a_pod("b", whole=1))
        await bridge.pass_s(0.4)
        assert bridge.world.waiting.get("uid-b") is not None
        await bridge.pass_s(60)
        assert {call[1] for call in bridge.writer.calls if call[0] == "pin"} <= {"uid-a", "uid-b"}
        pinned = [pod.name for pod in bridge.writer.pods.values() if pod.pinned_node]
        assert len(pinned) == 1


async def test_a_patch_whose_answer_was_lost_is_found_out_and_nobody_else_is_sent_there():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", LOST)
        bridge.see(a_pod("a", whole=1))
        await bridge.pass_s(0.1)
        bridge.see(a_pod("b", whole=1))
        await bridge.pass_s(30)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("0",))]
        assert bridge.world.ledger.berth_of("uid-a") == Berth(node="n1", devices=("0",))
        bridge.catch_up()
        await bridge.pass_s(30)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("0",))]
        assert bridge.world.away == {}


async def test_while_nobody_can_tell_how_a_write_ended_its_berth_stays_counted():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", LOST)
        bridge.writer.answer("read", *[Outcome.FAILED] * 4)
        bridge.see(a_pod("a", whole=1))
        await bridge.pass_s(5)
        assert bridge.writer.reads >= 2
        assert bridge.world.ledger.berth_of("uid-a") == Berth(node="n1", devices=("0",))
        await bridge.pass_s(60)
        assert bridge.world.ledger.berth_of("uid-a") == Berth(node="n1", devices=("0",))


async def test_a_pod_that_ended_while_it_was_read_holds_nothing():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", LOST)
        bridge.writer.hold("read")
        bridge.see(a_pod("a", whole=1))
        await bridge.pass_s(2)
        bridge.catch_up()
        bridge.lose("uid-a")
        bridge.writer.let_go("read")
        await bridge.pass_s(2)
        assert bridge.world.ledger.berth_of("uid-a") is None
        bridge.see(a_pod("b", whole=1))
        await bridge.pass_s(1)
        assert len(bridge.writer.said("pin")) == 2


async def test_somebody_else_let_the_pod_go_meanwhile():
    async with running([gpus()]) as bridge:
        pod = a_pod(whole=1)
        bridge.writer.hold("pin")
        bridge.see(pod)
        await bridge.pass_s(1)
        bridge.writer.pods[pod.uid] = replace(pod, gates=())
        bridge.writer.answer("pin", Outcome.CHANGED)
        bridge.writer.let_go("pin")
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(10)
        assert len(bridge.writer.calls) == 1
        assert bridge.world.ledger.berth_of(pod.uid) is None
        assert set(bridge.world.unbound.pods) == {pod.uid}


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_pod_that_is_gone_leaves_nothing(is_told):
    async with running([gpus()]) as bridge:
        bridge.writer.hold("pin")
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
        if is_told:
            bridge.lose("uid-p1")
        else:
            bridge.writer.pods.clear()
        bridge.writer.let_go("pin")
        await bridge.pass_s(1)
        world = bridge.world
        assert (world.away, world.pods, world.queue, len(world.waiting)) == ({}, {}, {}, 0)
        assert world.ledger.berth_of("uid-p1") is None


async def test_a_write_that_the_lease_does_not_allow_is_tried_later():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", Outcome.NOT_LEADING)
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(0.5)
        assert bridge.world.ledger.berth_of("uid-p1") is None, "nothing was sent"
        await bridge.pass_s(2)
        assert len(bridge.writer.said("pin")) == 2
        bridge.catch_up()
        await bridge.pass_s(1)
        assert bridge.world.away == {}


async def test_a_fault_of_ours_in_a_write_loses_nobody():
    async with running([gpus()]) as bridge:
        bridge.writer.answer("pin", ValueError("a device id that cannot be written"))
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(5)
        assert len(bridge.writer.said("pin")) == 2
        assert bridge.value("berthmaster_faults_total", where="write") == 1
