"""Gangs with resource claims in the planner's shell: all devices or none, whoever else writes and whoever leads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from binpack.controller.allotter import Allotter
from fleet.dra import DeviceClass
from fleet.plan import Reason
from fleet.pod import Berth, PodClaim
from tests.support.builders import a_node, a_pod
from tests.support.claim_store import ClaimStore, MortalWriter, Strength, devices_held
from tests.support.clock import ManualClock
from tests.support.devices import CLASS, a_device, a_slice
from tests.support.planning import Bridge, running

NODES = ("n0", "n1")


def member(name, *claims, size=4, cores=1, **more):
    pod = a_pod(name, uid=name, milli_cpu=cores * 1000, gang="g", gang_size=size, **more)
    return replace(pod, resource_claims=tuple(PodClaim(name=one, claim=one) for one in claims))


@asynccontextmanager
async def harbour(
    store: ClaimStore, pods=(), *, devices=2, strength: Strength | None = None, cores=8
) -> AsyncIterator[Bridge]:
    """Run a planner over two nodes with two devices each, and the claims of the store."""
    nodes = [a_node(name, gpus=0, milli_cpu=cores * 1000) for name in NODES]
    store.strength = strength or Strength()
    writer = MortalWriter(ManualClock(), store.strength, pods)

    def hand(world, clock) -> Allotter:
        world.desk.set_class(DeviceClass(name=CLASS))
        for name in NODES:
            world.desk.set_slice(a_slice(name, [a_device(f"d{i}") for i in range(devices)]))
        store.watch(world.desk)
        return Allotter(cast(Any, store), world.desk, clock)

    async with running(nodes, writer=writer, allotter=hand) as bridge:
        bridge.catch_up()
        await bridge.pass_s(0.5)
        yield bridge
    store.desks.clear()


def a_store(*names: str) -> ClaimStore:
    store = ClaimStore()
    for name in names:
        store.add(name)
    return store


def quartet():
    return [member(f"p{i}", f"c{i}") for i in range(4)]


def pinned(bridge):
    return {pod.name: pod.pinned_node for pod in bridge.writer.pods.values() if pod.pinned_node}


async def go_on(bridge, seconds=4):
    """Let the watch follow, and time pass."""
    for _ in range(seconds):
        bridge.catch_up()
        await bridge.pass_s(1)


def stands(bridge, store) -> None:
    """Assert that the whole gang is pinned where the devices of its claims are, and no device is had twice."""
    where = pinned(bridge)
    assert sorted(where) == [f"p{i}" for i in range(4)]
    held = devices_held(store.claims())
    assert len(set(held)) == len(held)
    for i in range(4):
        claim = store.claim(f"c{i}")
        assert {result.pool for result in claim.allocation.results} == {where[f"p{i}"]}
        assert [one.uid for one in claim.reserved_for] == [f"p{i}"]


async def test_all_devices_are_allocated_before_the_first_seat_and_all_seats_before_the_first_pin():
    store = a_store(*(f"c{i}" for i in range(4)))
    async with harbour(store) as bridge:
        bridge.writer.hold("seat")
        bridge.see(*quartet())
        await bridge.pass_s(1)
        assert all(claim.allocation is not None for claim in store.claims())
        assert len(bridge.writer.said("seat")) == 4
        bridge.writer.let_go("seat")
        await go_on(bridge)
        verbs = [verb for verb, _, _ in bridge.writer.calls if verb in ("seat", "pin")]
        assert verbs == ["seat"] * 4 + ["pin"] * 4
        assert all(berth.choices == () for berth in bridge.writer.said("seat"))
        stands(bridge, store)
        assert [what for _, what in store.writes].count("status") == 4, "one write gives and reserves"


async def test_a_gang_whose_devices_are_not_there_holds_nothing_and_says_so():
    store = a_store(*(f"c{i}" for i in range(5)))
    async with harbour(store) as bridge:
        bridge.see(*quartet()[:3], member("p3", "c3", "c4"))
        await go_on(bridge)
        assert store.writes == []
        assert bridge.writer.said("seat") == []
        record = bridge.world.waiting.get("p0")
        assert record.reason is Reason.GANG_DOES_NOT_FIT
        assert record.text.startswith("3 of 4 members fit at once")
        assert "their resource claims get no devices beside each other" in record.text


async def test_members_wait_for_the_claims_of_all_of_them():
    store = a_store("c0", "c1", "c2")
    async with harbour(store) as bridge:
        bridge.see(*quartet())
        await go_on(bridge)
        assert store.writes == []
        record = bridge.world.waiting.get("p0")
        assert (record.reason, record.text) == (
            Reason.CLAIM_PENDING,
            "waits for its resource claims: member p3: claim c3 does not exist",
        )
        store.add("c3")
        bridge.turns.wake()
        await go_on(bridge)
        stands(bridge, store)


async def test_a_claim_that_somebody_else_takes_in_between_sends_the_whole_gang_back():
    store = a_store(*(f"c{i}" for i in range(4)))
    store.refuses = {"c2"}
    async with harbour(store) as bridge:
        bridge.see(*quartet())
        await bridge.pass_s(0.5)
        assert bridge.writer.said("seat") == []
        assert devices_held(store.claims()) == [], "what the others were given is taken back"
        await go_on(bridge)
        stands(bridge, store)


async def test_a_gang_that_never_gets_its_devices_is_tried_less_and_less():
    store = a_store(*(f"c{i}" for i in range(4)))
    async with harbour(store) as bridge:
        store.always_refuses = "c3"
        bridge.see(*quartet())
        for _ in range(100):
            await bridge.pass_s(1)
        tries = sum(name == "c3" for name in store.refused)
        assert 4 <= tries <= 9
        assert devices_held(store.claims()) == []
        store.always_refuses = ""
        await go_on(bridge, 32)
        stands(bridge, store)


async def test_a_device_that_another_claim_got_in_between_sends_the_whole_gang_back():
    store = a_store(*(f"c{i}" for i in range(4)), "theirs")
    async with harbour(store, devices=3) as bridge:
        desks, store.desks = store.desks, []  # the watch is late
        bridge.see(*quartet())
        await bridge.pass_s(0.5)
        node, device = store.device("c1")
        store.give("theirs", node, device, "x")
        store.desks = desks
        for claim in [store.claim("theirs"), *(store.claim(f"c{i}") for i in range(4))]:
            desks[0].set_claim(claim)
        await bridge.pass_s(0.1)
        assert bridge.writer.said("seat") == []
        assert store.device("c1") is None
        await go_on(bridge)
        stands(bridge, store)
        assert store.device("theirs") == (node, device)


async def test_a_claim_deleted_in_between_sends_the_whole_gang_back_until_it_is_there_again():
    store = a_store(*(f"c{i}" for i in range(4)))
    async with harbour(store) as bridge:
        bridge.writer.hold("seat")
        bridge.see(*quartet())
        await bridge.pass_s(0.5)
        store.condemn("c1")
        bridge.writer.let_go("seat")
        await go_on(bridge, 6)
        assert bridge.writer.said("pin") == []
        assert all(pod.seat is None for pod in bridge.writer.pods.values())
        assert devices_held(store.claims()) == []
        store.remove("c1")
        store.add("c1")
        bridge.turns.wake()
        await go_on(bridge, 6)
        stands(bridge, store)


async def test_members_that_share_a_claim_go_where_its_device_is_and_reserve_it_by_one_write():
    store = a_store("s", "c3")
    async with harbour(store) as bridge:
        bridge.see(*(member(f"p{i}", "s") for i in range(3)), member("p3", "c3"))
        await go_on(bridge)
        where = pinned(bridge)
        assert len(where) == 4
        assert {where[f"p{i}"] for i in range(3)} == {store.device("s")[0]}
        assert sorted(one.uid for one in store.claim("s").reserved_for) == ["p0", "p1", "p2"]
        assert [name for name, what in store.writes if what == "status"].count("s") == 1


async def test_a_claim_that_pods_outside_the_gang_use_is_joined_where_its_device_is():
    store = a_store("s", "c1", "c2", "c3")
    store.give("s", "n1", "d0", "outside")
    async with harbour(store) as bridge:
        bridge.see(member("p0", "s"), *(member(f"p{i}", f"c{i}") for i in range(1, 4)))
        await go_on(bridge)
        assert pinned(bridge)["p0"] == "n1"
        assert len(pinned(bridge)) == 4
        assert sorted(one.uid for one in store.claim("s").reserved_for) == ["outside", "p0"]


async def test_a_shared_claim_that_others_joined_meanwhile_is_not_taken_back():
    store = a_store("s", "c1", "c2", "c3", "theirs")
    async with harbour(store, devices=3) as bridge:
        desks, store.desks = store.desks, []  # the watch is late
        bridge.see(member("p0", "s"), *(member(f"p{i}", f"c{i}") for i in range(1, 4)))
        await bridge.pass_s(0.5)
        shared = store.device("s")
        store.give("theirs", *store.device("c1"), "x")
        store.give("s", *shared, "p0", "outside")
        store.desks = desks
        for claim in store.claims():
            desks[0].set_claim(claim)
        bridge.writer.hold("seat")
        await bridge.pass_s(0.1)
        assert store.device("s") == shared
        assert [store.device(f"c{i}") for i in (1, 2, 3)] == [None] * 3


@pytest.mark.parametrize("writes", range(1, 17))
async def test_a_leader_killed_after_any_write_leaves_a_gang_that_the_next_one_finishes(writes):
    store = a_store(*(f"c{i}" for i in range(4)))
    async with harbour(store, strength=Strength(writes)) as bridge:
        bridge.see(*quartet())
        await go_on(bridge, 3)
        assert store.strength.made == writes
        left = list(bridge.writer.pods.values())
    async with harbour(store, left) as bridge:
        await go_on(bridge, 12)
        stands(bridge, store)


@pytest.mark.parametrize("writes", range(1, 13))
async def test_a_gang_that_is_never_whole_again_gives_everything_back_whenever_its_leader_was_killed(writes):
    store = a_store(*(f"c{i}" for i in range(4)))
    async with harbour(store, strength=Strength(writes)) as bridge:
        bridge.see(*quartet())
        await go_on(bridge, 3)
        left = [pod for pod in bridge.writer.pods.values() if pod.name != "p1"]
    store.remove("c1")  # the claim of a pod that is gone goes with it
    async with harbour(store, left) as bridge:
        await go_on(bridge, 12)
        assert devices_held(store.claims()) == []
        assert all(pod.seat is None and not pod.pinned_node for pod in bridge.writer.pods.values())
        assert bridge.world.waiting.get("p0").reason is Reason.GANG_INCOMPLETE


@pytest.mark.parametrize("writes", range(1, 9))
async def test_a_gang_whose_room_went_with_its_leader_gives_its_devices_to_whoever_has_room(writes):
    store = a_store(*(f"c{i}" for i in range(4)), "other0", "other1")
    async with harbour(store, strength=Strength(writes)) as bridge:
        bridge.see(*(member(f"p{i}", f"c{i}", cores=3) for i in range(4)))
        await go_on(bridge, 3)
        left = list(bridge.writer.pods.values())
        assert all(pod.seat is None for pod in left), "no seat before all devices are written"
    fillers = [a_pod(f"f{i}", uid=f"f{i}", node=name, milli_cpu=5000) for i, name in enumerate(NODES)]
    small = [
        replace(a_pod(f"s{i}", uid=f"s{i}", milli_cpu=1000), resource_claims=(PodClaim(name="x", claim=f"other{i}"),))
        for i in range(2)
    ]
    async with harbour(store, [*left, *fillers, *small]) as bridge:
        await go_on(bridge, 12)
        assert {pod.name for pod in bridge.writer.pods.values() if pod.pinned_node} == {"s0", "s1"}
        assert len(devices_held(store.claims())) == 2


async def test_a_seat_keeps_its_claims_from_being_given_back_for_others():
    """A pod that shares a claim with a seated gang, and has no room beside it, does not cost the gang its devices."""
    store = a_store("s")
    store.give("s", "n0", "d0", "p0", "big")
    async with harbour(store) as bridge:
        seated = replace(member("p0", "s", size=2), seat=Berth(node="n0"))
        late = replace(member("p1", size=2, cores=4), seat=Berth(node="n1"))
        slow = a_pod("slow", node="n1", milli_cpu=5000, is_terminating=True)
        big = a_pod("big", uid="big", milli_cpu=100_000)
        bridge.see(slow, seated, late, replace(big, resource_claims=(PodClaim(name="s", claim="s"),)))
        await bridge.pass_s(5)
        assert bridge.world.waiting.get("p0").reason is Reason.SEAT_AWAITED
        assert store.device("s") == ("n0", "d0")
        bridge.lose("uid-slow")
        await go_on(bridge)
        assert pinned(bridge) == {"p0": "n0", "p1": "n1"}


async def test_devices_that_a_dead_leader_had_given_to_one_member_are_used():
    store = a_store(*(f"c{i}" for i in range(4)))
    store.give("c2", "n1", "d1", "p2")
    async with harbour(store) as bridge:
        bridge.see(*quartet())
        await go_on(bridge)
        stands(bridge, store)
        assert store.device("c2") == ("n1", "d1")


async def test_members_of_a_job_are_steered_to_the_nodes_of_their_devices_alone():
    store = a_store(*(f"c{i}" for i in range(4)))
    job = replace(a_pod("x").owner, kind="Job")
    async with harbour(store) as bridge:
        bridge.see(*(replace(pod, owner=job) for pod in quartet()))
        await go_on(bridge)
        steered = {pod.name: [one.node for one in pod.candidates] for pod in bridge.writer.pods.values()}
        assert steered == {f"p{i}": [store.device(f"c{i}")[0]] for i in range(4)}


@pytest.mark.parametrize("writes", [3, 7, 9, 14])
async def test_of_two_gangs_for_the_same_devices_one_stands_and_the_other_holds_nothing(writes):
    store = a_store(*(f"{gang}{i}" for gang in "ch" for i in range(4)))
    others = [replace(member(f"q{i}", f"h{i}"), gang="h") for i in range(4)]
    async with harbour(store, strength=Strength(writes)) as bridge:
        bridge.see(*quartet(), *others)
        await go_on(bridge, 3)
        left = list(bridge.writer.pods.values())
    async with harbour(store, left) as bridge:
        await go_on(bridge, 12)
        names = {pod.name[0] for pod in bridge.writer.pods.values() if pod.pinned_node}
        assert len(names) == 1
        assert len(pinned(bridge)) == len(devices_held(store.claims())) == len(set(devices_held(store.claims()))) == 4
        done = [name for name in bridge.writer.pods if name[0] in names]
        for name in done:
            store.remove(f"{'c' if name[0] == 'p' else 'h'}{name[1]}")
        bridge.lose(*done)
        await go_on(bridge, 6)
        assert len(pinned(bridge)) == 4


@pytest.mark.parametrize("fault", [RuntimeError("odd"), ConnectionError("gone")])
async def test_a_claim_that_could_not_be_given_back_is_of_use_again(fault):
    """Whatever went wrong: its pod goes where its devices are once there is room."""
    store = a_store("c")
    store.give("c", "n0", "d0", "p0")
    async with harbour(store) as bridge:
        merge_patch, tries = store.merge_patch, []

        async def fails(path, body, **words):
            tries.append(path)
            raise fault

        store.merge_patch = fails
        bridge.see(a_pod("full", node="n0", milli_cpu=8000))
        alone = a_pod("p0", uid="p0", milli_cpu=1000)
        bridge.see(replace(alone, resource_claims=(PodClaim(name="c", claim="c"),)))
        await go_on(bridge, 5)
        assert tries
        assert bridge.value("berthmaster_faults_total", where="write") >= 1
        store.merge_patch = merge_patch
        bridge.lose("uid-full")
        await go_on(bridge, 5)
        assert pinned(bridge)["p0"] == "n0"
