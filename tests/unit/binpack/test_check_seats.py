"""The verifier of seats for which others are to go: every rule that it knows is found where it is broken."""

from __future__ import annotations

from dataclasses import replace

from binpack.books import holding_at
from binpack.check_seats import Gang, SeatRule, check_seats
from binpack.dra.check import DeviceRule
from fleet import labels
from fleet.dra import ClaimChoice
from fleet.pod import Berth, Owner, Phase
from tests.support.builders import a_node, a_pod
from tests.support.devices import a_claim, a_claimant, a_desk, a_device, a_slice, given

CARDS = "gpu.example.com"


def choice(claim, *devices, driver=""):
    allocation = given("n1", *devices)["allocation"]
    if driver:
        allocation = replace(allocation, results=tuple(replace(one, driver=driver) for one in allocation.results))
    return ClaimChoice(claim_uid=claim, allocation=allocation)


def rules(seats, victims, pods, claims=(), *, node=None, driver="", leaving=(), kept=None):
    node = a_node("n1", gpus=0, milli_cpu=4000) if node is None else node
    words = {"driver": driver} if driver else {}
    desk = a_desk(a_slice("n1", [a_device("d0"), a_device("d1")], **words), claims=claims)
    for uid, choices in (kept or {}).items():
        desk.keep(uid, choices)
    staying = {"n1": {pod.uid: holding_at(pod, "n1", pod.devices) for pod in pods if pod.uid not in leaving}}
    found = check_seats(seats, victims, {"n1": node}, staying, desk.published(["n1"], going=leaving))
    return {violation.rule for violation in found}


def urgent(**words):
    return replace(a_claimant("urgent", "wanted", priority=9), **words)


def low(name="low", **words):
    return a_pod(name, node="n1", milli_cpu=1000, **words)


def seat(*devices, driver=""):
    return Berth(node="n1", choices=(choice("wanted", *devices, driver=driver),))


WANTED = a_claim("wanted")
HELD = a_claim("held", **given("n1", "d0", pods=["uid-low"]))


def test_a_seat_that_its_victims_make_breaks_nothing():
    assert rules([(urgent(), seat("d0"))], [low()], [low()], [WANTED, HELD]) == set()
    assert rules([(urgent(), seat("d1"))], [], [low()], [WANTED, HELD]) == set()
    assert rules([(urgent(), seat("d0"))], [], [low()], [WANTED, HELD], leaving=["uid-low"]) == set()


def test_a_device_that_nobody_frees_makes_no_seat():
    assert rules([(urgent(), seat("d0"))], [], [low()], [WANTED, HELD]) == {DeviceRule.DEVICE_HELD}
    twin = a_claim("held", **given("n1", "d0", pods=["uid-low", "uid-other"]))
    pods = [low(), low("other")]
    assert rules([(urgent(), seat("d0"))], [low()], pods, [WANTED, twin]) == {DeviceRule.DEVICE_HELD}
    ownerless = a_claim("held", **given("n1", "d0"))
    assert rules([(urgent(), seat("d0"))], [low()], [low()], [WANTED, ownerless]) == {DeviceRule.DEVICE_HELD}


def test_what_is_kept_for_another_seat_makes_none():
    kept = {"other": [choice("else", "d1")]}
    assert rules([(urgent(), seat("d1"))], [], [], [WANTED], kept=kept) == {DeviceRule.DEVICE_KEPT}
    assert rules([(urgent(), seat("d0"))], [], [], [WANTED], kept=kept) == set()
    assert rules([(urgent(), seat("d1"))], [], [], [WANTED], kept={"urgent": kept["other"]}) == set()


def test_room_must_be_there_as_well():
    crowd = [low(f"p{i}", priority=20) for i in range(4)]
    assert rules([(urgent(), seat("d0"))], [], crowd, [WANTED]) == {"milli_cpu"}


def test_nobody_goes_for_an_equal_or_twice_or_from_elsewhere():
    equal = low(priority=9)
    assert rules([(urgent(), seat("d0"))], [equal], [equal], [WANTED, HELD]) == {SeatRule.NOT_LESSER}
    assert rules([(urgent(), seat("d1"))], [low(), low()], [low()], [WANTED]) == {SeatRule.TWICE}
    assert rules([(urgent(), seat("d1"))], [low()], [], [WANTED]) == {SeatRule.NOT_THERE}


def card_held(*pods):
    found = a_claim("held", **given("n1", "d0", pods=pods))
    result = replace(found.allocation.results[0], driver=CARDS)
    return replace(found, allocation=replace(found.allocation, results=(result,)))


def test_a_gpu_that_a_claim_holds_is_no_share_and_one_of_a_record_no_claims():
    node = a_node("n1", gpus=["d0", "d1"], milli_cpu=4000)
    share = a_pod("urgent", whole=1, priority=9)
    berth = Berth(node="n1", devices=("d0",))
    words = {"node": node, "driver": CARDS}
    assert rules([(share, berth)], [low()], [low()], [card_held("uid-low")], **words) == set()
    assert rules([(share, berth)], [], [low()], [card_held("uid-low")], **words) == {"whole device is in use"}
    there = low(whole=1, devices=("d0",))
    mine = [(urgent(), seat("d0", driver=CARDS))]
    assert rules(mine, [there], [there], [WANTED], **words) == set()
    assert rules(mine, [], [there], [WANTED], **words) == {DeviceRule.DEVICE_HELD}


def test_a_gang_is_not_torn_and_goes_from_other_nodes_with_one_that_is_on_the_seats():
    words = {"gang": "g", "gang_size": 2}
    here, there = low("here", **words), a_pod("there", node="n2", **words)
    lone = a_pod("lone", node="n2")
    seats = [(urgent(), seat("d1"))]

    def found(victims, *members, size=2):
        desk = a_desk(a_slice("n1", [a_device("d1")]), claims=[WANTED])
        staying = {"n1": {"uid-here": holding_at(here, "n1", None)}}
        node = a_node("n1", milli_cpu=4000)
        gangs = [Gang(members=members, size=size)] if members else []
        wrong = check_seats(seats, victims, {"n1": node}, staying, desk.published(["n1"]), gangs)
        return {violation.rule for violation in wrong}

    assert found([here, there], here, there) == set()
    assert found([here], here, there) == {SeatRule.GANG_TORN}
    assert found([here], here, there, size=None) == {SeatRule.GANG_TORN}
    assert found([here], here, there, size=1) == set()
    assert found([here], here, there, size=0) == set()
    assert found([here], here, replace(there, is_terminating=True)) == set()
    assert found([here], here, replace(there, gates=(labels.PLAN_GATE,), node_name="")) == set()
    job = Owner(kind="Job", name="j", uid="j")
    ended = replace(there, phase=Phase.SUCCEEDED, owner=job)
    third = replace(there, uid="uid-third", owner=job)
    assert found([here], here, ended, third) == set()
    assert found([here], here, replace(ended, owner=None), third) == {SeatRule.GANG_TORN}
    assert found([here, lone]) == {SeatRule.NOT_THERE}
    assert found([there], here, there) == {SeatRule.NOT_THERE, SeatRule.GANG_TORN}
