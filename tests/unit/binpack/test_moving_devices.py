"""Moves of pods with resource claims as the planner sees them: whose devices are kept, and for how long."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller.moves import Moves
from binpack.dra.choose import Chosen
from binpack.ledger import Ledger
from binpack.moving import Stays, stays
from binpack.relocation.candidates import movables
from binpack.tenants import Tenants
from fleet.dra import PodClaim, Reserver
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.devices import a_claim, a_claimant, a_desk, a_device, a_slice, given

TARGET = Berth(node="n2")
BY = "scale:Deployment/llm@2"


def named(claim, *, template="t"):
    return {"has_claims": True, "resource_claims": (PodClaim(name="dev", claim=claim, template=template),)}


def old(**more):
    words = {"moving_to": TARGET, "moving_by": BY, "is_ready": True} | named("mine")
    return replace(a_pod("old", node="n1"), **(words | more))


def successor(claim="its", **more):
    return replace(a_pod("new"), **(named(claim) | more))


class Harbour:
    """Two nodes with two devices each; the pod that moves has one of the first."""

    def __init__(self, *pods, claims=("its",)):
        self.ledger, self.tenants = Ledger(), Tenants()
        self.desk = a_desk(
            *(a_slice(name, [a_device(f"{name}-{i}") for i in range(2)]) for name in ("n1", "n2")),
            claims=[a_claim("mine", **given("n1", "n1-0", pods=["uid-old"])), *map(a_claim, claims)],
        )
        self.moves = Moves(self.ledger, self.tenants, lambda pod, name: True, self.desk)
        for name in ("n1", "n2"):
            self.ledger.set_node(a_node(name, gpus=0))
        self.see(*pods)

    def see(self, *pods):
        for pod in pods:
            self.ledger.set_pod(pod)
            self.tenants.seen(pod)

    def free_on(self, node):
        """How many devices of a node somebody else could be given."""
        for many in (2, 1):
            claims = [f"x{i}" for i in range(many)]
            for claim in claims:
                self.desk.set_claim(a_claim(claim))
            answer = self.desk.offer(node, self.desk.wish(a_claimant("x", *claims)))
            for claim in claims:
                self.desk.remove_claim(claim)
            if isinstance(answer, Chosen):
                return many
        return 0


def test_a_device_of_the_target_is_kept_from_the_beginning_of_the_move():
    harbour = Harbour(old(moving_to=None, moving_by=""))
    assert (harbour.free_on("n1"), harbour.free_on("n2")) == (1, 2)
    harbour.moves.begin(old(), 0.0)
    assert (harbour.free_on("n1"), harbour.free_on("n2")) == (1, 1)
    harbour.moves.not_begun("uid-old")
    harbour.moves.keep_devices()
    assert harbour.free_on("n2") == 2


def test_a_new_leader_keeps_it_before_anything_is_planned():
    harbour = Harbour(old())
    harbour.moves.keep_devices()
    assert harbour.free_on("n2") == 1
    harbour.see(old(moving_to=None, moving_by=""))
    harbour.moves.keep_devices()
    assert harbour.free_on("n2") == 2


def test_the_successor_gets_a_device_for_a_claim_of_its_own():
    harbour = Harbour(old())
    harbour.moves.keep_devices()
    pod, berth = harbour.moves.seat_for(successor())
    assert pod.moved_from == "uid-old"
    (choice,) = berth.choices
    assert choice.claim_uid == "its"
    assert [result.pool for result in choice.allocation.results] == ["n2"]
    harbour.ledger.assume(pod, berth)
    harbour.desk.assume(pod.uid, berth.choices)
    harbour.moves.keep_devices()
    assert harbour.free_on("n2") == 1


def test_a_successor_without_its_claim_waits_for_it_and_keeps_its_device():
    harbour = Harbour(old(), claims=())
    harbour.moves.keep_devices()
    assert harbour.moves.seat_for(successor("")) is None
    assert harbour.moves.seat_for(successor()) is None
    assert harbour.free_on("n2") == 1
    harbour.desk.set_claim(a_claim("its"))
    assert harbour.moves.seat_for(successor()) is not None


def test_a_pod_with_other_claims_is_no_successor():
    harbour = Harbour(old())
    assert harbour.moves.seat_for(successor(has_claims=False, resource_claims=())) is None
    other = (PodClaim(name="dev", claim="its", template="other"),)
    assert harbour.moves.seat_for(successor(resource_claims=other)) is None


def test_where_the_target_lost_its_devices_there_is_no_seat():
    harbour = Harbour(old())
    for number in range(2):
        harbour.desk.set_claim(a_claim(f"thief{number}", **given("n2", f"n2-{number}", pods=["x"])))
    assert harbour.moves.seat_for(successor()) is None
    assert not harbour.moves.has_devices(successor(), TARGET)


def test_one_that_goes_first_keeps_the_device_until_its_successor_comes():
    harbour = Harbour(old(moving_by="eviction"))
    harbour.moves.keep_devices()
    harbour.moves.goes_first(old(moving_by="eviction"), 0.0)
    harbour.ledger.remove_pod("uid-old")
    harbour.tenants.gone("uid-old")
    harbour.moves.pod_gone("uid-old")
    harbour.desk.remove_claim("mine")
    harbour.moves.keep_devices()
    assert (harbour.free_on("n1"), harbour.free_on("n2")) == (2, 1)
    assert harbour.moves.seat_for(successor()) is not None


def test_claims_made_by_hand_or_shared_keep_a_pod_where_it_is():
    still = old(moving_to=None, moving_by="")
    assert stays(still) is None
    assert stays(replace(still, **named("mine", template=""))) is Stays.HAND_MADE_CLAIM
    harbour = Harbour(still)
    states = {name: harbour.ledger.state(name) for name in ("n1", "n2")}

    def may_move():
        return movables([still], states, lambda pod: (), claimed=harbour.desk.held_alone)

    (movable,) = may_move()
    assert [choice.claim_uid for choice in movable.berth.choices] == ["mine"]
    assert movable.pod.resource_claims == (PodClaim(name="dev", template="t", like="mine"),)
    twin = Reserver(uid="uid-twin", name="twin")
    claim = harbour.desk.claims["mine"]
    harbour.desk.set_claim(replace(claim, reserved_for=(*claim.reserved_for, twin)))
    assert may_move() == ()
    harbour.desk.set_claim(replace(claim, allocation=None))
    assert may_move() == ()
    assert movables([still], states, lambda pod: ()) == ()
