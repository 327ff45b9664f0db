"""Warm nodes in the planner's turns: who may go there, by which claim, and whose miss it is if there is none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from binpack.controller.writer import Outcome
from fleet import labels
from fleet.claim import Claim, format_claim, parse_claim
from fleet.company import Guest, PodTerm, Selector
from fleet.constraints import NodeConstraints, Requirement, Taint, Toleration
from fleet.draw import parse_draw
from fleet.kube.decode_pool import WarmPoolObject, pool_from
from fleet.plan import Reason
from fleet.pod import Berth, Owner
from fleet.pool import Pool
from tests.support.builders import a_node, a_pod
from tests.support.planning import LOST, Bridge, running

IMAGE = "reg.example/llm:1"


def a_warm_node(name="w1", *, gpus=1, pool="g1", warm=IMAGE, claim="", taints=(), is_cordoned=False, **more):
    node = a_node(
        name,
        gpus=gpus,
        is_sharing=False,
        milli_cpu=64_000,
        taints=(Taint(key=labels.POOL, value=pool), *taints),
        labels={labels.POOL: pool},
        is_cordoned=is_cordoned,
        **more,
    )
    return replace(node, pool=pool, warm=warm, claim=claim)


def a_draw(name="p1", *, images=(IMAGE,), gpus=1, **more):
    return replace(a_pod(name, classic=gpus, **more), images=images)


def a_pool(name="g1", *, mode="act", gpus=1, images=(IMAGE,), serves=None) -> Pool:
    import msgspec

    spec = {
        "shape": {"devices": {"count": gpus}, "resources": {"cpu": "64"}},
        "images": [{"reference": image} for image in images],
        "mode": mode,
        "serves": serves or {},
    }
    return pool_from(msgspec.convert({"metadata": {"name": name}, "spec": spec}, WarmPoolObject))


def pins(bridge: Bridge) -> dict[str, str]:
    return {uid: what.node for verb, uid, what in bridge.writer.calls if verb == "pin"}


def aid_of(bridge: Bridge, uid: str):
    return next(aid for _, of, aid in bridge.writer.aids if of == uid)


# -- drawing ---------------------------------------------------------------------------------------------------


async def test_serving_nodes_come_first_and_need_no_claim():
    async with running([a_node("n1", gpus=1, is_sharing=False), a_warm_node()]) as bridge:
        bridge.see(a_draw("a"), a_draw("b"))
        await bridge.pass_s(1)
        assert sorted(pins(bridge).values()) == ["n1", "w1"]
        assert len(bridge.writer.aids) == 1
        assert [name for name, _, _ in bridge.nodes.writes] == ["w1", "w1"]  # soft, then firm


async def test_warm_nodes_are_drawn_with_an_eye_on_who_runs_elsewhere_and_on_the_same_batch():
    selector = Selector(requirements=(Requirement(key="app", operator="In", values=("web",)),))
    apart = PodTerm(key="zone", selector=selector, namespaces=("default",))
    guest = Guest(labels=(("app", "web"),), anti=(apart,))

    def zoned(node, zone):
        return replace(node, labels={**node.labels, "zone": zone})

    warm = [zoned(a_warm_node(f"w{zone}"), zone) for zone in "abc"]
    serving = [zoned(a_node("full", is_sharing=False), "a"), zoned(a_node("n1", gpus=1, is_sharing=False), "b")]
    async with running([*serving, *warm]) as bridge:
        bridge.see(replace(a_pod("there", node="full"), guest=guest))
        bridge.see(*(replace(a_draw(name), guest=guest) for name in ("one", "two", "three")))
        await bridge.pass_s(1)
        assert sorted(pins(bridge).values()) == ["n1", "wc"]


async def test_a_warm_node_is_claimed_before_the_pin_which_brings_the_toleration_and_the_note():
    async with running([a_warm_node()]) as bridge:
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}
        soft, firm = (parse_claim(after[labels.CLAIM]) for _, _, after in bridge.nodes.writes)
        assert (soft.kind, firm.kind) == ("soft", "firm")
        assert soft.pods == firm.pods == ("uid-p1",)
        aid = aid_of(bridge, "uid-p1")
        assert aid.tolerations == (Toleration(key=labels.POOL, value="g1", effect="NoSchedule"),)
        draw = parse_draw(aid.notes[labels.DRAW])
        assert (draw.pool, draw.is_hit, draw.why) == ("g1", True, "w1")
        assert bridge.value("berthmaster_draws_total", pool="g1", outcome="hit") == 1


async def test_replicas_share_a_warm_node_and_its_claim_before_another_is_begun():
    async with running([a_warm_node("w1", gpus=2), a_warm_node("w2", gpus=2)]) as bridge:
        bridge.see(a_draw("a"))
        await bridge.pass_s(1)
        first = pins(bridge)["uid-a"]
        bridge.see(a_draw("b"), a_draw("c"))  # the watch does not show the claim yet
        await bridge.pass_s(1)
        assert pins(bridge)["uid-a"] == first
        assert sorted(pins(bridge).values()) in (["w1", "w1", "w2"], ["w1", "w2", "w2"])
        claim = parse_claim(bridge.nodes.claim_of(first))
        assert set(claim.pods) == {uid for uid, node in pins(bridge).items() if node == first}
        assert claim.is_firm


async def test_the_node_that_holds_the_pods_image_is_preferred():
    other = a_warm_node("w1", pool="g0", warm="reg.example/other:1")
    async with running([other, a_warm_node("w2")]) as bridge:
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w2"}


async def test_a_pod_with_another_image_still_takes_a_warm_node_rather_than_wait():
    async with running([a_warm_node()]) as bridge:
        bridge.see(a_draw(images=("reg.example/other:1",)))
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}


async def test_a_pod_without_devices_takes_no_warm_node_that_has_some():
    async with running([a_warm_node()]) as bridge:
        bridge.see(replace(a_pod(milli_cpu=100), images=("reg.example/web:1",)))
        await bridge.pass_s(1)
        assert not pins(bridge)
        bridge.see(replace(a_pod("router", milli_cpu=100), images=(IMAGE,)))
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-router": "w1"}


@pytest.mark.parametrize(
    "node",
    [
        a_warm_node(warm="", taints=(Taint(key="readiness.k8s.io/g1"),)),
        a_warm_node(is_cordoned=True),
        a_warm_node(claim=format_claim(Claim(set_id="other", pods=("x",), token="1"))),
        a_warm_node(claim="nonsense"),
    ],
    ids=["not warm yet", "closed", "claimed by another", "claimed by who knows whom"],
)
async def test_nobody_goes_to_a_node_that_is_not_open_not_even_who_tolerates_everything(node):
    everything = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
    async with running([node]) as bridge:
        bridge.see(a_draw(constraints=everything), a_draw("q"))
        await bridge.pass_s(5)
        assert not pins(bridge)
        assert not bridge.nodes.writes


async def test_who_tolerates_everything_draws_like_the_others():
    everything = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
    async with running([a_warm_node()]) as bridge:
        bridge.see(a_draw(constraints=everything))
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}
        assert parse_claim(bridge.nodes.claim_of("w1")).pods == ("uid-p1",)
        assert aid_of(bridge, "uid-p1").tolerations == ()


async def test_a_serving_node_of_a_pool_has_room_like_any_other_and_brings_the_toleration():
    async with running([a_warm_node(warm="", gpus=2)]) as bridge:
        bridge.see(a_draw("there", node="w1"), a_draw())
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}
        assert not bridge.nodes.writes
        assert aid_of(bridge, "uid-p1").tolerations
        assert not aid_of(bridge, "uid-p1").notes


async def test_a_node_that_served_and_stands_empty_is_drawn_though_nobody_opened_it_yet():
    agent = a_pod("agent", node="w1", scheduler_name="default-scheduler")
    async with running([a_warm_node(warm="", gpus=2)]) as bridge:
        bridge.see(agent, a_draw("a"))
        await bridge.pass_s(1)
        bridge.see(a_draw("b"))
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-a": "w1", "uid-b": "w1"}
        assert parse_draw(aid_of(bridge, "uid-a").notes[labels.DRAW]).is_hit
        assert not aid_of(bridge, "uid-b").notes, "for the second it is a serving node"


async def test_a_steered_pod_draws_by_claim_too():
    async with running([a_warm_node()]) as bridge:
        bridge.see(a_draw(owner=Owner(kind="Job", name="j", uid="j")))
        await bridge.pass_s(1)
        assert bridge.writer.said("steer") == [(Berth(node="w1"),)]
        assert parse_claim(bridge.nodes.claim_of("w1")).is_firm
        assert bridge.writer.aids[0][2].tolerations


# -- losing ----------------------------------------------------------------------------------------------------


async def test_a_node_that_somebody_else_took_is_left_alone_and_the_pod_takes_the_next():
    async with running([a_warm_node("w1"), a_warm_node("w2")]) as bridge:
        notes = bridge.nodes.objects["w1"]["metadata"]["annotations"]
        notes[labels.CLAIM] = format_claim(Claim(set_id="other", pods=("x",), is_firm=True, token="9"))
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w2"}
        assert parse_claim(bridge.nodes.claim_of("w1")).set_id == "other"
        assert bridge.value("berthmaster_draws_total", pool="g1", outcome="lost") == 1


async def test_a_node_that_was_lost_is_tried_again_once_it_shows_a_change():
    async with running([a_warm_node("w1")]) as bridge:
        notes = bridge.nodes.objects["w1"]["metadata"]["annotations"]
        notes[labels.CLAIM] = format_claim(Claim(set_id="other", pods=("x",), token="9"))
        bridge.see(a_draw())
        await bridge.pass_s(5)
        assert not pins(bridge)
        bridge.catch_up_nodes()
        await bridge.pass_s(1)
        del notes[labels.CLAIM]
        bridge.nodes.objects["w1"]["metadata"]["annotations"] = notes
        bridge.catch_up_nodes()
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}


async def test_a_node_whose_claim_failed_for_no_lasting_reason_is_tried_again():
    async with running([a_warm_node("w1")]) as bridge:
        node = bridge.nodes.objects.pop("w1")  # the API says that it is gone, and the watch never does
        bridge.see(a_draw())
        await bridge.pass_s(5)
        assert not pins(bridge)
        bridge.nodes.objects["w1"] = node
        await bridge.pass_s(35)
        assert pins(bridge) == {"uid-p1": "w1"}


async def test_a_claim_whose_pods_are_gone_is_given_back():
    async with running([a_warm_node("w1")]) as bridge:
        bridge.writer.answer("pin", Outcome.GONE)
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert bridge.nodes.claim_of("w1") == ""


async def test_a_claim_stays_where_the_pins_answer_was_lost():
    async with running([a_warm_node("w1")]) as bridge:
        bridge.writer.answer("pin", LOST)
        bridge.see(a_draw())
        await bridge.pass_s(10)
        assert parse_claim(bridge.nodes.claim_of("w1")).pods == ("uid-p1",)
        assert len(bridge.writer.said("pin")) == 1


async def test_a_lost_answer_to_a_claim_is_read_again_and_is_no_loss():
    async with running([a_warm_node("w1")]) as bridge:
        bridge.nodes.lose = 2
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}


# -- a new leader ----------------------------------------------------------------------------------------------


async def test_a_new_leader_takes_over_the_claims_of_pods_that_still_wait():
    claim = format_claim(Claim(set_id="gone", pods=("uid-p1",), is_firm=True, token="1"))
    async with running() as bridge:
        bridge.world.nodes.is_new = True  # nothing has been looked at yet
        bridge.see(a_draw())
        bridge.add_nodes(a_warm_node("w1", claim=claim), a_warm_node("w2"))
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}
        assert bridge.nodes.claim_of("w2") == ""


async def test_claims_that_came_later_are_never_taken_over():
    claim = format_claim(Claim(set_id="rival", pods=("uid-p1",), is_firm=True, token="1"))
    async with running([a_node()]) as bridge:
        bridge.see(a_draw())
        await bridge.pass_s(1)
        bridge.add_nodes(a_warm_node("w1", claim=claim))
        await bridge.pass_s(2)
        assert not pins(bridge)


# -- missing ---------------------------------------------------------------------------------------------------


async def test_a_pool_that_serves_the_pod_owns_its_miss_for_ever():
    async with running([a_node("n1")]) as bridge:
        bridge.world.pool_seen(a_pool())
        bridge.see(a_draw())
        await bridge.pass_s(1)
        record = bridge.world.waiting.get("uid-p1")
        assert record.reason is Reason.NO_WARM_NODE
        assert "pool g1 (it has no nodes yet)" in record.text
        assert bridge.recorder.reasons("p1") == ["NoWarmNode"]
        (uid, notes), *_ = bridge.writer.notes
        assert uid == "uid-p1"
        assert json.loads(notes[labels.DRAW]) == {"pool": "g1", "outcome": "miss", "why": "NoNodes"}
        await bridge.pass_s(600)
        assert not bridge.writer.said("ungate"), "nobody else may order a node for it"


async def test_without_the_pool_the_pod_is_handed_over():
    async with running([a_node("n1")]) as bridge:
        bridge.world.pool_seen(a_pool())
        bridge.see(a_draw())
        await bridge.pass_s(60)
        assert not bridge.writer.said("ungate")
        bridge.world.pool_gone("g1")
        bridge.turns.wake()
        await bridge.pass_s(5)
        assert len([call for call in bridge.writer.calls if call[0] == "ungate"]) == 1


async def test_a_pool_that_observes_counts_the_miss_and_owns_nothing():
    async with running([a_node("n1")]) as bridge:
        bridge.world.pool_seen(a_pool(mode="observe"))
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert bridge.world.waiting.get("uid-p1").reason is not Reason.NO_WARM_NODE
        assert parse_draw(bridge.writer.notes[0][1][labels.DRAW]).pool == "g1"
        await bridge.pass_s(40)
        assert len([call for call in bridge.writer.calls if call[0] == "ungate"]) == 1


async def test_a_miss_stays_a_miss_when_a_node_comes_later():
    async with running([a_node("n1")]) as bridge:
        bridge.world.pool_seen(a_pool())
        bridge.see(a_draw())
        await bridge.pass_s(1)
        bridge.add_nodes(a_warm_node())
        await bridge.pass_s(1)
        assert pins(bridge) == {"uid-p1": "w1"}
        assert not parse_draw(aid_of(bridge, "uid-p1").notes[labels.DRAW]).is_hit
        assert bridge.value("berthmaster_draws_total", pool="g1", outcome="miss") == 1


async def test_what_was_noted_by_an_earlier_leader_is_not_noted_again():
    async with running([a_warm_node()]) as bridge:
        bridge.see(replace(a_draw(), has_drawn=True))
        await bridge.pass_s(1)
        assert aid_of(bridge, "uid-p1").notes == {}


@pytest.mark.parametrize(
    ("pool", "is_owned"),
    [
        (a_pool(), True),
        (a_pool(gpus=8), True),
        (a_pool(images=("reg.example/other:1",)), False),
        (a_pool(images=()), False),
        (a_pool(images=(), serves={"namespaces": ["default"]}), True),
        (a_pool(images=(), serves={"namespaces": ["default"], "matchLabels": {"app": "x"}}), False),
        (a_pool(images=("reg.example/other:1",), serves={"namespaces": ["default"]}), True),
    ],
    ids=["image", "larger", "other image", "nobody", "namespace", "label", "named in spite of its image"],
)
async def test_whose_miss_it_is(pool, is_owned):
    async with running([a_node("n1")]) as bridge:
        bridge.world.pool_seen(pool)
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert (bridge.world.waiting.get("uid-p1").reason is Reason.NO_WARM_NODE) is is_owned


async def test_a_pool_whose_nodes_could_never_take_the_pod_owns_nothing():
    async with running([a_node("n1")]) as bridge:
        bridge.world.pool_seen(a_pool(gpus=1))
        bridge.see(a_draw(gpus=2))
        await bridge.pass_s(40)
        assert len([call for call in bridge.writer.calls if call[0] == "ungate"]) == 1


async def test_a_cluster_of_warm_nodes_alone_is_not_called_empty():
    async with running([a_warm_node(is_cordoned=True)]) as bridge:
        bridge.see(a_draw())
        await bridge.pass_s(1)
        record = bridge.world.waiting.get("uid-p1")
        assert record.reason is Reason.NO_NODE_ALLOWED
        assert "all 1 nodes are warm pools'" in record.text


OTHERS = format_claim(Claim(set_id="other", pods=("x",), is_firm=True, token="1"))


@pytest.mark.parametrize(
    ("nodes", "why", "text"),
    [
        ((), "NoNodes", "it has no nodes yet"),
        ((a_warm_node("w1", is_cordoned=True),), "OnTheirWay", "0 open, 0 claimed, 0 serving, 1 not warm yet"),
        ((a_warm_node("w1", claim=OTHERS),), "AllClaimed", "0 open, 1 claimed, 0 serving, 0 not warm yet"),
        ((a_warm_node("w1", warm="", gpus=0),), "AllClaimed", "0 open, 0 claimed, 1 serving, 0 not warm yet"),
        ((a_warm_node("w1", gpus=0),), "NoRoom", "1 open, 0 claimed, 0 serving, 0 not warm yet"),
    ],
    ids=["none", "coming", "claimed", "serving", "too small"],
)
async def test_a_miss_says_what_the_pool_has(nodes, why, text):
    async with running([a_node("n1"), *nodes]) as bridge:
        bridge.world.pool_seen(replace(a_pool(), template=replace(a_warm_node(), pool="", taints=())))
        bridge.see(a_draw())
        await bridge.pass_s(1)
        assert text in bridge.world.waiting.get("uid-p1").text
        assert parse_draw(bridge.writer.notes[0][1][labels.DRAW]).why == why
        for node in nodes:
            bridge.lose_node(node.name)
        await bridge.pass_s(35)
        assert "it has no nodes yet" in bridge.world.waiting.get("uid-p1").text


async def test_a_pod_whose_pin_failed_and_that_went_elsewhere_is_no_hit():
    async with running([a_warm_node("w1")]) as bridge:
        bridge.writer.answer("pin", Outcome.CHANGED)
        bridge.writer.hold("read")
        bridge.see(a_draw())
        await bridge.pass_s(0.05)
        bridge.lose_node("w1")
        bridge.add_nodes(a_node("n1", gpus=1, is_sharing=False))
        bridge.writer.let_go("read")
        await bridge.pass_s(5)
        assert bridge.writer.pods["uid-p1"].pinned_node == "n1"
        assert [aid for _, _, aid in bridge.writer.aids[1:] if aid.notes] == []
