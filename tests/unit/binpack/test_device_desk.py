"""The books of all claims, what follows of them for the index, and what is said where no device can be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.dra.choose import Chosen, Obstacle, Refused
from binpack.dra.wishes import Pending
from fleet.dra import (
    Capacity,
    DeviceClass,
    DeviceOption,
    DeviceRequest,
    PodClaim,
    RequestPolicy,
    Reserver,
)
from fleet.plan import Placement, Reason, Unplaced
from tests.support.devices import (
    CLASS,
    NANO,
    a_claim,
    a_claimant,
    a_desk,
    a_device,
    a_request,
    a_slice,
    an_index,
    cores,
    given,
)


def names(answer) -> list[str]:
    assert isinstance(answer, Chosen)
    return [result.device for choice in answer.choices for result in choice.allocation.results]


def offer(desk, claim, node="n"):
    desk.set_claim(claim)
    return desk.offer(node, desk.wish(a_claimant("p", claim.name)))


# -- books -----------------------------------------------------------------------------------------------------


def test_what_is_assumed_counts_until_it_shows_or_is_forgotten() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]))
    claim = a_claim("c")
    answer = offer(desk, claim)
    desk.assume("p", answer.choices)
    assert offer(desk, a_claim("d")).obstacle is Obstacle.IN_USE
    desk.set_claim(replace(claim, finalizers=("x",)))  # an older state of the claim changes nothing
    assert offer(desk, a_claim("d")).obstacle is Obstacle.IN_USE
    desk.forget("p")
    assert names(offer(desk, a_claim("d"))) == ["a"]
    desk.assume("p", answer.choices)
    desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
    desk.forget("p")
    assert offer(desk, a_claim("d")).obstacle is Obstacle.IN_USE
    desk.set_claim(claim)
    assert desk.changes.take_room()
    assert names(offer(desk, a_claim("d"))) == ["a"]


def test_a_claim_is_being_given_back_until_it_shows_another_version() -> None:
    held = a_claim("c", resource_version="5", **given("n", "a"))
    desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]), claims=[held])
    desk.releasing.add("c")
    desk.set_claim(held)  # a list of a state before
    assert isinstance(desk.wish(a_claimant("p", "c")), Pending)
    desk.set_claim(a_claim("c", resource_version="9", **given("n", "b")))  # the watch missed that it had none
    assert not isinstance(desk.wish(a_claimant("p", "c")), Pending)
    assert desk.releasing == set()


def test_a_claim_of_the_same_name_made_anew_holds_nothing_of_the_old_one() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]), claims=[a_claim("c", **given("n", "a"))])
    desk.set_claim(replace(a_claim("c"), uid="other"))
    assert names(offer(desk, a_claim("d"))) == ["a"]


def test_two_claims_on_one_device_are_rivals() -> None:
    first, second = a_claim("c", **given("n", "a")), a_claim("d", **given("n", "a"))
    desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]), claims=[first, second])
    assert desk.rivals(first) == ("d",)
    desk.set_claim(a_claim("d", **given("n", "b")))
    assert desk.rivals(first) == ()


def test_gpus_that_pods_hold_by_record_are_no_claims_and_the_other_way_round() -> None:
    desk = a_desk(a_slice("n", [a_device("g0"), a_device("g1")], driver="gpu.example.com"))
    desk.set_node("n", {}, ("g0",))
    assert names(offer(desk, a_claim("c"))) == ["g1"]
    assert desk.held_on("n") == frozenset()
    holder = a_claim("h", **given("n", "g1"))
    result = replace(holder.allocation.results[0], driver="gpu.example.com")
    desk.set_claim(replace(holder, allocation=replace(holder.allocation, results=(result,))))
    assert desk.held_on("n") == {"g1"}
    assert isinstance(offer(desk, a_claim("c")), Refused)
    desk.set_node("n", {}, ())
    assert names(offer(desk, a_claim("c"))) == ["g0"]


# -- in the index ----------------------------------------------------------------------------------------------


def test_the_index_places_where_room_and_devices_are_and_fills_begun_nodes() -> None:
    desk = a_desk(*(a_slice(node, [a_device(f"{node}{i}") for i in range(4)]) for node in ("a", "b", "c")))
    index = an_index(desk, cores("a", 1), cores("b", 8), cores("c", 8), cores("empty", 64))
    for number in range(3):
        desk.set_claim(a_claim(f"c{number}"))
    desk.set_claim(a_claim("holder", **given("c", "c0")))
    pods = [a_claimant(f"p{number}", f"c{number}", cores=2) for number in range(3)]
    for number, pod in enumerate(pods):
        answer = index.place(pod)
        assert isinstance(answer, Placement)
        assert answer.berth.node == "c"
        index.take(pod, answer.berth)
        assert answer.berth.choices[0].claim_uid == f"c{number}"
    desk.set_claim(a_claim("more"))
    assert index.place(a_claimant("p", "more", cores=2)).berth.node == "b"


def test_pods_of_one_plan_that_share_a_claim_go_to_one_node() -> None:
    desk = a_desk(*(a_slice(node, [a_device(f"{node}{i}")]) for node in ("a", "b") for i in range(1)))
    index = an_index(desk, cores("a"), cores("b"))
    desk.set_claim(a_claim("shared"))
    first, second = a_claimant("p", "shared"), a_claimant("q", "shared")
    answer = index.place(first)
    index.take(first, answer.berth)
    other = index.place(second)
    assert other.berth.node == answer.berth.node
    assert other.berth.choices == ()
    index.give_back(first, answer.berth)
    assert index.place(second).berth.choices


@pytest.mark.parametrize(
    ("claims", "pod", "reason", "words"),
    [
        ([], a_claimant("p", "absent"), Reason.CLAIM_PENDING, "claim absent does not exist"),
        (
            [],
            a_claimant("p", resource_claims=(PodClaim(name="gpu"),)),
            Reason.CLAIM_PENDING,
            "claim gpu is not made yet",
        ),
        ([a_claim("c", is_terminating=True)], a_claimant("p", "c"), Reason.CLAIM_PENDING, "being deleted"),
        ([a_claim("c", problem="bad")], a_claimant("p", "c"), Reason.CLAIM_PENDING, "cannot be read: bad"),
        ([a_claim("c", unmodelled="odd")], a_claimant("p", "c"), Reason.LEFT_TO_SCHEDULER, "odd"),
        (
            [a_claim("c", a_request(selectors=("sets.contains([1], [1])",)))],
            a_claimant("p", "c"),
            Reason.LEFT_TO_SCHEDULER,
            "cannot be evaluated",
        ),
        (
            [a_claim("c", DeviceRequest(name="x", options=(DeviceOption(class_name="none"),)))],
            a_claimant("p", "c"),
            Reason.CLAIM_PENDING,
            "no device class none",
        ),
        ([a_claim("c", a_request(count=3))], a_claimant("p", "c"), Reason.CLAIM_UNSATISFIED, "has 3 device(s) for dev"),
        (
            [a_claim("c", a_request(count=2)), a_claim("h", **given("n", "a"))],
            a_claimant("p", "c"),
            Reason.CLAIM_UNSATISFIED,
            "best node n has 1 free of 2 device(s) for dev",
        ),
        ([a_claim("c", **given("m", "a"))], a_claimant("p", "c"), Reason.CLAIM_UNSATISFIED, "allocated on a node"),
        ([a_claim("c")], a_claimant("p", "c", cores=99), Reason.INSUFFICIENT, "milli_cpu"),
        (
            [a_claim("c", a_request(selectors=('device.attributes["x.com"].y == 1',)))],
            a_claimant("p", "c"),
            Reason.CLAIM_UNSATISFIED,
            "fails on dev.example.com/a",
        ),
        (
            [
                replace(
                    a_claim("c", **given("n", "a")),
                    reserved_for=tuple(Reserver(uid=str(i), name=str(i)) for i in range(256)),
                )
            ],
            a_claimant("p", "c"),
            Reason.CLAIM_PENDING,
            "in use by 256 pods",
        ),
    ],
)
def test_a_pod_without_devices_says_why(claims, pod, reason, words) -> None:
    desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]), claims=claims)
    answer = an_index(desk, cores("n")).place(pod)
    assert isinstance(answer, Unplaced)
    assert answer.reason is reason
    assert words in answer.detail


def test_nothing_is_planned_before_all_claims_are_known() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]), claims=[a_claim("c")])
    desk.is_synced = False
    found = desk.wish(a_claimant("p", "c"))
    assert isinstance(found, Pending)
    assert found.reason is Reason.CLAIM_PENDING


def test_a_pod_whose_template_wants_no_claim_is_like_any_other() -> None:
    desk = a_desk()
    pod = a_claimant("p", resource_claims=(PodClaim(name="gpu", is_none=True),))
    assert an_index(desk, cores("n")).place(pod).berth.node == "n"


def test_answers_follow_every_change_of_devices_claims_and_nodes() -> None:
    desk = a_desk(a_slice("a", [a_device("a0")]), nodes=["b"])
    index = an_index(desk, cores("a"), cores("b"))
    pod = a_claimant("p", "c")
    desk.set_claim(a_claim("c"))
    assert index.place(pod).berth.node == "a"
    desk.set_claim(a_claim("h", **given("a", "a0")))
    assert isinstance(index.place(pod), Unplaced)
    desk.set_slice(a_slice("b", [a_device("b0")]))
    assert index.place(pod).berth.node == "b"
    index.remove_node("b")
    assert isinstance(index.place(pod), Unplaced)
    index.set_node(cores("b"))
    assert index.place(pod).berth.node == "b"
    desk.remove_slice("b-dev.example.com")
    assert isinstance(index.place(pod), Unplaced)
    desk.remove_claim("h")
    assert index.place(pod).berth.node == "a"
    desk.set_class(DeviceClass(name=CLASS, selectors=("false",)))
    assert isinstance(index.place(pod), Unplaced)


def test_amounts_shared_by_claims_add_up() -> None:
    policy = RequestPolicy(default=NANO, least=NANO, step=NANO)
    card = a_device("a", capacity={"memory": Capacity(value=10 * NANO, policy=policy)}, is_multiple=True)
    desk = a_desk(a_slice("n", [card]))
    wanted = a_request(capacity=(("memory", 4 * NANO),))
    for name in ("c0", "c1"):
        claim = a_claim(name, wanted)
        answer = offer(desk, claim)
        assert answer.choices[0].allocation.results[0].consumed == (("memory", 4 * NANO),)
        desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
    assert offer(desk, a_claim("c2", wanted)).obstacle is Obstacle.IN_USE
    assert names(offer(desk, a_claim("c3"))) == ["a"]
    ids = {claim.allocation.results[0].share_id for claim in desk.claims.values() if claim.allocation}
    assert len(ids) == 2
