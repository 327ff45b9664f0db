"""Which pods with resource claims to move, in a cluster with more nodes than are tried exactly."""

from __future__ import annotations

from dataclasses import replace

from binpack.repack.propose import propose
from binpack.repack.values import MakeRoom, MoveReason, Verdict
from fleet.dra import Reserver
from tests.properties.test_moving_claims import AMPLE, Port, claimant, running
from tests.support.builders import a_node
from tests.support.devices import a_claim, a_device, a_request, given

NODES = 20


def scattered(*movable):
    """Nodes of two devices with one pod on each; those named may be moved, the others' claims were made by hand."""
    names = [f"n{number:02}" for number in range(NODES)]
    pods = tuple(running(f"p-{name}", name, f"c-{name}", template="t" if name in movable else "") for name in names)
    claims = tuple(
        replace(
            a_claim(f"c-{name}", **given(name, f"{name}-0")),
            reserved_for=(Reserver(uid=pod.uid, name=pod.name),),
        )
        for name, pod in zip(names, pods, strict=True)
    )
    return Port(
        nodes=tuple(a_node(name, gpus=0, milli_cpu=4000) for name in names),
        devices={name: (a_device(f"{name}-0"), a_device(f"{name}-1")) for name in names},
        pods=pods,
        claims=(*claims, a_claim("w", a_request("dev", 2))),
        waiting=(claimant("u", "w"),),
    )


def found(port):
    desk = port.desk()
    return propose(port.index(desk), port.states(), port.movables(desk), MakeRoom(pods=port.waiting), AMPLE, 0.0)


def test_the_one_node_that_can_be_cleared_is_found_among_many():
    plan = found(scattered("n17"))
    assert plan.verdict is Verdict.REACHED
    (move,) = plan.moves
    assert (move.source.node, move.reason) == ("n17", MoveReason.MAKES_ROOM)
    assert move.target.node != "n17"
    (placement,) = plan.placements
    assert placement.berth.node == "n17"
    assert len(placement.berth.choices[0].allocation.results) == 2


def test_where_nobody_may_be_moved_nothing_is_found():
    assert found(scattered()).verdict is Verdict.NOTHING_FOUND
