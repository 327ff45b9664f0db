"""A gang as the victim, in the planner's shell: it goes as a whole or stays, whoever leads meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.config import PlannerSettings
from binpack.controller.budget_feed import Budgets
from binpack.controller.writer import Outcome
from binpack.gangs.roll import Group
from fleet import labels
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.constraints import Requirement
from fleet.pod import Berth, Owner, Phase
from tests.support.builders import a_node, a_pod
from tests.support.planning import running

NODES = [a_node(f"n{i}", gpus=1) for i in range(3)]
SEAT = Berth(node="n0", devices=("0",))


def member(number, size=3, **words):
    words = {"gang": "g", "gang_size": size, "pod_labels": {"app": "a"}} | words
    return a_pod(f"m{number}", whole=1, node=f"n{number}", devices=("0",), **words)


def urgent(name="urgent", **words):
    return a_pod(name, **({"whole": 1, "priority": 9} | words))


def asked(bridge):
    return [uid.removeprefix("uid-") for verb, uid, _ in bridge.writer.calls if verb == "evict"]


def seats(bridge):
    return [uid for verb, uid, _ in bridge.writer.calls if verb == "seat"]


def guarded(allowed):
    selector = Selector(requirements=(Requirement(key="app", operator="In", values=("a",)),))
    budgets = Budgets()
    budgets.set(DisruptionBudget(namespace="default", name="b", selector=selector, allowed=allowed))
    return budgets


async def test_all_of_a_gang_go_those_on_the_seats_node_last():
    async with running(NODES) as bridge:
        bridge.see(*(member(i) for i in range(3)), urgent())
        await bridge.pass_s(2)
        assert sorted(asked(bridge)) == ["m0", "m1", "m2"]
        seat = bridge.writer.said("seat")[0]
        assert asked(bridge)[-1] == f"m{seat.node[1:]}"
        notes = {about: note for about, reason, note in bridge.recorder.events if reason == "Preempted"}
        assert [note.startswith("goes with others of its gang") for _, note in sorted(notes.items())].count(True) == 2
        bridge.catch_up()
        await bridge.pass_s(30)
        assert len(asked(bridge)) == 3
        bridge.lose("uid-m0", "uid-m1", "uid-m2")
        await bridge.pass_s(2)
        assert bridge.writer.said("pin") == [seat]


async def test_a_pod_alone_goes_before_a_gang_even_if_it_is_more_important():
    async with running(NODES) as bridge:
        bridge.see(member(0, 2), member(1, 2), replace(member(2, 0, priority=8), gang=""), urgent())
        await bridge.pass_s(2)
        assert asked(bridge) == ["m2"]


async def test_a_gang_loses_what_it_can_do_without():
    async with running(NODES) as bridge:
        bridge.see(*(member(i, 2) for i in range(3)), urgent(), urgent("second"))
        await bridge.pass_s(2)
        assert sorted(asked(bridge)) == ["m0", "m1", "m2"]  # one for the first pod, for the second the rest
        assert len(seats(bridge)) == 2


async def test_a_gang_loses_no_more_than_it_must():
    async with running(NODES) as bridge:
        bridge.see(*(member(i, 2) for i in range(3)), urgent())
        await bridge.pass_s(20)
        assert len(asked(bridge)) == 1


@pytest.mark.parametrize(
    "stays",
    [
        {"priority": 9},
        {"owner": Owner(kind="DaemonSet", name="d", uid="d")},
    ],
)
async def test_where_one_may_not_go_none_goes(stays):
    async with running(NODES) as bridge:
        bridge.see(member(0), member(1), member(2, **stays), urgent())
        await bridge.pass_s(30)
        assert asked(bridge) == []
        assert seats(bridge) == []


async def test_a_gang_of_which_one_is_on_its_way_to_its_place_stays():
    async with running(NODES) as bridge:
        late = a_pod("m2", whole=1, gang="g", gang_size=3, seat=Berth(node="n2", devices=("0",)))
        bridge.writer.hold("pin")
        bridge.see(member(0), member(1), late, urgent())
        await bridge.pass_s(30)
        assert asked(bridge) == []


@pytest.mark.parametrize(("allowed", "many"), [(2, 0), (3, 3)])
async def test_its_budget_must_let_all_of_them_go(allowed, many):
    async with running(NODES, budgets=guarded(allowed)) as bridge:
        bridge.see(*(member(i) for i in range(3)), urgent())
        await bridge.pass_s(20)
        assert len(asked(bridge)) == many


async def test_past_its_budget_it_goes_as_a_whole_where_the_operator_says_so():
    settings = PlannerSettings(preempts_past_budgets=True)
    async with running(NODES, budgets=guarded(0), settings=settings) as bridge:
        bridge.writer.answer("evict", *[Outcome.REFUSED] * 3)
        bridge.see(*(member(i) for i in range(3)), urgent())
        await bridge.pass_s(5)
        assert len(bridge.writer.said("disrupt")) == 3


async def test_while_one_is_not_let_go_those_on_the_seats_node_are_not_asked():
    async with running(NODES) as bridge:
        bridge.writer.answer("evict", *[Outcome.REFUSED] * 100)
        bridge.see(*(member(i) for i in range(3)), urgent(seat=SEAT))
        await bridge.pass_s(90)
        assert set(asked(bridge)) == {"m1", "m2"}
        assert len(bridge.writer.said("unseat")) == 1


async def test_whoever_was_not_let_go_at_once_is_asked_again_before_the_seat_is_used():
    async with running([a_node("n0", gpus=2)]) as bridge:
        bridge.writer.answer("evict", Outcome.DONE, Outcome.FAILED)
        bridge.see(*(replace(member(0, 2), uid=f"uid-m{i}", name=f"m{i}", devices=(str(i),)) for i in range(2)))
        bridge.see(urgent())
        await bridge.pass_s(2)
        first, other = asked(bridge)
        bridge.catch_up()
        bridge.lose(f"uid-{first}")
        await bridge.pass_s(8)
        assert asked(bridge) == [first, other, other]
        bridge.catch_up()
        bridge.lose(f"uid-{other}")
        await bridge.pass_s(2)
        assert len(bridge.writer.said("pin")) == 1


async def test_whoever_is_never_let_go_does_not_keep_a_free_seat_from_its_pod_for_ever():
    async with running([a_node("n0", gpus=2)]) as bridge:
        bridge.writer.answer("evict", Outcome.DONE, *[Outcome.REFUSED] * 100)
        bridge.see(*(replace(member(0, 2), uid=f"uid-m{i}", name=f"m{i}", devices=(str(i),)) for i in range(2)))
        bridge.see(urgent())
        await bridge.pass_s(2)
        bridge.catch_up()
        bridge.lose(f"uid-{asked(bridge)[0]}")
        await bridge.pass_s(90)
        assert len(bridge.writer.said("pin")) == 1
        assert len(asked(bridge)) < 20


async def test_of_a_surplus_nobody_is_asked_again_once_another_leaves():
    async with running([a_node("n0", milli_cpu=2000)]) as bridge:
        bridge.writer.answer("evict", Outcome.FAILED)
        bridge.see(*(a_pod(f"m{i}", milli_cpu=1000, node="n0", gang="g", gang_size=1) for i in range(2)))
        bridge.see(a_pod("urgent", milli_cpu=1000, priority=9))
        await bridge.pass_s(2)
        (first,) = asked(bridge)
        other = bridge.writer.pods["uid-m1" if first == "m0" else "uid-m0"]
        bridge.see(replace(other, is_terminating=True))
        await bridge.pass_s(20)
        assert asked(bridge) == [first]


@pytest.mark.parametrize("left", [[], [1], [1, 2]])
async def test_a_new_leader_asks_the_rest(left):
    async with running(NODES) as bridge:
        bridge.see(*(member(i, is_terminating=i in left) for i in range(3)), urgent(seat=SEAT))
        await bridge.pass_s(2)
        assert sorted(asked(bridge)) == [f"m{i}" for i in range(3) if i not in left]


@pytest.mark.parametrize("size", [3, None, 0, 1])
async def test_a_pod_group_counts_as_it_says(size):
    async with running(NODES) as bridge:
        if size is not None:
            bridge.world.together.group_seen(Group(namespace="default", name="train", size=size))
        name = f"{labels.POD_GROUP_PREFIX}train"
        bridge.see(*(member(i, 0, gang=name) for i in range(3)), urgent())
        await bridge.pass_s(20)
        assert len(asked(bridge)) == (3 if size in (3, None) else 1)


async def test_who_ended_well_is_missed_no_more():
    async with running(NODES) as bridge:
        job = Owner(kind="Job", name="j", uid="j")
        ended = replace(member(2, owner=job), phase=Phase.SUCCEEDED)
        bridge.see(member(0, owner=job), member(1, owner=job), ended, a_pod("x", whole=1, node="n2", devices=("0",)))
        bridge.see(urgent("a"), urgent("b"))
        await bridge.pass_s(20)
        assert sorted(asked(bridge)) == ["m0", "m1", "x"]

    async with running(NODES[:2]) as bridge:
        ended = replace(member(2, 2, owner=job), phase=Phase.SUCCEEDED)
        bridge.see(member(0, 2, owner=job), member(1, 2, owner=job), ended, urgent())
        await bridge.pass_s(20)
        assert len(asked(bridge)) == 1


async def test_what_a_gang_frees_on_other_nodes_spares_others():
    nodes = [a_node("n0", gpus=1), a_node("n1", gpus=2)]
    async with running(nodes) as bridge:
        bridge.see(member(0, 2), member(1, 2), a_pod("x", whole=1, node="n1", devices=("1",)))
        bridge.see(*(urgent(f"u{i}", gang="u", gang_size=2) for i in range(2)))
        await bridge.pass_s(3)
        assert sorted(asked(bridge)) == ["m0", "m1"]
        bridge.catch_up()
        bridge.lose("uid-m0", "uid-m1")
        await bridge.pass_s(2)
        assert {berth.node for berth in bridge.writer.said("pin")} == {"n0", "n1"}


async def test_nobody_else_goes_for_a_seat_that_a_gang_frees_from_another_node():
    async with running([a_node("n0", gpus=1), a_node("n1", milli_cpu=10_000)]) as bridge:
        gang = {"gang": "g", "gang_size": 2}
        bridge.see(a_pod("x", milli_cpu=5000, node="n1"), a_pod("m1", milli_cpu=5000, node="n1", **gang))
        bridge.see(member(0, 2))
        bridge.see(
            a_pod("first", milli_cpu=5000, priority=9, seat=Berth(node="n1")), urgent(seat=SEAT, created_at_s=1.0)
        )
        await bridge.pass_s(2)
        assert sorted(asked(bridge)) == ["m0", "m1"]


async def test_a_gang_makes_nobody_of_its_own_go():
    async with running(NODES) as bridge:
        bridge.see(member(0, 3), member(1, 3), a_pod("x", whole=1, node="n2", devices=("0",), priority=9))
        bridge.see(urgent("m3", gang="g", gang_size=3))
        await bridge.pass_s(20)
        assert asked(bridge) == []
