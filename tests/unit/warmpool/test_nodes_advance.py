"""One node, tick by tick: from the order to warm, and proven anew at every tick."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.claim import Claim, firm, format_claim
from fleet.constraints import Taint
from tests.support.warm_world import IMAGE, World, a_pool, a_world_of_one, proven, warm_world
from warmpool.nodes.action import Lead, Outcome, Pull, Step, Tell
from warmpool.nodes.seen import Puller
from warmpool.providers.provider import MachinePhase
from warmpool.values import NodeState, Offer, Shape, Why

SOFT = Claim(set_id="s", pods=("u1",), seconds=30, token="t")
FIRM = firm(SOFT, token="t2", seconds=600)


@pytest.fixture
def world() -> World:
    return a_world_of_one()


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
