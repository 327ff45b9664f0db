"""Gangs in the planner's shell: all or nothing, whatever becomes of the writes, and whoever leads."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import chain

from binpack.controller import usher
from binpack.controller.writer import Outcome
from binpack.gangs.place import Refusal
from binpack.gangs.roll import Group
from fleet import labels
from fleet.plan import Reason, Unplaced
from fleet.pod import Berth, Phase
from tests.support.builders import a_node, a_pod
from tests.support.planning import LOST, running


def nodes(count, gpus=1):
    return [a_node(f"n{i}", gpus=gpus) for i in range(1, count + 1)]


def member(name, gang="g", size=4, **words):
    return a_pod(name, **({"whole": 1} | words), gang=gang, gang_size=size)


def pinned(bridge, letter=""):
    return sorted(pod.name for pod in bridge.writer.pods.values() if pod.pinned_node and pod.name.startswith(letter))


async def test_nobody_is_seated_before_the_last_member_is_there():
    async with running(nodes(4)) as bridge:
        bridge.see(*(member(f"p{i}") for i in range(3)))
        await bridge.pass_s(2)
        assert bridge.writer.said("seat") == []
        record = bridge.world.waiting.get("uid-p0")
        assert (record.reason, record.text) == (
            Reason.GANG_INCOMPLETE,
            "gang g needs 4 members at once; there are 3 so far",
        )
        bridge.see(member("p3"))
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(1)
        assert pinned(bridge) == ["p0", "p1", "p2", "p3"]


async def test_every_seat_is_written_before_the_first_pin():
    async with running(nodes(4)) as bridge:
        bridge.writer.hold("seat")
        bridge.see(*(member(f"p{i}") for i in range(4)))
        await bridge.pass_s(1)
        assert len(bridge.writer.said("seat")) == 4
        assert bridge.writer.said("pin") == []
        bridge.writer.let_go("seat")
        await bridge.pass_s(1)
        verbs = [verb for verb, _, _ in bridge.writer.calls if verb in ("seat", "pin")]
        assert verbs == ["seat"] * 4 + ["pin"] * 4
        assert bridge.writer.said("pin") == bridge.writer.said("seat")


async def test_two_gangs_that_need_the_whole_cluster_follow_each_other():
    async with running(nodes(4)) as bridge:
        for i in range(4):
            bridge.see(member(f"a{i}", "a"), member(f"b{i}", "b"))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert sorted((len(pinned(bridge, "a")), len(pinned(bridge, "b")))) == [0, 4]
        first, other = ("a", "b") if pinned(bridge, "a") else ("b", "a")
        waiting = bridge.world.waiting.get(f"uid-{other}0")
        assert waiting.reason is Reason.GANG_DOES_NOT_FIT
        held = [bridge.world.ledger.berth_of(f"uid-{other}{i}") for i in range(4)]
        assert held == [None] * 4
        done = [replace(bridge.writer.pods[f"uid-{first}{i}"], phase=Phase.SUCCEEDED) for i in range(4)]
        bridge.see(*done)
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert len(pinned(bridge, other)) == 4


async def test_a_gang_that_fits_by_sum_only_holds_nothing_and_lets_others_pass():
    async with running(nodes(2, gpus=3)) as bridge:
        bridge.see(*(member(f"g{i}", size=3, whole=2) for i in range(3)), a_pod("small", whole=3))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert pinned(bridge) == ["small"]
        record = bridge.world.waiting.get("uid-g0")
        assert record.reason is Reason.GANG_DOES_NOT_FIT
        assert bridge.writer.said("seat") == []


async def test_room_that_appears_is_found_by_a_gang_that_waits():
    async with running(nodes(3)) as bridge:
        bridge.see(*(member(f"p{i}") for i in range(4)))
        await bridge.pass_s(2)
        bridge.add_nodes(a_node("n4", gpus=1))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(1)
        assert len(pinned(bridge)) == 4


async def test_where_one_seat_cannot_be_written_all_are_taken_back_and_tried_again():
    async with running(nodes(4)) as bridge:
        bridge.writer.answer("seat", Outcome.DONE, Outcome.CHANGED)
        bridge.see(*(member(f"p{i}") for i in range(4)))
        await bridge.pass_s(0.5)
        assert bridge.writer.said("pin") == []
        assert len(bridge.writer.said("unseat")) == 3
        await bridge.pass_s(10)
        bridge.catch_up()
        await bridge.pass_s(5)
        assert len(pinned(bridge)) == 4
        assert {bridge.writer.pods[f"uid-p{i}"].pinned_node for i in range(4)} == {"n1", "n2", "n3", "n4"}


async def test_a_seat_whose_answer_was_lost_counts():
    async with running(nodes(4)) as bridge:
        bridge.writer.answer("seat", LOST)
        bridge.see(*(member(f"p{i}") for i in range(4)))
        await bridge.pass_s(10)
        bridge.catch_up()
        await bridge.pass_s(5)
        assert len(pinned(bridge)) == 4
        assert bridge.writer.said("unseat") == []


async def test_a_pin_that_fails_keeps_its_seat_until_it_succeeds():
    async with running(nodes(4)) as bridge:
        bridge.writer.answer("pin", Outcome.FAILED, Outcome.FAILED)
        bridge.see(*(member(f"p{i}") for i in range(4)))
        await bridge.pass_s(0.5)
        bridge.see(a_pod("thief", whole=1))
        await bridge.pass_s(20)
        bridge.catch_up()
        await bridge.pass_s(5)
        assert pinned(bridge) == ["p0", "p1", "p2", "p3"]


async def test_a_member_deleted_before_the_pins_gives_all_seats_back():
    async with running(nodes(4)) as bridge:
        bridge.writer.hold("seat")
        bridge.see(*(member(f"p{i}") for i in range(4)))
        await bridge.pass_s(0.5)
        bridge.lose("uid-p2")
        bridge.writer.let_go("seat")
        await bridge.pass_s(5)
        assert pinned(bridge) == []
        assert all(pod.seat is None for pod in bridge.writer.pods.values())
        bridge.see(a_pod("other", whole=1))
        await bridge.pass_s(1)
        assert pinned(bridge) == ["other"]


async def test_a_new_leader_that_finds_all_seats_pins_them():
    async with running(nodes(4)) as bridge:
        seats = [replace(member(f"p{i}"), seat=Berth(node=f"n{i + 1}", devices=("0",))) for i in range(4)]
        bridge.see(a_pod("thief", whole=1, priority=9), *seats)
        await bridge.pass_s(5)
        assert pinned(bridge) == ["p0", "p1", "p2", "p3"]
        assert bridge.writer.said("seat") == []


async def test_a_new_leader_that_finds_some_seats_takes_them_back_first():
    async with running(nodes(5)) as bridge:
        half = [replace(member(f"p{i}"), seat=Berth(node="n1", devices=("0",)) if i == 0 else None) for i in range(4)]
        bridge.see(*half)
        await bridge.pass_s(0.2)
        assert [verb for verb, _, _ in bridge.writer.calls if verb in ("seat", "unseat")][:1] == ["unseat"]
        bridge.catch_up()
        await bridge.pass_s(5)
        bridge.catch_up()
        await bridge.pass_s(5)
        assert len(pinned(bridge)) == 4


async def test_a_new_leader_that_finds_some_pins_finishes_them():
    async with running(nodes(4)) as bridge:
        found = [replace(member(f"p{i}"), seat=Berth(node=f"n{i + 1}", devices=("0",))) for i in range(4)]
        found[0] = member("p0", pin="n1", devices=("0",))
        bridge.see(*found)
        await bridge.pass_s(5)
        assert pinned(bridge) == ["p0", "p1", "p2", "p3"]
        assert bridge.writer.said("unseat") == []


async def test_the_rest_of_a_gang_is_pinned_seat_by_seat_once_some_are():
    async with running(nodes(3)) as bridge:
        bridge.see(a_pod("slow", whole=1, node="n2", devices=("0",), is_terminating=True))
        bridge.see(
            member("p0", size=3, pin="n1", devices=("0",)),
            member("p1", size=3, seat=Berth(node="n2", devices=("0",))),
            member("p2", size=3, seat=Berth(node="n3", devices=("0",))),
        )
        await bridge.pass_s(3)
        assert pinned(bridge) == ["p0", "p2"]
        bridge.lose("uid-slow")
        await bridge.pass_s(2)
        assert pinned(bridge) == ["p0", "p1", "p2"]


async def test_members_of_an_earlier_run_under_the_same_name_do_not_count():
    async with running(nodes(4)) as bridge:
        before = replace(a_pod("x").owner, uid="uid-earlier")
        done = {"phase": Phase.SUCCEEDED, "node": "n1", "devices": ("0",)}
        bridge.see(*(member(f"old{i}", owner=before, **done) for i in range(4)))
        bridge.see(*(member(f"p{i}") for i in range(3)))
        await bridge.pass_s(2)
        assert bridge.world.waiting.get("uid-p0").reason is Reason.GANG_INCOMPLETE
        bridge.see(member("done", **done), member("live", node="n4", devices=("0",)))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert len(pinned(bridge)) == 3, "one that ended well beside others of its run counts as placed"


async def test_a_member_made_anew_after_the_gang_stood_is_placed_alone():
    async with running(nodes(4)) as bridge:
        bridge.see(*(member(f"p{i}", node=f"n{i + 1}", devices=("0",)) for i in range(3)))
        bridge.see(member("old", node="n4", devices=("0",)))
        await bridge.pass_s(1)
        bridge.lose("uid-old")
        bridge.see(member("new"))
        await bridge.pass_s(3)
        bridge.catch_up()
        await bridge.pass_s(3)
        assert pinned(bridge, "new") == ["new"]


async def test_members_beyond_the_size_follow_once_the_gang_stands():
    async with running(nodes(6)) as bridge:
        bridge.see(*(member(f"p{i}") for i in range(6)))
        for _ in range(3):
            await bridge.pass_s(2)
            bridge.catch_up()
        assert len(pinned(bridge)) == 6
        assert len(bridge.writer.said("seat")) == 4


async def test_a_pod_group_says_how_many_are_needed():
    async with running(nodes(4)) as bridge:
        group = labels.POD_GROUP_PREFIX + "train"
        bridge.see(*(member(f"p{i}", group, 0) for i in range(4)))
        await bridge.pass_s(1)
        assert bridge.world.waiting.get("uid-p0").text == (
            "PodGroup train is not there, so nobody knows how many members it needs"
        )
        bridge.world.together.group_seen(Group(namespace="default", name="train", size=4))
        bridge.turns.wake()
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(1)
        assert len(pinned(bridge)) == 4


async def test_members_that_tell_different_sizes_wait_and_say_so():
    async with running(nodes(4)) as bridge:
        bridge.see(member("p0", size=2), member("p1", size=3))
        await bridge.pass_s(1)
        assert "tell different sizes" in bridge.world.waiting.get("uid-p0").text


async def test_members_of_a_job_are_steered_to_their_seats_alone():
    async with running(nodes(4)) as bridge:
        job = replace(a_pod("x").owner, kind="Job")
        bridge.see(*(member(f"p{i}", owner=job) for i in range(4)))
        await bridge.pass_s(1)
        bridge.catch_up()
        await bridge.pass_s(1)
        steered = bridge.writer.said("steer")
        assert sorted(len(candidates) for candidates in steered) == [1, 1, 1, 1]
        assert {candidates[0].node for candidates in steered} == {"n1", "n2", "n3", "n4"}


async def test_a_gang_outranked_by_a_single_pod_lets_it_go_first():
    async with running(nodes(1, gpus=2)) as bridge:
        bridge.see(*(member(f"p{i}", size=2) for i in range(2)), a_pod("urgent", whole=1, priority=5))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert pinned(bridge) == ["urgent"]


async def test_a_gang_is_never_seated_on_what_its_own_turn_gave_to_others():
    async with running(nodes(6)) as bridge:
        bridge.see(*(a_pod(f"single-{i}", whole=1) for i in range(2)), *(member(f"a{i}") for i in range(4)))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert bridge.writer.said("unseat") == []
        given = [pod.pinned_node for pod in bridge.writer.pods.values()]
        assert len(set(given)) == len(given) == 6


async def test_two_gangs_of_one_turn_are_seated_beside_each_other():
    async with running(nodes(8)) as bridge:
        bridge.see(*(member(f"{gang}{i}", gang=gang) for gang in "ab" for i in range(4)))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert bridge.writer.said("unseat") == []
        assert len(pinned(bridge)) == 8


def is_costly(monkeypatch, bridge):
    """Let no gang fit, which takes long to find out; return who was tried, by the round of the event loop."""
    tried, loop = [[]], asyncio.get_running_loop()

    def go_round():
        if tried[-1]:
            tried.append([])
        loop.call_soon(go_round)

    def plan_gang(world, unit):
        bridge.clock.spend(0.4)
        tried[-1].append(unit[0].gang)
        refused = (Unplaced(pod_uid=pod.uid, reason=Reason.GANG_DOES_NOT_FIT) for pod in unit)
        return Refusal(unplaced=tuple(refused), fitted=0, is_proven=True), ()

    loop.call_soon(go_round)
    monkeypatch.setattr(usher, "plan_gang", plan_gang)
    return tried


async def test_between_gangs_that_take_long_pins_and_watches_and_the_lease_have_their_turn(monkeypatch):
    async with running(nodes(1)) as bridge:
        tried = is_costly(monkeypatch, bridge)
        bridge.see(*(member(f"p{i}", gang=f"g{i}", size=1) for i in range(12)))
        await bridge.pass_s(15)
        assert max(map(len, tried)) <= 3
        assert set(chain(*tried)) == {f"g{i}" for i in range(12)}


async def test_each_of_many_gangs_that_take_long_has_its_turn(monkeypatch):
    async with running(nodes(1)) as bridge:
        tried = is_costly(monkeypatch, bridge)
        bridge.see(*(member(f"p{i}", gang=f"g{i}", size=1, created_at_s=float(i)) for i in range(40)))
        for number in range(120):
            bridge.add_nodes(a_node(f"more{number}", gpus=1))  # room appears, and they are due again
            await bridge.pass_s(1)
        times = Counter(chain(*tried))
        assert len(times) == 40
        assert min(times.values()) >= 2


async def test_of_gangs_that_are_gone_nothing_is_remembered(monkeypatch):
    async with running(nodes(1)) as bridge:
        is_costly(monkeypatch, bridge)
        for number in range(5):
            bridge.see(member("p", gang=f"g{number}", size=1, uid=f"u{number}"))
            await bridge.pass_s(2)
            bridge.lose(f"u{number}")
        assert bridge.world.together._rest_until_s
        await bridge.pass_s(60)
        assert not bridge.world.together._rest_until_s
