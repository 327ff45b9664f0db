"""The planner's shell on a manual clock, the ordinary way, and nobody lost where deciding fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from binpack.batch import BatchPolicy
from binpack.config import PlannerSettings
from fleet.constraints import NodeConstraints
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.planning import by_index, running


def gpus(node="n1", count=1):
    return a_node(node, gpus=count, milli_cpu=64_000)


async def unplaced(world, batch):
    return Plan(unplaced=tuple(Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT) for pod in batch))


# -- the ordinary way ------------------------------------------------------------------------------------------


async def test_a_gated_pod_is_pinned_once_the_window_closes():
    async with running([gpus()]) as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(0.019)
        assert not bridge.writer.calls
        await bridge.pass_s(0.002)
        assert bridge.writer.calls == [("pin", "uid-p1", Berth(node="n1", devices=("0",)))]
        bridge.catch_up()
        await bridge.pass_s(60)
        assert len(bridge.writer.calls) == 1
        assert bridge.value("berthmaster_pods_placed_total", how="pinned") == 1


async def test_two_pods_at_once_get_different_devices():
    async with running([gpus(count=2)]) as bridge:
        bridge.see(a_pod("a", whole=1), a_pod("b", whole=1))
        await bridge.pass_s(1)
        assert {berth.devices for berth in bridge.writer.said("pin")} == {("0",), ("1",)}


async def test_a_pod_that_comes_while_another_is_being_written_gets_what_is_left():
    async with running([gpus(count=1)]) as bridge:
        bridge.writer.hold("pin")
        bridge.see(a_pod("a", whole=1))
        await bridge.pass_s(1)
        bridge.see(a_pod("b", whole=1))
        await bridge.pass_s(1)
        assert [call[1] for call in bridge.writer.calls if call[0] == "pin"] == ["uid-a"]
        assert bridge.world.waiting.get("uid-b").reason is Reason.INSUFFICIENT
        bridge.writer.let_go("pin")
        await bridge.pass_s(1)


async def test_a_pod_hammered_while_it_is_planned_is_written_once():
    """The watch shows changes of the gated pod before, during and after the decision, and late ones after the patch."""
    deciding = asyncio.Event()

    async def slowly(world, batch):
        await deciding.wait()
        return await by_index(world, batch)

    async with running([gpus(count=2)], decide=slowly) as bridge:
        pod = a_pod(whole=1)
        bridge.see(pod)
        await bridge.pass_s(0.1)
        for beat in range(3):
            bridge.see(replace(pod, labels={"beat": str(beat)}))
            await bridge.pass_s(0.1)
        deciding.set()
        await bridge.pass_s(0.1)
        for beat in range(3, 6):
            bridge.show_stale(replace(pod, labels={"beat": str(beat)}))
            await bridge.pass_s(0.1)
        bridge.catch_up()
        await bridge.pass_s(5)
        assert len(bridge.writer.calls) == 1
        assert len(bridge.plans) == 1
        assert bridge.world.ledger.berth_of(pod.uid) == bridge.writer.calls[0][2]


async def test_what_was_decided_before_the_pod_changed_its_wish_is_not_written():
    deciding = asyncio.Event()

    async def slowly(world, batch):
        plan = await by_index(world, batch)
        await deciding.wait()
        return plan

    labelled = a_node("n2", labels={"zone": "b"})
    async with running([a_node("n1"), labelled], decide=slowly) as bridge:
        pod = a_pod()
        bridge.see(pod)
        await bridge.pass_s(0.1)
        bridge.see(replace(pod, constraints=NodeConstraints(node_selector=(("zone", "b"),))))
        deciding.set()
        await bridge.pass_s(1)
        assert bridge.writer.said("pin") == [Berth(node="n2")]


async def test_a_full_queue_of_unwritten_patches_holds_planning_back():
    policy = BatchPolicy(most_pods=256)
    async with running([a_node(pod_slots=2000)], settings=PlannerSettings(batch=policy)) as bridge:
        bridge.writer.hold("pin")
        bridge.see(*(a_pod(f"p{i}") for i in range(1500)))
        await bridge.pass_s(5)
        assert len(bridge.plans) <= 3
        bridge.writer.let_go("pin")
        await bridge.pass_s(5)
        assert len(bridge.writer.calls) == 1500


# -- when deciding fails ---------------------------------------------------------------------------------------


def fails_on(*names):
    async def decide(world, batch):
        if any(pod.name in names for pod in batch):
            raise RuntimeError("plan breaks a rule")
        return await by_index(world, batch)

    return decide


async def test_one_pod_that_cannot_be_planned_does_not_stop_the_others():
    async with running([gpus(count=8)], decide=fails_on("p3")) as bridge:
        bridge.see(*(a_pod(f"p{i}", whole=1) for i in range(6)))
        await bridge.pass_s(1)
        pinned = {call[1] for call in bridge.writer.calls if call[0] == "pin"}
        assert pinned == {f"uid-p{i}" for i in (0, 1, 2, 4, 5)}
        record = bridge.world.waiting.get("uid-p3")
        assert record.reason is Reason.PLANNER_FAULT
        assert "plan breaks a rule" in record.text
        assert bridge.recorder.reasons("p3") == ["PlannerFault"]


async def test_a_pod_that_cannot_be_planned_is_tried_again_and_does_not_spin():
    bad = ["p1"]

    async def decide(world, batch):
        return await fails_on(*bad)(world, batch)

    async with running([gpus()], decide=decide) as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(60)
        assert 3 <= len(bridge.plans) <= 8
        bad.clear()
        await bridge.pass_s(60)
        assert len(bridge.writer.said("pin")) == 1


async def test_when_every_plan_fails_nobody_is_lost_and_the_process_lives():
    bad = ["p0"]

    async def decide(world, batch):
        if bad:
            raise RuntimeError("the planner is broken")
        return await by_index(world, batch)

    async with running([gpus(count=8)], decide=decide) as bridge:
        bridge.see(*(a_pod(f"p{i}") for i in range(100)))
        await bridge.pass_s(30)
        assert len(bridge.plans) < 300
        assert len(bridge.world.pods) == 100
        bad.clear()
        await bridge.pass_s(120)
        assert len(bridge.writer.said("pin")) == 100


@pytest.mark.parametrize("detail", ["its room is better used by others", "the plan did not hold: device"])
async def test_a_pod_left_out_for_others_is_planned_again_at_once_where_there_is_room(detail):
    async def decide(world, batch):
        plan = await by_index(world, batch)
        if len(batch) == 1:
            return plan
        first, *others = plan.placements
        left = Unplaced(pod_uid=first.pod_uid, reason=Reason.INSUFFICIENT, detail=detail)
        return Plan(placements=tuple(others), unplaced=(left,))

    async with running([gpus(count=2)], decide=decide) as bridge:
        bridge.see(a_pod("a", whole=1), a_pod("b", whole=1))
        await bridge.pass_s(0.2)
        assert {call[1] for call in bridge.writer.calls} == {"uid-a", "uid-b"}


async def test_a_pod_left_out_for_others_says_the_numbers_where_there_is_no_room():
    async def decide(world, batch):
        return Plan(unplaced=tuple(Unplaced(pod_uid=p.uid, reason=Reason.INSUFFICIENT, detail="x") for p in batch))

    async with running([gpus()], decide=decide) as bridge:
        bridge.see(a_pod(whole=2))
        await bridge.pass_s(2)
        assert "none of 1 allowed nodes has 2 healthy whole devices" in bridge.writer.said("say")[0][2]


async def test_a_plan_that_leaves_out_what_fits_again_and_again_does_not_spin():
    async with running([gpus()], decide=unplaced) as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(120)
        assert 5 <= len(bridge.plans) <= 20
        # It must not wait in silence: what it says is that the fault is ours.
        assert "n1 has room, and no plan that uses it holds" in bridge.writer.said("say")[-1][2]


async def test_a_pod_of_which_the_plan_says_nothing_comes_back():
    silent = [True]

    async def decide(world, batch):
        return Plan() if silent else await by_index(world, batch)

    async with running([gpus()], decide=decide) as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
        silent.clear()
        await bridge.pass_s(30)
        assert len(bridge.writer.said("pin")) == 1


async def test_a_fault_in_a_turn_loses_no_batch(monkeypatch):
    async with running([gpus()]) as bridge:
        real, faults = bridge.world.depart, [RuntimeError("odd")]

        def depart(pod, berth):
            if faults:
                raise faults.pop()
            real(pod, berth)

        monkeypatch.setattr(bridge.world, "depart", depart)
        bridge.see(a_pod("a"), a_pod("b"))
        await bridge.pass_s(30)
        assert {call[1] for call in bridge.writer.calls} == {"uid-a", "uid-b"}
        assert bridge.value("berthmaster_faults_total", where="turn") == 1


async def test_a_fault_while_keeping_house_does_not_end_it(monkeypatch):
    async with running([gpus()]) as bridge:
        real, faults = bridge.world.unbound.steered_anew, [RuntimeError("odd")]

        def steered_anew(now_s, most):
            if faults:
                raise faults.pop()
            return real(now_s, most)

        monkeypatch.setattr(bridge.world.unbound, "steered_anew", steered_anew)
        await bridge.pass_s(5)
        bridge.see(a_pod("x", candidates=(Berth(node="gone"),), is_unschedulable=True))
        await bridge.pass_s(5)
        assert bridge.writer.said("renew")


# -- the end ---------------------------------------------------------------------------------------------------


async def test_when_the_leadership_ends_no_write_goes_on():
    async with running([gpus()]) as bridge:
        bridge.writer.hold("pin")
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
    assert bridge.writer.on_their_way["uid-p1"] == 0
    assert bridge.writer.pods["uid-p1"].pinned_node == ""


async def test_an_idle_planner_does_nothing():
    async with running([gpus()]) as bridge:
        bridge.see(a_pod(whole=2), a_pod("bound", node="n1"))
        await bridge.pass_s(2)
        plans, calls = len(bridge.plans), len(bridge.writer.calls)
        await bridge.pass_s(600)
        assert (len(bridge.plans), len(bridge.writer.calls)) == (plans, calls)


async def test_placements_of_a_plan_are_written_with_the_berth_that_was_decided():
    async def decide(world, batch):
        return Plan(placements=tuple(Placement(pod_uid=p.uid, berth=Berth(node="n1", devices=("7",))) for p in batch))

    async with running([gpus(count=8)], decide=decide) as bridge:
        bridge.see(a_pod(whole=1))
        await bridge.pass_s(1)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("7",))]
