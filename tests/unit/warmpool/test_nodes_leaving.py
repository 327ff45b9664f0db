"""One node, tick by tick: refused, closed, given up, gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.claim import Claim, claim_patch, firm, format_claim
from fleet.constraints import Taint
from fleet.errors import Invalid
from fleet.labels import WARM
from tests.support import json_patch
from tests.support.claims import Nodes
from tests.support.warm_world import World, a_pool, a_world_of_one, proven, warm_world
from warmpool.nodes.action import Evict, Mark, Outcome, Release, Step, Unclaim
from warmpool.nodes.limits import Limits
from warmpool.nodes.marks import is_shut, mark_patch
from warmpool.providers.provider import MachinePhase, Refusal
from warmpool.values import NodeState, Why

SOFT = Claim(set_id="s", pods=("u1",), seconds=30, token="t")
FIRM = firm(SOFT, token="t2", seconds=600)


@pytest.fixture
def world() -> World:
    return a_world_of_one()


def test_a_refused_order_is_told_once_and_forgotten(world: World) -> None:
    world.tick(0.0)
    (name,) = world.nodes
    world.refuse(name)
    world.tick(10.0)
    assert [outcome.why for outcome in world.done(Outcome)] == [Why.INSUFFICIENT_CAPACITY]
    assert world.released() == [name]
    world.tick(20.0)
    assert name not in world.nodes
    assert len(world.done(Outcome)) == 1


def test_an_order_that_just_vanishes_is_a_refusal(world: World) -> None:
    world.tick(0.0)
    (name,) = world.nodes
    del world.machines[name]
    world.tick(10.0)
    assert [outcome.why for outcome in world.done(Outcome)] == [Why.VANISHED]
    assert name not in world.nodes


def test_a_warm_node_that_vanishes_is_no_refusal_of_its_offer(world: World) -> None:
    warm_world(world)
    del world.machines["w1"], world.facts["w1"]
    plan = world.tick(10.0)
    assert world.done(Outcome) == []
    assert sum(count for _, count in plan.orders) == 1


def test_a_node_that_the_provider_no_longer_knows_goes_after_a_while(world: World) -> None:
    warm_world(world)
    del world.machines["w1"]
    world.tick(10.0)
    assert world.state("w1") is NodeState.WARM, "one list may be older than the other"
    for now_s in (71.0, 75.0, 86.0):
        world.tick(now_s)
    assert world.released() == ["w1"]


def test_a_node_that_no_provider_ever_knew_is_not_counted_on_and_goes(world: World) -> None:
    world.facts["stray"] = proven("stray", world.pool)
    plan = world.tick(0.0)
    assert plan.position == 0
    assert sum(count for _, count in plan.orders) == 1
    for now_s in (61.0, 62.0, 73.0):
        world.tick(now_s)
    assert "stray" in world.released()


def test_a_release_without_effect_is_asked_for_again_but_not_at_once(world: World) -> None:
    world.tick(0.0)
    (name,) = world.nodes
    machine = world.machines[name]
    world.refuse(name)
    for now_s in (10.0, 20.0, 69.0, 71.0):
        world.tick(now_s)
        world.machines[name] = replace(machine, phase=MachinePhase.FAILED, refusal=Refusal.QUOTA)
    assert [at_s for at_s, action in world.actions if isinstance(action, Release)] == [10.0, 71.0]


def test_a_claim_that_comes_while_a_node_closes_undoes_it(world: World) -> None:
    warm_world(world)
    world.target = 0
    world.change("w1", claim=format_claim(FIRM))  # written just before the cordon
    world.after_mark = None
    world.nodes["w1"] = replace(world.nodes["w1"], close_why=Why.SURPLUS)
    world.tick(1.0)
    assert world.state("w1") is NodeState.CLAIMED
    assert not world.facts["w1"].is_unschedulable
    assert world.released() == []


def test_a_lapsed_claim_goes_before_the_node_closes(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(SOFT))
    world.tick(1.0)
    world.target = 0
    world.nodes["w1"] = replace(world.nodes["w1"], close_why=Why.SURPLUS, claim_seen_s=-1000.0)
    world.tick(2.0)
    order = [type(action) for at_s, action in world.actions if at_s == 2.0 and isinstance(action, Unclaim | Mark)]
    assert order[0] is Unclaim
    for now_s in (3.0, 20.0):
        world.tick(now_s)
    assert "w1" in world.released()


def test_closing_goes_on_after_a_restart(world: World) -> None:
    warm_world(world)
    world.target = 0
    world.tick(1.0)
    assert world.facts["w1"].closing == "Surplus"
    world.restart()
    for now_s in (2.0, 13.0):
        world.tick(now_s)
    assert world.released() == ["w1"]


def test_a_node_wanted_again_is_taken_back_before_anything_is_ordered(world: World) -> None:
    warm_world(world)
    world.target = 0
    world.tick(1.0)
    assert world.state("w1") is NodeState.RELEASING
    world.target = 1
    world.tick(2.0)
    world.tick(3.0)
    assert world.state("w1") is NodeState.WARM
    assert not world.facts["w1"].is_unschedulable
    assert world.facts["w1"].closing == ""
    assert world.orders == []
    assert world.released() == []


def test_a_node_that_somebody_cordoned_stays_so_when_a_pod_undoes_its_closing(world: World) -> None:
    world.add(proven("w1", world.pool, is_unschedulable=True))
    world.target = 0
    world.tick(0.0)
    assert world.facts["w1"].closing == "Useless"
    world.pods["w1"] = ("u1",)
    world.tick(1.0)
    assert world.facts["w1"].closing == ""
    assert world.facts["w1"].is_unschedulable


def test_a_cordoned_node_is_not_open_and_is_replaced(world: World) -> None:
    warm_world(world)
    world.change("w1", is_unschedulable=True)
    plan = world.tick(1.0)
    assert world.facts["w1"].warm == ""
    assert sum(count for _, count in plan.orders) == 1
    assert world.released() == [], "not before its replacement is under way"


def test_a_kept_node_is_never_given_up(world: World) -> None:
    world.add(proven("w1", world.pool, is_kept=True), proven("w2", world.pool))
    world.target = 0
    for now_s in (0.0, 1.0, 20.0, 40.0):
        world.tick(now_s)
    assert world.released() == ["w2"]


def test_a_spare_node_is_emptied_and_goes(world: World) -> None:
    warm_world(world)
    world.target = 0
    world.pods["w1"] = ("u1", "u2")
    world.tick(1.0)
    world.change("w1", is_spare=True)
    world.tick(2.0)
    assert world.facts["w1"].closing == "Spare"
    world.tick(3.0)
    assert [evict.pods for evict in world.done(Evict)][-1] == ("u1", "u2")
    world.pods["w1"] = ()
    for now_s in (4.0, 20.0):
        world.tick(now_s)
    assert world.released() == ["w1"]


def test_a_node_that_is_no_longer_spare_is_left_to_its_pods(world: World) -> None:
    warm_world(world)
    world.target = 0
    world.pods["w1"] = ("u1",)
    world.tick(1.0)
    world.change("w1", is_spare=True)
    world.tick(2.0)
    world.change("w1", is_spare=False)
    world.tick(3.0)
    assert world.state("w1") is NodeState.SERVING
    assert not world.facts["w1"].is_unschedulable


def test_somebody_else_removing_a_node_is_not_worked_against(world: World) -> None:
    warm_world(world)
    world.change("w1", is_deleting=True)
    world.actions.clear()
    plan = world.tick(1.0)
    assert (world.state("w1"), world.nodes["w1"].why) == (NodeState.RELEASING, Why.GOING)
    assert world.actions == []
    assert sum(count for _, count in plan.orders) == 1


def test_a_step_that_hangs_is_given_up_by_its_own_bound() -> None:
    limits = Limits(warm_timeout_s=10_000.0, step_timeout_s=((NodeState.LAUNCHED, 100.0),))
    world = World(pool=a_pool(), target=1, limits=limits)
    world.order = lambda now_s, offer, count: world.put_order(now_s, offer, count) and None
    world.tick(0.0)
    (name,) = world.nodes
    world.machines[name] = replace(world.machines[name], phase=MachinePhase.LAUNCHED)
    world.tick(10.0)
    world.tick(110.0)
    assert world.released() == []
    world.tick(111.0)
    assert world.released() == [name]
    assert [outcome.why for outcome in world.done(Outcome)] == [None, Why.STEP_TIMEOUT]
    assert [step.duration_s for step in world.done(Step)] == [10.0, 101.0], "what was given up lengthens the bound"


def test_a_failed_node_that_pods_came_to_is_theirs_until_they_end(world: World) -> None:
    warm_world(world)
    world.pods["w1"] = ("u1",)
    world.refuse("w1")
    for now_s in (10.0, 100.0):
        world.tick(now_s)
    assert world.state("w1") is NodeState.FAILED
    assert world.released() == []
    world.pods["w1"] = ()
    for now_s in (110.0, 120.0, 130.0):
        world.tick(now_s)
    assert world.released() == ["w1"]


def test_a_failed_node_that_is_still_open_is_closed_before_it_goes(world: World) -> None:
    warm_world(world)
    world.refuse("w1")
    world.tick(10.0)
    assert (world.facts["w1"].warm, world.facts["w1"].is_unschedulable) == ("", True)
    world.tick(20.0)
    assert world.released() == [], "what is under way may still arrive"
    world.tick(30.0)
    assert world.released() == ["w1"]


@pytest.mark.parametrize(
    ("change", "is_closed"),
    [
        ({}, True),
        ({"warm": "img"}, False),
        ({"claim": "x"}, False),
        ({"is_unschedulable": False}, False),
        ({"closing": ""}, False),
    ],
)
def test_a_node_is_shut_when_neither_pods_nor_claims_can_come(change: dict[str, object], is_closed: bool) -> None:
    facts = proven("w1", a_pool(), closing="Surplus", is_unschedulable=True)
    assert is_shut(replace(facts, **change)) is is_closed  # type: ignore[arg-type]


def test_closing_is_refused_where_a_claim_came_first() -> None:
    api = Nodes(w1="img")
    api.write("/api/v1/nodes/w1", claim_patch("uid-w1", SOFT, warm="img"))
    mark = Mark(node="w1", uid="uid-w1", why=Why.SURPLUS, unschedulable=True, annotations=((WARM, None),))
    with pytest.raises(Invalid):
        api.write("/api/v1/nodes/w1", mark_patch(mark))
    assert api.warm_of("w1") == "img"


def test_a_mark_on_a_node_without_annotations_or_taints_makes_them() -> None:
    bare = {"metadata": {"name": "w1", "uid": "u"}, "spec": {}}
    mark = Mark(
        node="w1",
        uid="u",
        why=Why.PROVEN,
        added=(Taint(key="k", value="v"),),
        has_taints=False,
        annotations=((WARM, "img"),),
        has_annotations=False,
    )
    after = json_patch.apply(bare, mark_patch(mark))
    assert after["metadata"]["annotations"] == {WARM: "img"}
    assert after["spec"]["taints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
