"""The planner's shell on a manual clock: every way a write can end, and nobody lost, doubled or silent afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from binpack.batch import BatchPolicy
from binpack.config import PlannerSettings
from binpack.controller.repair import RepairReason
from binpack.controller.writer import Outcome
from fleet import labels
from fleet.constraints import NodeConstraints
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth, Owner
from tests.support.builders import a_node, a_pod
from tests.support.planning import LOST, by_index, running

OTHER_GATE = "example.com/later"


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


# -- how writes end --------------------------------------------------------------------------------------------


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
