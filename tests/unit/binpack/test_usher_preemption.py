"""Preemption in the planner's shell: the seat first, then the evictions, then the pin; through kills in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain

from binpack.config import PlannerSettings
from binpack.controller import proof
from binpack.controller.budget_feed import Budgets
from binpack.controller.writer import Outcome
from fleet import labels
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.plan import Reason
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.planning import running

SEAT = Berth(node="n1", devices=("0",))


def low(name="low", device="0", **words):
    return a_pod(name, whole=1, node="n1", devices=(device,), **words)


def urgent(name="urgent", **words):
    return a_pod(name, **({"whole": 1, "priority": 9} | words))


def verbs(bridge, *which):
    return [verb for verb, _, _ in bridge.writer.calls if verb in which]


async def test_the_seat_is_written_then_others_go_then_the_pod_is_pinned():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(2)
        assert verbs(bridge, "seat", "evict", "pin") == ["seat", "evict"]
        assert bridge.world.waiting.get("uid-urgent").reason is Reason.SEAT_AWAITED
        bridge.catch_up()
        await bridge.pass_s(30)
        assert verbs(bridge, "seat", "evict", "pin") == ["seat", "evict"]
        bridge.lose("uid-low")
        await bridge.pass_s(1)
        assert verbs(bridge, "seat", "evict", "pin") == ["seat", "evict", "pin"]
        assert bridge.writer.said("pin") == [SEAT]
        assert bridge.recorder.reasons("low") == ["Preempted"]
        assert "Preempting" in bridge.recorder.reasons("urgent")


async def test_the_freed_room_goes_to_nobody_else():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(2)
        bridge.writer.hold("pin")
        bridge.see(a_pod("thief", whole=1, priority=9))
        bridge.lose("uid-low")
        await bridge.pass_s(20)
        bridge.writer.let_go("pin")
        await bridge.pass_s(2)
        bridge.catch_up()
        assert {pod.name for pod in bridge.writer.pods.values() if pod.pinned_node} == {"urgent"}


async def test_nobody_goes_for_a_pod_that_fits_elsewhere_or_nowhere():
    async with running([a_node("n1", gpus=1), a_node("n2", gpus=1)]) as bridge:
        bridge.see(low())
        bridge.see(urgent(), urgent("wide", whole=8))
        await bridge.pass_s(40)
        assert verbs(bridge, "evict", "seat") == []
        assert bridge.writer.said("pin") == [Berth(node="n2", devices=("0",))]


async def test_an_equal_is_not_made_to_go_and_neither_is_anybody_for_the_meek():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(low(priority=9))
        bridge.see(urgent(), urgent("meek", priority=50, never_preempts=True))
        await bridge.pass_s(40)
        assert verbs(bridge, "evict", "seat") == []


async def test_preemption_can_be_turned_off():
    async with running([a_node("n1", gpus=1)], settings=PlannerSettings(preempts=False)) as bridge:
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(20)
        assert verbs(bridge, "evict", "seat") == []


async def test_as_long_as_budgets_are_not_known_nobody_goes():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.budgets.is_known = False
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(20)
        assert verbs(bridge, "evict", "seat") == []


def guarded(allowed):
    budgets = Budgets()
    budgets.set(DisruptionBudget(namespace="default", name="b", selector=Selector(), allowed=allowed))
    return budgets


async def test_a_budget_that_forbids_it_is_kept():
    async with running([a_node("n1", gpus=1)], budgets=guarded(0)) as bridge:
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(20)
        assert verbs(bridge, "evict", "seat", "disrupt") == []


async def test_a_budget_is_broken_only_where_the_operator_says_so():
    settings = PlannerSettings(preempts_past_budgets=True)
    async with running([a_node("n1", gpus=1)], budgets=guarded(0), settings=settings) as bridge:
        bridge.writer.answer("evict", Outcome.REFUSED)
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(5)
        assert verbs(bridge, "evict", "disrupt") == ["evict", "disrupt"]
        assert "makes room for default/urgent of priority 9 on n1" in bridge.writer.said("disrupt")[0]


async def test_a_victim_that_is_not_let_go_costs_the_seat_after_a_minute():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.writer.answer("evict", *[Outcome.REFUSED] * 100)
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(30)
        assert verbs(bridge, "unseat") == []
        assert 3 <= len(verbs(bridge, "evict")) <= 10
        await bridge.pass_s(60)
        assert len(verbs(bridge, "unseat")) == 1


async def test_a_new_leader_that_finds_a_seat_asks_those_to_go_who_are_still_there():
    async with running([a_node("n1", gpus=2)]) as bridge:
        bridge.see(low(), low("other", "1", priority=20))
        bridge.see(urgent(seat=SEAT))
        await bridge.pass_s(2)
        assert [uid for verb, uid, _ in bridge.writer.calls if verb == "evict"] == ["uid-low"]
        assert verbs(bridge, "seat") == []
        bridge.lose("uid-low")
        await bridge.pass_s(2)
        assert bridge.writer.said("pin") == [SEAT]


async def test_a_new_leader_that_finds_a_free_seat_pins_at_once():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(a_pod("rival", whole=1, priority=99))
        bridge.see(urgent(seat=SEAT))
        await bridge.pass_s(2)
        assert bridge.writer.said("pin")[0] == SEAT
        assert verbs(bridge, "evict") == []


async def test_a_seat_on_a_node_that_is_gone_is_given_up_and_the_pod_planned_again():
    async with running([a_node("n1", gpus=1), a_node("n2", gpus=1)]) as bridge:
        bridge.see(urgent(seat=Berth(node="n9", devices=("0",))))
        await bridge.pass_s(2)
        assert verbs(bridge, "unseat") == ["unseat"]
        bridge.catch_up()
        await bridge.pass_s(2)
        assert len(bridge.writer.said("pin")) == 1


async def test_a_seat_that_one_more_important_took_is_given_up():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(low("chief", priority=100))
        bridge.see(urgent(seat=SEAT))
        await bridge.pass_s(2)
        assert verbs(bridge, "unseat") == ["unseat"]
        assert verbs(bridge, "evict") == []


async def test_a_seated_pod_that_goes_frees_its_seat():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.writer.answer("evict", *[Outcome.REFUSED] * 9)
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(2)
        bridge.lose("uid-urgent", "uid-low")
        bridge.see(a_pod("next", whole=1))
        await bridge.pass_s(1)
        assert bridge.writer.said("pin") == [SEAT]


async def test_a_gang_preempts_as_a_whole_and_pins_once_all_are_gone():
    async with running([a_node("n1", gpus=2)]) as bridge:
        bridge.see(low("a", "0"), low("b", "1"))
        bridge.see(*(urgent(f"g{i}", gang="g", gang_size=2) for i in range(2)))
        await bridge.pass_s(3)
        assert verbs(bridge, "seat", "evict") == ["seat", "seat", "evict", "evict"]
        bridge.catch_up()
        bridge.lose("uid-a")
        await bridge.pass_s(5)
        assert verbs(bridge, "pin") == []
        bridge.lose("uid-b")
        await bridge.pass_s(2)
        assert verbs(bridge, "pin") == ["pin", "pin"]


async def test_another_gate_on_a_seated_pod_costs_the_seat():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(low())
        pod = urgent(seat=SEAT)
        bridge.see(replace(pod, gates=(*pod.gates, "example.com/other")))
        await bridge.pass_s(2)
        assert verbs(bridge, "unseat") == ["unseat"]
        assert verbs(bridge, "pin", "evict") == []
        assert labels.PLAN_GATE in bridge.writer.pods["uid-urgent"].gates


async def test_between_seats_that_take_long_others_have_their_turn_and_each_seat_has_its_own(monkeypatch):
    nodes = [a_node(f"n{number}", gpus=1) for number in range(30)]
    async with running(nodes) as bridge:
        judged, loop = [[]], asyncio.get_running_loop()

        def go_round():
            if judged[-1]:
                judged.append([])
            loop.call_soon(go_round)

        def check_seats(seats, *rest):
            bridge.clock.spend(0.4)
            judged[-1].append(seats[0][0].name)
            return ()

        loop.call_soon(go_round)
        monkeypatch.setattr(proof, "check_seats", check_seats)
        for number in range(30):
            bridge.see(a_pod(f"low{number}", whole=1, node=f"n{number}", devices=("0",)))
            bridge.writer.answer("evict", *[Outcome.CHANGED] * 10)  # nobody goes: they are asked again and again
        for number in range(30):
            seat = Berth(node=f"n{number}", devices=("0",))
            bridge.see(a_pod(f"urgent{number}", whole=1, priority=9, seat=seat))
        for _ in range(90):
            bridge.turns.wake()
            await bridge.pass_s(1)
        assert max(map(len, judged)) <= 3
        assert set(chain(*judged)) == {f"urgent{number}" for number in range(30)}
