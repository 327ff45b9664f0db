"""Preemption by pods with resource claims, and of them: a device is given once its claim is free, to nobody else."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller import preempting, proof, usher
from fleet.dra import DeviceClass
from fleet.plan import Reason
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.devices import CLASS, a_claim, a_claimant, a_device, a_request, a_slice, given
from tests.support.planning import running

GPU_DRIVER = "gpu.example.com"


def publish(bridge, *nodes, devices=1, driver=""):
    desk = bridge.world.desk
    desk.is_synced = True
    desk.set_class(DeviceClass(name=CLASS))
    for name in nodes:
        words = {"driver": driver} if driver else {}
        desk.set_slice(a_slice(name, [a_device(f"{name}-{i}") for i in range(devices)], **words))


def tenant(name, node="n1", **words):
    return a_pod(name, node=node, milli_cpu=1000, **words)


def urgent(name="urgent", claim="wanted", **words):
    return replace(a_claimant(f"uid-{name}", claim, priority=9, **words), name=name)


def held(claim, node, device, *pods):
    return a_claim(claim, **given(node, device, pods=pods))


def free(bridge, uid):
    claim = bridge.world.desk.claims[uid]
    bridge.world.desk.set_claim(replace(claim, allocation=None, reserved_for=()))
    bridge.turns.wake()


def calls(bridge):
    return [
        (verb, uid.removeprefix("uid-")) for verb, uid, _ in bridge.writer.calls if verb in ("seat", "evict", "pin")
    ]


def pinned(bridge):
    return [
        (what.node, [result.device for choice in what.choices for result in choice.allocation.results])
        for what in bridge.writer.said("pin")
    ]


async def test_the_seat_first_then_the_eviction_then_the_device_once_its_claim_is_free():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
        bridge.world.desk.set_claim(a_claim("wanted"))
        bridge.see(tenant("low"))
        bridge.see(urgent())
        await bridge.pass_s(2)
        assert calls(bridge) == [("seat", "urgent"), ("evict", "low")]
        assert bridge.writer.said("seat") == [Berth(node="n1")]
        assert bridge.world.waiting.get("uid-urgent").reason is Reason.SEAT_AWAITED
        bridge.catch_up()
        bridge.lose("uid-low")
        await bridge.pass_s(30)
        assert calls(bridge)[2:] == []
        free(bridge, "low")
        await bridge.pass_s(2)
        assert calls(bridge)[2:] == [("pin", "urgent")]
        assert pinned(bridge) == [("n1", ["n1-0"])]


async def test_while_a_claim_of_one_who_went_is_not_free_yet_nobody_else_is_asked():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1", devices=2)
        for number, name in enumerate(("a", "b")):
            bridge.world.desk.set_claim(held(name, "n1", f"n1-{number}", f"uid-{name}"))
        bridge.world.desk.set_claim(a_claim("wanted"))
        bridge.see(tenant("a"), tenant("b", priority=1))
        bridge.see(urgent())
        await bridge.pass_s(2)
        bridge.catch_up()
        bridge.lose("uid-a")
        await bridge.pass_s(60)
        assert calls(bridge) == [("seat", "urgent"), ("evict", "a")]


async def test_the_freed_device_goes_to_nobody_else():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
        for name in ("wanted", "stolen"):
            bridge.world.desk.set_claim(a_claim(name))
        bridge.see(tenant("low"))
        bridge.see(urgent())
        await bridge.pass_s(2)
        bridge.writer.hold("pin")
        bridge.see(urgent("thief", "stolen"))
        bridge.catch_up("uid-low")
        bridge.lose("uid-low")
        free(bridge, "low")
        await bridge.pass_s(20)
        bridge.writer.let_go("pin")
        await bridge.pass_s(2)
        assert calls(bridge) == [("seat", "urgent"), ("evict", "low"), ("pin", "urgent")]
        assert bridge.world.waiting.get("uid-thief").reason is Reason.CLAIM_UNSATISFIED


async def test_a_new_leader_keeps_the_devices_of_a_seat_from_the_first_turn_on():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
        for name in ("wanted", "stolen"):
            bridge.world.desk.set_claim(a_claim(name))
        bridge.see(tenant("low", is_terminating=True))
        bridge.see(urgent("thief", "stolen", created_at_s=-5.0))
        bridge.see(urgent(seat=Berth(node="n1")))
        await bridge.pass_s(2)
        bridge.lose("uid-low")
        await bridge.pass_s(2)
        assert calls(bridge) == []
        free(bridge, "low")
        await bridge.pass_s(2)
        assert calls(bridge) == [("pin", "urgent")]
        assert bridge.world.waiting.get("uid-thief").reason is Reason.CLAIM_UNSATISFIED
        assert pinned(bridge) == [("n1", ["n1-0"])]


async def test_a_new_leader_that_knows_no_claims_yet_gives_no_seat_up():
    async with running([a_node("n1", gpus=0)]) as bridge:
        bridge.see(urgent(seat=Berth(node="n1")))
        await bridge.pass_s(5)
        assert bridge.writer.said("unseat") == []
        publish(bridge, "n1")
        bridge.world.desk.set_claim(a_claim("wanted"))
        bridge.turns.wake()
        await bridge.pass_s(2)
        assert calls(bridge) == [("pin", "urgent")]


async def test_a_seat_whose_claim_is_gone_is_given_up():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.see(urgent(seat=Berth(node="n1")))
        await bridge.pass_s(2)
        assert len(bridge.writer.said("unseat")) == 1
        bridge.catch_up()
        await bridge.pass_s(2)
        assert bridge.world.waiting.get("uid-urgent").reason is Reason.CLAIM_PENDING


async def test_an_allocation_that_a_dead_leader_wrote_before_the_pin_is_used():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1", devices=2)
        bridge.world.desk.set_claim(held("wanted", "n1", "n1-1", "uid-urgent"))
        bridge.see(urgent(seat=Berth(node="n1")))
        await bridge.pass_s(2)
        assert calls(bridge) == [("pin", "urgent")]
        assert pinned(bridge) == [("n1", [])]


async def test_users_of_one_claim_go_together_or_not_at_all():
    for priority, evicted in ((0, ["a", "b"]), (9, [])):
        async with running([a_node("n1", gpus=0)]) as bridge:
            publish(bridge, "n1")
            bridge.world.desk.set_claim(held("shared", "n1", "n1-0", "uid-a", "uid-b"))
            bridge.world.desk.set_claim(a_claim("wanted"))
            bridge.see(tenant("a"), tenant("b", priority=priority))
            bridge.see(urgent())
            await bridge.pass_s(15)
            assert sorted(name for verb, name in calls(bridge) if verb == "evict") == evicted


async def test_an_equal_keeps_its_device():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
        bridge.world.desk.set_claim(a_claim("wanted"))
        bridge.see(tenant("low", priority=9), tenant("idle"))
        bridge.see(urgent())
        await bridge.pass_s(15)
        assert calls(bridge) == []


def card(claim, device, *pods):
    """A claim that holds a GPU which the node has under the same name."""
    found = a_claim(claim, **given("n1", device, pods=pods))
    result = replace(found.allocation.results[0], driver=GPU_DRIVER)
    return replace(found, allocation=replace(found.allocation, results=(result,)))


async def test_a_pod_that_asks_a_gpu_gets_the_one_that_a_claim_held():
    async with running([a_node("n1", gpus=["n1-0"])]) as bridge:
        publish(bridge, "n1", driver=GPU_DRIVER)
        bridge.world.desk.set_claim(card("low", "n1-0", "uid-low"))
        bridge.see(tenant("low"))
        bridge.see(a_pod("urgent", whole=1, priority=9))
        await bridge.pass_s(2)
        assert calls(bridge) == [("seat", "urgent"), ("evict", "low")]
        bridge.catch_up()
        bridge.lose("uid-low")
        await bridge.pass_s(10)
        assert len(calls(bridge)) == 2
        free(bridge, "low")
        await bridge.pass_s(2)
        assert calls(bridge)[2:] == [("pin", "urgent")]
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("n1-0",))]


async def test_a_claim_gets_the_gpu_that_a_pod_held_by_its_record():
    async with running([a_node("n1", gpus=["n1-0"])]) as bridge:
        publish(bridge, "n1", driver=GPU_DRIVER)
        bridge.world.desk.set_claim(a_claim("wanted"))
        bridge.see(a_pod("low", whole=1, node="n1", devices=("n1-0",)))
        bridge.see(urgent())
        await bridge.pass_s(2)
        assert calls(bridge) == [("seat", "urgent"), ("evict", "low")]
        bridge.catch_up()
        bridge.lose("uid-low")
        await bridge.pass_s(2)
        assert calls(bridge)[2:] == [("pin", "urgent")]
        assert pinned(bridge) == [("n1", ["n1-0"])]


async def test_what_was_kept_is_free_again_when_the_pod_with_the_seat_goes():
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
        for name in ("wanted", "next"):
            bridge.world.desk.set_claim(a_claim(name))
        bridge.see(tenant("low"))
        bridge.see(urgent())
        await bridge.pass_s(2)
        bridge.lose("uid-urgent", "uid-low")
        free(bridge, "low")
        bridge.see(replace(a_claimant("uid-next", "next"), name="next"))
        await bridge.pass_s(2)
        assert pinned(bridge) == [("n1", ["n1-0"])]


async def test_what_is_free_already_of_a_seat_is_kept_from_the_moment_it_is_decided():
    """A claim of two devices: one is free, the other has to be waited for."""
    for held_up in ("seat", "evict"):
        async with running([a_node("n1", gpus=0)]) as bridge:
            publish(bridge, "n1", devices=2)
            bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
            bridge.world.desk.set_claim(a_claim("wanted", a_request("dev", 2)))
            bridge.world.desk.set_claim(a_claim("stolen"))
            bridge.see(tenant("low"))
            bridge.see(urgent())
            bridge.writer.hold(held_up)
            await bridge.pass_s(2)
            bridge.see(replace(a_claimant("uid-thief", "stolen"), name="thief"))
            await bridge.pass_s(5)
            assert ("pin", "thief") not in calls(bridge), held_up
            bridge.writer.let_go(held_up)
            await bridge.pass_s(2)
            bridge.catch_up()
            bridge.lose("uid-low")
            free(bridge, "low")
            await bridge.pass_s(2)
            assert pinned(bridge) == [("n1", ["n1-0", "n1-1"])]


async def test_a_gang_with_claims_has_others_go_and_is_pinned_as_a_whole_once_all_its_devices_are_free():
    async with running([a_node("n1", gpus=0), a_node("n2", gpus=0)]) as bridge:
        publish(bridge, "n1", "n2")
        for number, name in enumerate(("a", "b"), start=1):
            bridge.world.desk.set_claim(held(name, f"n{number}", f"n{number}-0", f"uid-{name}"))
            bridge.world.desk.set_claim(a_claim(f"wanted-{name}"))
            bridge.see(tenant(name, f"n{number}"))
        bridge.see(*(urgent(f"g{name}", f"wanted-{name}", gang="g", gang_size=2) for name in "ab"))
        await bridge.pass_s(3)
        assert sorted(calls(bridge)) == [("evict", "a"), ("evict", "b"), ("seat", "ga"), ("seat", "gb")]
        bridge.catch_up()
        bridge.lose("uid-a", "uid-b")
        free(bridge, "a")
        await bridge.pass_s(10)
        assert bridge.writer.said("pin") == []
        free(bridge, "b")
        await bridge.pass_s(3)
        assert sorted(what.node for what in bridge.writer.said("pin")) == ["n1", "n2"]


async def test_members_that_share_a_claim_have_seats_where_its_device_is():
    async with running([a_node("n1", gpus=0), a_node("n2", gpus=0)]) as bridge:
        publish(bridge, "n1", "n2")
        for number, name in enumerate(("a", "b"), start=1):
            bridge.world.desk.set_claim(held(name, f"n{number}", f"n{number}-0", f"uid-{name}"))
            bridge.see(tenant(name, f"n{number}"))
        bridge.world.desk.set_claim(a_claim("common"))
        bridge.see(*(urgent(f"g{name}", "common", gang="g", gang_size=2) for name in "ab"))
        await bridge.pass_s(3)
        assert len({what.node for what in bridge.writer.said("seat")}) == 1
        assert len([name for verb, name in calls(bridge) if verb == "evict"]) == 1


async def test_nobody_is_asked_to_go_for_a_seat_that_would_not_hold(monkeypatch):
    """Whatever the search of victims believes: another pod has the device."""
    right = usher.seat_standings

    def wrong(world, *args, **words):
        found = right(world, *args, **words)
        innocent = world.tenants.get("uid-idle")
        return {uid: replace(one, victims=(innocent,)) if one.victims else one for uid, one in found.items()}

    monkeypatch.setattr(usher, "seat_standings", wrong)
    async with running([a_node("n1", gpus=0)]) as bridge:
        publish(bridge, "n1")
        bridge.world.desk.set_claim(held("low", "n1", "n1-0", "uid-low"))
        bridge.world.desk.set_claim(a_claim("wanted"))
        bridge.see(tenant("low"), tenant("idle"))
        bridge.see(urgent())
        await bridge.pass_s(5)
        assert [name for verb, name in calls(bridge) if verb == "evict"] == []
        assert len(bridge.writer.said("unseat")) == 1


async def test_who_shares_a_claim_with_the_urgent_pod_does_not_go_for_it():
    """With the last user of a claim its devices would go, too."""
    for others, milli_cpu in ((["idle"], 3000), ([], 2000)):
        async with running([a_node("n1", gpus=0, milli_cpu=milli_cpu)]) as bridge:
            publish(bridge, "n1")
            bridge.world.desk.set_claim(held("common", "n1", "n1-0", "uid-low"))
            bridge.see(tenant("low"), *(tenant(name, priority=1) for name in others))
            bridge.see(urgent("urgent", "common", cores=2))
            await bridge.pass_s(15)
            assert [name for verb, name in calls(bridge) if verb == "evict"] == others
            assert bridge.value("berthmaster_plan_violations_total") == 0.0


async def test_what_is_far_from_the_seats_costs_their_proof_nothing(monkeypatch):
    judged, asked = [], []
    right, leaves = proof.check_seats, proof.is_leaving

    def check_seats(seats, victims, nodes, staying, published, gangs):
        judged.append(sorted(published.claims))
        return right(seats, victims, nodes, staying, published, gangs)

    def is_leaving(world, uid, going):
        asked.append(uid)
        return leaves(world, uid, going)

    monkeypatch.setattr(proof, "check_seats", check_seats)
    monkeypatch.setattr(proof, "is_leaving", is_leaving)
    async with running([a_node(name, gpus=0, milli_cpu=3000) for name in ("n1", "n2", "far")]) as bridge:
        publish(bridge, "n1", "n2")
        publish(bridge, "far", devices=50)
        desk = bridge.world.desk
        counts, read = [], desk.published
        monkeypatch.setattr(desk, "published", lambda *args, **words: counts.append(1) or read(*args, **words))
        for number in range(50):
            desk.set_claim(held(f"far-{number}", "far", f"far-{number}", f"uid-far-{number}"))
        for name in ("n1", "n2"):
            desk.set_claim(held(f"low-{name}", name, f"{name}-0", f"uid-low-{name}"))
            desk.set_claim(a_claim(f"wanted-{name}"))
            bridge.see(tenant(f"low-{name}", name))
            bridge.see(urgent(f"by-claim-{name}", f"wanted-{name}", seat=Berth(node=name)))
        bridge.see(tenant("big", "far", priority=1), tenant("more", "far"))
        bridge.see(a_pod("plain", milli_cpu=3000, priority=9, seat=Berth(node="far")))
        await bridge.pass_s(2)
        assert sorted(name for verb, name in calls(bridge) if verb == "evict") == ["big", "low-n1", "low-n2", "more"]
        assert sorted(judged) == [[], ["low-n1", "wanted-n1"], ["low-n2", "wanted-n2"]]
        assert len(counts) == 1
        assert not any("far" in uid for uid in asked if uid not in ("uid-big", "uid-more"))


async def test_while_claims_are_not_listed_yet_seats_of_other_nodes_go_on():
    nodes = [a_node(name, gpus=0) for name in ("n1", "n2", "n3", "n4")]
    async with running(nodes) as bridge:
        plain = replace(urgent("ga", "wanted-ga"), resource_claims=())
        gang = (plain, urgent("gb", "wanted-gb"))
        for pod, node in zip(gang, ("n3", "n4"), strict=True):
            bridge.see(replace(pod, gang="g", gang_size=2, seat=Berth(node=node)))
        bridge.see(urgent(seat=Berth(node="n1")))
        bridge.see(a_pod("beside", milli_cpu=1000, priority=9, seat=Berth(node="n1")))
        bridge.see(a_pod("other", milli_cpu=1000, priority=9, seat=Berth(node="n2")))
        await bridge.pass_s(10)
        assert calls(bridge) == [("pin", "other")]
        assert bridge.writer.said("unseat") == []
        publish(bridge, "n1", "n4")
        for name in ("wanted", "wanted-gb"):
            bridge.world.desk.set_claim(a_claim(name))
        bridge.turns.wake()
        await bridge.pass_s(2)
        assert sorted(name for verb, name in calls(bridge) if verb == "pin") == [
            "beside",
            "ga",
            "gb",
            "other",
            "urgent",
        ]


async def test_seats_count_on_what_claims_get_of_their_own_devices_alone(monkeypatch):
    """And on what their own claims got: another seat of it may be on another node."""
    counted, right = {}, preempting.settle

    def settle(floor, held, tenants, seats, *args, taken, **words):
        counted.setdefault(floor.node.name, set()).update(taken)
        return right(floor, held, tenants, seats, *args, taken=taken, **words)

    monkeypatch.setattr(preempting, "settle", settle)
    names = [f"n{number}" for number in range(5)]
    async with running([a_node(name, gpus=0) for name in names]) as bridge:
        publish(bridge, *names)
        for name in names:
            bridge.world.desk.set_claim(a_claim(f"of-{name}"))
            bridge.see(tenant(f"low-{name}", name, is_terminating=True))
        for name in names[:4]:
            bridge.see(urgent(f"at-{name}", f"of-{name}", seat=Berth(node=name)))
        bridge.see(urgent("second", "of-n0", seat=Berth(node="n4")))
        await bridge.pass_s(1)
        assert counted == {"n0": set(), "n1": set(), "n2": set(), "n3": set(), "n4": {"of-n0"}}
