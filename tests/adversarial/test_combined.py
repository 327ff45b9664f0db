"""What storms found, each shrunk to the few things that it takes."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller.writer import Outcome
from binpack.index import Index
from binpack.moving import afresh
from binpack.repack.large import could_come
from binpack.repack.occupants import is_known
from binpack.repack.values import Movable
from fleet import labels
from fleet.company import Guest, PodTerm, Selector, Spread
from fleet.constraints import NodeConstraints, NodeTerm, Requirement
from fleet.dra import PodClaim
from fleet.plan import Reason
from fleet.pod import Berth
from fleet.volumes import Claim, Volume
from tests.support.builders import a_node, a_pod, a_state
from tests.support.planning import running


async def test_members_beyond_those_a_gang_needs_say_why_they_wait():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(*(a_pod(f"g{i}", whole=1, gang="g", gang_size=2) for i in range(3)))
        await bridge.pass_s(5)
        reasons = {name: bridge.world.waiting.get(f"uid-g{name}") for name in range(3)}
        assert {one.reason for one in reasons.values() if one} == {Reason.GANG_DOES_NOT_FIT}
        assert None not in reasons.values()
        assert bridge.recorder.reasons("g2") == ["GangDoesNotFit"]


def averse(name, app, **words):
    """Return a pod that shares no node with pods of this app."""
    term = PodTerm(
        key=labels.HOSTNAME,
        selector=Selector(requirements=(Requirement(key="app", operator="In", values=(app,)),)),
        namespaces=("default",),
    )
    pod = a_pod(name, pod_labels={"app": app}, **words)
    return replace(pod, guest=Guest(labels=(("app", app),), anti=(term,)))


def of_app(name, app, **words):
    """Return a pod of this app without rules."""
    return replace(a_pod(name, pod_labels={"app": app}, **words), guest=Guest(labels=(("app", app),)))


def a_host(name="n1", gpus=2):
    return a_node(name, gpus=gpus, labels={labels.HOSTNAME: name})


async def test_two_urgent_pods_that_shun_each_other_get_no_seats_on_one_node():
    async with running([a_host()]) as bridge:
        bridge.see(*(a_pod(f"v{i}", whole=1, node="n1", devices=(str(i),)) for i in range(2)))
        bridge.see(*(averse(f"u{i}", "u", whole=1, priority=10) for i in range(2)))
        await bridge.pass_s(5)
        assert len([verb for verb, *_ in bridge.writer.calls if verb == "evict"]) == 1, "one more would go for nobody"
        bridge.lose(*(pod.uid for pod in bridge.writer.pods.values() if pod.is_terminating))
        await bridge.pass_s(30)
        assert len(bridge.writer.said("pin")) == 1


async def test_nobody_goes_for_a_pod_that_others_on_the_node_shun():
    async with running([a_host()]) as bridge:
        bridge.see(averse("a", "u", whole=1, node="n1", devices=("0",), priority=10))
        bridge.see(a_pod("v", whole=1, node="n1", devices=("1",)), of_app("u", "u", whole=1, priority=10))
        await bridge.pass_s(60)
        assert not bridge.writer.said("seat")
        assert not bridge.writer.said("evict")


async def test_nobody_comes_to_a_node_whose_seat_is_a_pod_s_that_shuns_it():
    async with running([a_host(gpus=1), a_host("n2", gpus=0)]) as bridge:
        bridge.see(a_pod("v", whole=1, node="n1", devices=("0",)), averse("u", "u", whole=1, priority=10))
        await bridge.pass_s(5)
        assert bridge.writer.said("seat") == [Berth(node="n1", devices=("0",))]
        bridge.catch_up()
        bridge.see(of_app("late", "u"))
        await bridge.pass_s(5)
        assert bridge.writer.said("pin") == [Berth(node="n2")]


async def test_a_seat_that_a_rule_forbids_by_now_is_taken_back():
    async with running([a_host(gpus=1)]) as bridge:
        bridge.see(a_pod("v", whole=1, node="n1", devices=("0",)), averse("u", "u", whole=1, priority=10))
        await bridge.pass_s(5)
        bridge.see(of_app("foreign", "u", node="n1"))
        bridge.lose("uid-v")
        await bridge.pass_s(5)
        assert not bridge.writer.said("pin")
        assert [verb for verb, *_ in bridge.writer.calls if verb == "unseat"] == ["unseat"]


def spread_over_zones(pod):
    """Return the pod with a hard spread of its app over zones."""
    selector = Selector(requirements=(Requirement(key="app", operator="In", values=("g",)),))
    spread = Spread(key="zone", selector=selector, honors_affinity=False)
    return replace(pod, guest=replace(pod.guest, spreads=(spread,)))


async def test_a_gang_s_spread_holds_in_whatever_order_its_members_are_bound():
    """The member with the rule is the harder one: placed first it has a zone for itself, until the others come."""
    nodes = [a_node(name, gpus=2, labels={"zone": zone}) for name, zone in (("n1", "a"), ("n2", "b"))]
    async with running(nodes) as bridge:
        gang = [of_app(f"g{i}", "g", whole=1, gang="g", gang_size=2) for i in range(2)]
        bridge.see(spread_over_zones(gang[0]), gang[1])
        await bridge.pass_s(10)
        bridge.catch_up()
        await bridge.pass_s(30)
        assert len(bridge.writer.said("seat")) == 2, "seats are not written and taken back without end"
        assert {berth.node for berth in bridge.writer.said("pin")} == {"n1", "n2"}


async def test_a_gang_whose_members_shun_each_other_is_refused_and_no_plan_is_thrown_away():
    """The search that follows the index knows no rules between pods: what it finds is looked at for them."""
    async with running([a_host(gpus=1), a_host("n2", gpus=2)]) as bridge:
        bridge.see(*(averse(f"g{i}", "g", whole=1, gang="g", gang_size=3) for i in range(3)))
        await bridge.pass_s(30)
        assert bridge.world.waiting.get("uid-g0").reason is Reason.GANG_DOES_NOT_FIT
        assert bridge.value("berthmaster_plan_violations_total") == 0
        assert not bridge.writer.said("seat")


async def test_two_pods_that_are_steered_anew_are_not_sent_to_one_device():
    async with running([a_host(gpus=1), a_host("n2", gpus=1)]) as bridge:
        gone = (Berth(node="gone", devices=("0",)),)
        bridge.see(*(a_pod(f"p{i}", whole=1, candidates=gone, is_unschedulable=True) for i in range(2)))
        bridge.see(a_pod("late", whole=1))
        await bridge.pass_s(1.5)
        first = [candidates[0].node for candidates in bridge.writer.said("renew")]
        assert len(first) == len(set(first)) >= 1
        assert not {berth.node for berth in bridge.writer.said("pin")} & set(first)


async def test_where_steering_anew_fails_the_berth_is_given_back():
    async with running([a_host(gpus=1)]) as bridge:
        bridge.writer.answer("renew", *[Outcome.CHANGED] * 9)
        bridge.see(a_pod("p", whole=1, candidates=(Berth(node="gone"),), is_unschedulable=True))
        await bridge.pass_s(1.5)
        assert bridge.writer.said("renew")
        bridge.see(a_pod("late", whole=1))
        await bridge.pass_s(1.5)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("0",))]


def test_an_instance_of_a_card_that_is_cut_otherwise_by_now_is_not_moved():
    node = a_node("n1", gpus=1, model="NVIDIA-A100-SXM4-80GB", memory_mib=81920, mig={"0": ()})
    pod = a_pod("p", profile="2g.20gb", node="n1", devices=("0:2g.20gb@0",))
    berth = Berth(node="n1", devices=pod.devices)
    for now, is_movable in ((node, True), (replace(node, devices=(replace(node.devices[0], partitions=None),)), False)):
        index = Index()
        index.set_node(a_state(now, pod))
        assert is_known(index, Movable(pod=afresh(pod), berth=berth, service="s")) is is_movable


class Allotting:
    """Stands for the allotter: answers as told, and lets something happen first."""

    def __init__(self, meanwhile):
        self._meanwhile = meanwhile

    async def allot(self, pod, berth):
        return self._meanwhile()


def give(bridge, meanwhile):
    """Let the bridge's carrier allocate so."""
    bridge.turns._carrier._allotter = Allotting(meanwhile)


def a_claiming(name="c", **words):
    return replace(a_pod(name, **words), resource_claims=(PodClaim(name="dev", claim="", is_none=True),))


async def test_nobody_is_pinned_to_a_node_that_went_while_its_devices_were_allocated():
    async with running([a_host(), a_host("n2")]) as bridge:
        bridge.world.desk.is_synced = True
        went = []

        def meanwhile():
            if not went:
                went.append(next(bridge.world.ledger.berth_of(uid).node for uid in bridge.world.away))
                bridge.lose_node(went[0])
            return Outcome.DONE, ""

        give(bridge, meanwhile)
        bridge.see(a_claiming())
        await bridge.pass_s(5)
        assert len(went) == 1
        assert {berth.node for berth in bridge.writer.said("pin")} == {"n1", "n2"} - set(went)


async def test_a_fault_while_devices_are_allocated_loses_nobody():
    async with running([a_host()]) as bridge:
        bridge.world.desk.is_synced = True
        faults = [KeyError("a claim that vanished")]

        def meanwhile():
            if faults:
                raise faults.pop()
            return Outcome.DONE, ""

        give(bridge, meanwhile)
        bridge.see(a_claiming())
        await bridge.pass_s(5)
        assert bridge.writer.said("pin") == [Berth(node="n1")]
        assert bridge.value("berthmaster_faults_total", where="write") == 1


async def test_a_gated_pod_keeps_no_room_by_saying_that_it_moves():
    async with running([a_host(gpus=1)]) as bridge:
        forged = a_pod("forged", whole=1, constraints=NodeConstraints(node_selector=(("none", "such"),)))
        bridge.see(replace(forged, moving_to=Berth(node="n1", devices=("0",)), moving_by="eviction"))
        bridge.see(a_pod("other", whole=1))
        await bridge.pass_s(5)
        assert bridge.writer.said("pin") == [Berth(node="n1", devices=("0",))]


async def test_no_member_of_a_gang_counts_on_being_the_first_whom_its_affinity_names():
    """It may be alone where it is when nobody is there yet; kube-scheduler may take the others before it."""
    nodes = [a_node(f"n{gpus}", gpus=gpus, labels={"zone": str(gpus)}) for gpus in (1, 2)]
    term = PodTerm(
        key="zone",
        selector=Selector(requirements=(Requirement(key="app", operator="In", values=("g",)),)),
        namespaces=("default",),
    )
    async with running(nodes) as bridge:
        joiner = of_app("g0", "g", whole=1, gang="g", gang_size=3)
        there = NodeConstraints(node_selector=(("zone", "2"),))
        others = [of_app(f"g{i}", "g", milli=500, gang="g", gang_size=3, constraints=there) for i in (1, 2)]
        bridge.see(replace(joiner, guest=replace(joiner.guest, affinity=(term,))), *others)
        await bridge.pass_s(10)
        assert len(bridge.writer.said("seat")) == 3
        where = {call[1]: call[2].node for call in bridge.writer.calls if call[0] == "pin"}
        assert len(where) == 3
        assert where["uid-g0"] in {where["uid-g1"], where["uid-g2"]}


def mounting(name, **words):
    """Return a gang member that mounts the claim `data`."""
    return replace(
        a_pod(name, whole=1, gang="g", gang_size=2, **words), claims=("data",), unmodelled=("volume claims",)
    )


def bound_volume(book, zone):
    """Let the claim `data` be bound to a volume of a zone."""
    term = NodeTerm(labels=(Requirement(key="zone", operator="In", values=(zone,)),))
    book.set_volume(Volume(name="v", terms=(term,)))
    book.set_claim(Claim(namespace="default", name="data", volume="v", is_bound=True))


async def test_a_gang_waits_for_a_member_s_volume_with_one_reason_and_then_goes_where_it_is():
    nodes = [a_node(f"n{zone}", gpus=2, labels={"zone": zone}) for zone in "ab"]
    async with running(nodes) as bridge:
        lookups = bridge.world.lookups
        lookups.volumes.is_known = True
        bridge.see(mounting("g0"), a_pod("g1", whole=1, gang="g", gang_size=2))
        for _ in range(5):
            await bridge.pass_s(2)
            bridge.catch_up()
        assert not bridge.writer.said("seat")
        reasons = [bridge.world.waiting.get(f"uid-g{i}").reason for i in (0, 1)]
        assert reasons == [Reason.VOLUME, Reason.GANG_INCOMPLETE]
        assert len(bridge.writer.said("say")) <= 3, "the reasons do not take turns"
        bound_volume(lookups.volumes, "b")
        lookups.has_news = True
        bridge.turns.wake()
        await bridge.pass_s(5)
        assert {call[1]: call[2].node for call in bridge.writer.calls if call[0] == "seat"}["uid-g0"] == "nb"


def test_the_solver_is_not_asked_about_pods_that_could_not_come_to_where_they_are():
    """A pod grew in place, a node was cordoned, a card fell ill: no pattern has them there, and none may be asked."""
    pods = [a_pod(f"p{i}", whole=1, milli_cpu=1000, node="n1", devices=(str(i),)) for i in (0, 1)]
    movables = [Movable(pod=afresh(pod), berth=Berth(node="n1", devices=pod.devices), service=pod.name) for pod in pods]
    well = a_node("n1", gpus=2, milli_cpu=2000)
    for node, could in (
        (well, True),
        (a_node("n1", gpus=2, milli_cpu=1900), False),
        (replace(well, is_cordoned=True), False),
        (a_node("n1", gpus=2, milli_cpu=2000, dead=("0",)), False),
    ):
        index = Index()
        index.set_node(a_state(node, *pods))
        assert could_come(index, movables[0]) is could, node
