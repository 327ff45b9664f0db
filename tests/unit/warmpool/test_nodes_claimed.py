"""One node, tick by tick: through a claim to serving."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.claim import Claim, firm, format_claim
from tests.support.warm_world import IMAGE, World, a_world_of_one, warm_world
from warmpool.nodes.action import Drawn, Unclaim
from warmpool.values import NodeState, Why

SOFT = Claim(set_id="s", pods=("u1",), seconds=30, token="t")
FIRM = firm(SOFT, token="t2", seconds=600)


@pytest.fixture
def world() -> World:
    return a_world_of_one()


def test_a_soft_claim_keeps_others_off_and_lapses(world: World) -> None:
    warm_world(world)
    world.target = 1
    world.change("w1", claim=format_claim(SOFT))
    plan = world.tick(10.0)
    assert world.state("w1") is NodeState.CLAIMED
    assert plan.position == 0
    assert sum(count for _, count in plan.orders) == 1, "the refill starts at the claim"
    world.tick(39.0)
    assert world.state("w1") is NodeState.CLAIMED
    world.tick(40.0)
    assert [unclaim.why for unclaim in world.done(Unclaim)] == [Why.CLAIM_LAPSED]
    assert world.facts["w1"].claim == ""
    assert world.state("w1") is NodeState.WARM
    assert world.done(Drawn) == [], "a soft claim that lapsed was no draw"


def test_a_draw_is_counted_once_from_claim_to_pods(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(SOFT))
    world.tick(1.0)
    world.change("w1", claim=format_claim(FIRM))
    world.tick(2.0)
    world.pods["w1"] = ("u1",)
    world.tick(3.0)
    world.tick(4.0)
    assert [(drawn.pods, drawn.was_warm) for drawn in world.done(Drawn)] == [(("u1",), True)]
    assert world.state("w1") is NodeState.SERVING
    assert world.facts["w1"].warm == ""
    assert world.facts["w1"].claim == "", "its pods are here"
    assert world.facts["w1"].is_protected
    world.pods["w1"] = ()
    world.tick(5.0)
    assert world.state("w1") is NodeState.WARM, "empty again, and still proven"
    assert not world.facts["w1"].is_protected


def test_a_claim_stands_while_some_of_its_pods_are_under_way(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(replace(FIRM, pods=("u1", "u2"))))
    world.tick(1.0)
    world.pods["w1"] = ("u1",)
    world.tick(2.0)
    assert world.facts["w1"].claim
    world.pods["w1"] = ("u1", "u2")
    world.tick(3.0)
    world.tick(4.0)
    assert world.facts["w1"].claim == ""


def test_pods_that_come_without_a_claim_are_draws(world: World) -> None:
    warm_world(world)
    world.pods["w1"] = ("u9",)
    world.tick(1.0)
    assert [drawn.pods for drawn in world.done(Drawn)] == [("u9",)]
    world.pods["w1"] = ("u9", "u10")
    world.tick(2.0)
    assert len(world.done(Drawn)) == 1, "a serving node has room of its own"


def test_a_lost_proof_voids_a_soft_claim_and_not_a_firm_one(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(SOFT), devices=0)
    world.tick(1.0)
    assert world.state("w1") is NodeState.REGISTERED
    assert [unclaim.why for unclaim in world.done(Unclaim)] == [Why.CLAIM_VOID]
    assert world.pool.readiness_taint in world.facts["w1"].taints
    world.change("w1", claim=format_claim(FIRM))
    world.tick(2.0)
    assert world.state("w1") is NodeState.CLAIMED


def test_each_text_of_a_claim_lapses_by_its_own_first_sight(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(SOFT))
    world.tick(10.0)
    world.change("w1", claim=format_claim(FIRM))
    world.tick(20.0)
    world.tick(619.0)
    assert world.state("w1") is NodeState.CLAIMED
    world.tick(620.0)
    assert world.state("w1") is NodeState.WARM


def test_a_claim_whose_pods_came_and_went_is_spent(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(replace(FIRM, pods=("u1", "u2"))))
    world.tick(1.0)
    for now_s, pods in ((2.0, ("u1",)), (3.0, ())):
        world.pods["w1"] = pods
        world.tick(now_s)
        assert world.facts["w1"].claim, "its other pod may still come"
    world.pods["w1"] = ("u2",)
    world.tick(4.0)
    assert [unclaim.why for unclaim in world.done(Unclaim)] == [Why.CLAIM_SPENT]


def test_a_claim_whose_pods_were_there_for_a_moment_does_not_hold_the_node(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(FIRM))
    world.pods["w1"] = ("u1",)
    world.tick(1.0)
    assert world.facts["w1"].claim, "not while others could claim the node"
    world.pods["w1"] = ()
    world.tick(2.0)
    assert world.state("w1") is NodeState.WARM
    assert (world.facts["w1"].claim, world.facts["w1"].warm) == ("", IMAGE.pinned)


def test_a_claim_whose_pods_are_no_more_is_not_waited_out(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(replace(FIRM, pods=("u1", "u2"))))
    world.gone = frozenset({"u1", "u2"})
    world.tick(1.0)
    assert world.facts["w1"].claim, "they may just have been made, and not been seen yet"
    world.gone = frozenset({"u1"})
    world.tick(12.0)
    assert world.state("w1") is NodeState.CLAIMED
    world.gone = frozenset({"u1", "u2"})
    world.tick(13.0)
    assert [unclaim.why for unclaim in world.done(Unclaim)] == [Why.CLAIM_SPENT]
    assert world.state("w1") is NodeState.WARM
