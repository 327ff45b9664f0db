"""One node, tick by tick: from the order to warm, through a claim to serving, and out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.claim import Claim, claim_patch, firm, format_claim
from fleet.constraints import Taint
from fleet.errors import Invalid
from fleet.labels import WARM
from tests.support import json_patch
from tests.support.claims import Nodes
from tests.support.warm_world import IMAGE, World, a_pool, proven
from warmpool.nodes.action import Drawn, Evict, Lead, Mark, Outcome, Pull, Release, Step, Tell, Unclaim
from warmpool.nodes.limits import Limits
from warmpool.nodes.marks import is_shut, mark_patch
from warmpool.nodes.seen import Puller
from warmpool.providers.provider import MachinePhase, Refusal
from warmpool.values import NodeState, Offer, Shape, Why

SOFT = Claim(set_id="s", pods=("u1",), seconds=30, token="t")
FIRM = firm(SOFT, token="t2", seconds=600)


@pytest.fixture
def world() -> World:
    world = World(pool=a_pool(), target=1)
    world.order = lambda now_s, offer, count: world.put_order(now_s, offer, count) and None
    return world


def warm_world(world: World, name: str = "w1") -> World:
    world.add(proven(name, world.pool))
    world.tick(0.0)
    assert world.state(name) is NodeState.WARM
    return world


def test_every_step_says_what_is_missing(world: World) -> None:
    world.tick(0.0)
    (name,) = world.nodes
    story = [
        (10.0, {}, NodeState.ORDERED, Why.NOT_LAUNCHED),
        (40.0, {"phase": MachinePhase.LAUNCHED}, NodeState.LAUNCHED, Why.NOT_REGISTERED),
        (
            90.0,
            {"node": {"is_ready": False, "devices": None, "images": frozenset()}},
            NodeState.REGISTERED,
            Why.NOT_READY,
        ),
        (100.0, {"is_ready": True}, NodeState.REGISTERED, Why.DEVICES_MISSING),
        (110.0, {"devices": 0}, NodeState.REGISTERED, Why.DEVICES_MISSING),
        (200.0, {"devices": 1}, NodeState.DEVICES, Why.IMAGES_MISSING),
        (300.0, {"images": frozenset({IMAGE.pinned})}, NodeState.WARM, Why.PROVEN),
    ]
    for at_s, change, state, why in story:
        if "phase" in change:
            world.machines[name] = replace(world.machines[name], phase=change["phase"])
        elif "node" in change:
            world.facts[name] = proven(name, world.pool, **change["node"])
            world.machines[name] = replace(world.machines[name], node_name=name)
        elif change:
            world.change(name, **change)
        world.tick(at_s)
        assert (world.state(name), world.nodes[name].why) == (state, why)
        if name in world.facts:
            is_open = world.pool.readiness_taint not in world.facts[name].taints
            assert is_open is (state is NodeState.WARM)
            status, reason, _ = world.facts[name].condition or ("", "", "")
            assert (status, reason) == ("True" if is_open else "False", why.value)
    assert world.nodes[name].lead_s == 300.0
    assert [(step.state.value, step.duration_s) for step in world.done(Step)] == [
        ("ordered", 40.0),
        ("launched", 50.0),
        ("registered", 110.0),
        ("devices", 100.0),
    ]
    assert [lead.duration_s for lead in world.done(Lead)] == [300.0]
    assert [outcome.why for outcome in world.done(Outcome)] == [None]
    assert sum(count for _, _, count in world.orders) == 1


def test_nothing_is_written_to_a_node_that_is_as_it_should_be(world: World) -> None:
    warm_world(world)
    world.tick(10.0)
    world.actions.clear()
    for now_s in (20.0, 30.0, 40.0):
        world.tick(now_s)
    assert world.actions == []


def test_others_taints_stay_to_the_letter(world: World) -> None:
    theirs = Taint(key="example.com/theirs", value="x", effect="NoExecute")
    world.add(proven("w1", world.pool, taints=(world.pool.readiness_taint, theirs, world.pool.pool_taint)))
    world.tick(0.0)
    assert world.facts["w1"].taints == (theirs, world.pool.pool_taint)


@pytest.mark.parametrize("pool_taints", [(), (Taint(key="berthmaster.dev/pool", value="other"),)])
def test_the_pool_taint_is_kept_up(world: World, pool_taints: tuple[Taint, ...]) -> None:
    world.add(proven("w1", world.pool, taints=pool_taints))
    world.tick(0.0)
    assert world.facts["w1"].taints == (world.pool.pool_taint,)


@pytest.mark.parametrize(
    ("taint", "state"),
    [
        (Taint(key="node.kubernetes.io/not-ready"), NodeState.REGISTERED),
        (Taint(key="node.kubernetes.io/disk-pressure"), NodeState.REGISTERED),
        (Taint(key="karpenter.sh/unregistered", effect="NoExecute"), NodeState.REGISTERED),
        (Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true"), NodeState.REGISTERED),
        (Taint(key="node.kubernetes.io/unschedulable"), NodeState.WARM),
        (Taint(key="node.kubernetes.io/x", effect="PreferNoSchedule"), NodeState.WARM),
        (Taint(key="theirs"), NodeState.WARM),
    ],
)
def test_a_node_that_the_cluster_bars_is_not_warm(world: World, taint: Taint, state: NodeState) -> None:
    world.add(proven("w1", world.pool, taints=(taint, world.pool.pool_taint, world.pool.readiness_taint)))
    world.tick(0.0)
    assert world.state("w1") is state
    assert taint in world.facts["w1"].taints


def test_models_are_wanted_as_well() -> None:
    world = World(pool=a_pool(models=("https://example.com/m",)), target=1)
    world.add(proven("w1", world.pool))
    world.pullers["w1"] = Puller.PULLING
    world.tick(0.0)
    assert (world.state("w1"), world.nodes["w1"].why) == (NodeState.IMAGES, Why.MODELS_MISSING)
    world.pullers["w1"] = Puller.HOLDING
    world.tick(1.0)
    assert world.state("w1") is NodeState.WARM


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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"is_ready": False}, Why.NOT_READY),
        ({"devices": 0}, Why.DEVICES_MISSING),
        ({"devices": None}, Why.DEVICES_MISSING),
        ({"images": frozenset({"reg/rt:latest"})}, Why.IMAGES_MISSING),
    ],
)
def test_what_was_warm_is_proven_again_every_time(world: World, change: dict[str, object], why: Why) -> None:
    warm_world(world)
    world.change("w1", **change)
    world.tick(1.0)
    assert world.nodes["w1"].why is why
    assert world.facts["w1"].warm == ""
    assert world.pool.readiness_taint in world.facts["w1"].taints
    assert world.nodes["w1"].coming_since_s == 1.0, "its time-out starts anew"


def test_serving_nodes_are_left_alone_whatever_is_missing(world: World) -> None:
    warm_world(world)
    world.pods["w1"] = ("u1",)
    world.change("w1", is_ready=False, devices=0, images=frozenset())
    for now_s in (10.0, 10_000.0, 100_000.0):
        world.tick(now_s)
        assert world.state("w1") is NodeState.SERVING
    assert "w1" not in world.released()


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


def test_images_are_pulled_once_there_is_a_kubelet_and_again_when_the_puller_ended(world: World) -> None:
    world.add(proven("w1", world.pool, images=frozenset(), devices=None, is_ready=False))
    world.pullers["w1"] = Puller.NONE
    world.tick(0.0)
    assert world.done(Pull) == []
    world.change("w1", is_ready=True)
    world.tick(1.0)
    assert [(pull.missing, pull.is_again) for pull in world.done(Pull)] == [((IMAGE.pinned,), False)]
    world.pullers["w1"] = Puller.PULLING
    world.tick(2.0)
    assert len(world.done(Pull)) == 1
    world.pullers["w1"] = Puller.ENDED
    world.tick(3.0)
    assert world.done(Pull)[-1].is_again


def test_a_mounted_image_that_the_node_does_not_list_yet_is_waited_for(world: World) -> None:
    world.add(proven("w1", world.pool, images=frozenset()))
    world.pullers["w1"] = Puller.HOLDING
    for now_s in (0.0, 30.0, 60.0):
        world.tick(now_s)
    assert world.done(Pull) == []
    world.tick(61.0)
    assert world.done(Pull)[-1].is_again


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


def test_a_node_found_after_a_restart_teaches_nothing(world: World) -> None:
    warm_world(world)
    assert world.done(Lead) == []
    assert world.done(Step) == []
    assert world.nodes["w1"].lead_s is None


def test_conditions_tell_used_nodes_without_a_write_per_second(world: World) -> None:
    warm_world(world)
    world.change("w1", claim=format_claim(FIRM))
    for now_s in (1.0, 2.0, 3.0):
        world.tick(now_s)
    tells = [tell for tell in world.done(Tell) if tell.why is Why.CLAIM_STANDS]
    assert len(tells) == 1
    assert tells[0].is_warm


def test_a_free_choice_and_an_offer_read_well() -> None:
    assert str(Offer()) == "any/any"
    assert str(Offer(zone="a", capacity_type="spot")) == "a/spot"
    assert Shape(devices=1).fingerprint != Shape(devices=2).fingerprint
    assert Shape(offers=(Offer(zone="a"),)).fingerprint == Shape().fingerprint


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
