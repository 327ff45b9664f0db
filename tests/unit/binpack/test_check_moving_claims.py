"""The verifier of moves and the claims that go with them: each rule is found where it is broken."""

from __future__ import annotations

from dataclasses import replace

from binpack.check_moves import check_moves
from binpack.dra.check import DeviceRule
from binpack.dra.wishes import imagined
from binpack.moving import afresh
from binpack.repack.values import Movable, Move, MovePlan, MoveReason, Verdict
from fleet.dra import ClaimChoice, Reserver
from fleet.plan import Placement
from fleet.pod import Berth
from tests.properties.test_moving_claims import Port, claimant, running
from tests.support.builders import a_node
from tests.support.devices import a_claim, a_device, a_request, given


def a_port(*more):
    """A pod with the device of the first node; two devices on the second."""
    pod = running("p", "n1", "c")
    claim = replace(a_claim("c", **given("n1", "n1-0")), reserved_for=(Reserver(uid=pod.uid, name=pod.name),))
    return Port(
        nodes=(a_node("n1", gpus=0), a_node("n2", gpus=0)),
        devices={"n1": (a_device("n1-0"),), "n2": (a_device("n2-0"), a_device("n2-1"))},
        pods=(pod,),
        claims=(claim, *more),
    )


def choice(claim, node, *devices):
    return ClaimChoice(claim_uid=claim, allocation=given(node, *devices)["allocation"])


def rules(port, *target, node="n2", placements=(), waiting=()):
    desk = port.desk()
    (pod,) = port.pods
    source = Berth(node="n1", choices=(choice("c", "n1", "n1-0"),))
    movable = Movable(pod=afresh(pod), berth=source)
    move = Move(pod_uid=pod.uid, source=source, target=Berth(node=node, choices=target), reason=MoveReason.EMPTIES_NODE)
    plan = MovePlan(verdict=Verdict.REACHED, moves=(move,), placements=tuple(placements))
    found = check_moves(port.states(), [movable], waiting, plan, None, desk.published(["n1", "n2"]))
    return {violation.rule for violation in found}


LIKE = imagined("c")


def test_a_move_to_a_free_device_breaks_nothing():
    assert rules(a_port(), choice(LIKE, "n2", "n2-1")) == set()


def test_the_successor_needs_devices_for_its_own_claim():
    assert rules(a_port()) == {DeviceRule.CLAIM_OPEN}
    assert rules(a_port(), choice("c", "n2", "n2-0")) == {DeviceRule.CLAIM_GIVEN, DeviceRule.CLAIM_OPEN}
    wrong = rules(a_port(), choice(LIKE, "n2", "n2-0", "n2-1"))
    assert wrong == {DeviceRule.REQUESTS}


def test_a_device_that_somebody_holds_is_no_target():
    held = a_claim("h", **given("n2", "n2-0", pods=["x"]))
    assert rules(a_port(held), choice(LIKE, "n2", "n2-0")) == {DeviceRule.DEVICE_HELD}
    assert rules(a_port(held), choice(LIKE, "n2", "n2-1")) == set()


def test_while_a_pod_moves_it_holds_both_and_afterwards_what_it_held_is_free():
    wanted = a_claim("w", a_request("dev", 1))
    waiting = claimant("u", "w")

    def seated(node, device):
        berth = Berth(node=node, choices=(choice("w", node, device),))
        return [Placement(pod_uid="u", berth=berth)]

    target = choice(LIKE, "n2", "n2-0")
    words = {"waiting": [waiting]}
    assert rules(a_port(wanted), target, placements=seated("n1", "n1-0"), **words) == set()
    assert rules(a_port(wanted), target, placements=seated("n2", "n2-1"), **words) == set()
    assert rules(a_port(wanted), target, placements=seated("n2", "n2-0"), **words) == {DeviceRule.DEVICE_HELD}
