"""The verifier of seats for which others are to go: every rule that it knows is found where it is broken."""

from __future__ import annotations

from dataclasses import replace

from binpack.books import holding_at
from binpack.check_seats import SeatRule, check_seats
from binpack.dra.check import DeviceRule
from fleet.dra import ClaimChoice
from fleet.pod import Berth
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
