"""The planner's picture: every gated pod is in exactly one place, and none is forgotten."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpack import fit
from binpack.controller.growth import has_grown
from binpack.controller.retrying import look_again, requeue_waiting
from binpack.controller.triage import Handling, handling
from binpack.controller.world import Away
from binpack.ledger import Ledger
from fleet import labels
from fleet.constraints import NodeConstraints, Taint, Toleration
from fleet.device import Device
from fleet.plan import Reason, Shortfall, Unplaced
from fleet.pod import Berth, Phase
from fleet.resources import extended_of
from tests.support.berths import card, seat
from tests.support.builders import a_node, a_pod, a_state, an_ask
from tests.support.planning import a_world

OTHER_GATE = "example.com/later"


def places(world, uid):
    """Where a pod stands; more than one answer is a fault."""
    found = []
    if uid in world.queue:
        found.append("queue")
    if uid in world.away:
        found.append(world.away[uid].value)
    if not found and uid in world.waiting:
        found.append("waiting")
    return found


def miss(pod, reason=Reason.INSUFFICIENT, **words):
    return Unplaced(pod_uid=pod.uid, reason=reason, **words)


def waiting_for_room(world, *pods):
    """Let pods be decided and not placed."""
    for pod in pods:
        world.pod_seen(pod)
    for pod in world.take_batch(len(pods)):
        assert world.decided(pod) is not None
        world.wait(miss(pod))


# -- places ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        pytest.param({}, "queue", None, id="plain"),
        pytest.param({"owner": None}, "queue", None, id="bare"),
        pytest.param({"gates": (OTHER_GATE, labels.PLAN_GATE)}, "waiting", Reason.FOREIGN_GATE, id="foreign gate"),
        pytest.param({"problems": ("gpu-milli: -5",)}, "waiting", Reason.MALFORMED, id="malformed"),
        pytest.param({"unmodelled": ("gang x",)}, "waiting", Reason.UNMODELLED_CONSTRAINT, id="gang"),
        pytest.param({"gates": ()}, None, None, id="not gated"),
        pytest.param({"is_terminating": True}, None, None, id="going away"),
        pytest.param({"phase": Phase.FAILED}, None, None, id="failed"),
    ],
)
def test_a_new_pod_is_sorted(changes, place, reason):
    world = a_world(a_node(gpus=1))
    pod = replace(a_pod(), **changes)
    world.pod_seen(pod)
    assert places(world, pod.uid) == ([place] if place else [])
    record = world.waiting.get(pod.uid)
    assert (record.reason if record else None) is reason
    if reason is not None:
        assert pod.uid in world.to_say


def test_a_pod_that_waits_for_room_is_not_planned_again_because_it_was_touched():
    world = a_world()
    pod = a_pod(whole=1)
    waiting_for_room(world, pod)
    world.pod_seen(replace(pod, resource_version="2", labels={"a": "b"}))
    assert places(world, pod.uid) == ["waiting"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {"constraints": NodeConstraints(tolerations=(Toleration(operator="Exists"),))}, id="a toleration added"
        ),
        pytest.param({"ask": an_ask(whole=1, models=("T4",))}, id="other models acceptable"),
        pytest.param({"owner": None}, id="nobody would make a new one any more"),
    ],
)
def test_a_waiting_pod_whose_wish_changed_is_planned_at_once(changes):
    world = a_world()
    pod = a_pod(whole=1, models=("A100",))
    waiting_for_room(world, pod)
    world.pod_seen(replace(pod, **changes))
    assert places(world, pod.uid) == ["queue"]


@pytest.mark.parametrize(
    "held",
    [
        pytest.param({"gates": (labels.PLAN_GATE, OTHER_GATE)}, id="foreign gate"),
        pytest.param({"problems": ("odd",)}, id="malformed"),
        pytest.param({"unmodelled": ("gang (label berthmaster.dev/gang)",)}, id="gang"),
    ],
)
def test_a_held_pod_is_planned_as_soon_as_what_held_it_is_gone(held):
    world = a_world()
    pod = a_pod(whole=1)
    world.pod_seen(replace(pod, **held))
    assert places(world, pod.uid) == ["waiting"]
    world.pod_seen(pod)
    assert places(world, pod.uid) == ["queue"]


def test_a_queued_pod_is_planned_as_it_was_seen_last():
    world = a_world()
    world.pod_seen(a_pod(milli_cpu=1))
    world.pod_seen(a_pod(milli_cpu=2))
    (pod,) = world.take_batch(9)
    assert pod.requests.milli_cpu == 2


def test_a_pod_seen_while_it_is_decided_on_is_not_queued_a_second_time():
    world = a_world()
    pod = a_pod(whole=1)
    world.pod_seen(pod)
    (batch,) = world.take_batch(9)
    world.pod_seen(replace(pod, resource_version="7"))
    assert places(world, pod.uid) == ["planned"]
    assert world.decided(batch).resource_version == "7"


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        pytest.param({"constraints": NodeConstraints(node_selector=(("a", "b"),))}, "queue", id="another wish"),
        pytest.param({"problems": ("odd",)}, "waiting", id="malformed"),
        pytest.param({"owner": None}, "queue", id="to be steered now"),
    ],
)
def test_what_was_decided_of_a_pod_that_changed_meanwhile_does_not_hold(changes, place):
    world = a_world()
    pod = a_pod(whole=1)
    waiting_for_room(world, pod)
    world.again(pod.uid)
    (batch,) = world.take_batch(9)
    world.pod_seen(replace(pod, **changes))
    assert world.decided(batch) is None
    assert places(world, pod.uid) == [place]


@pytest.mark.parametrize("how", ["gone", "ungated"])
def test_what_was_decided_of_a_pod_that_went_meanwhile_does_not_hold(how):
    world = a_world()
    pod = a_pod()
    world.pod_seen(pod)
    (batch,) = world.take_batch(9)
    if how == "gone":
        world.pod_gone(pod.uid)
    else:
        world.pod_seen(replace(pod, gates=()))
    assert world.decided(batch) is None
    assert places(world, pod.uid) == []


def test_a_pod_whose_patch_is_on_its_way_is_not_queued():
    world = a_world(a_node(gpus=1))
    pod = a_pod(whole=1)
    world.pod_seen(pod)
    world.take_batch(9)
    world.depart(pod, Berth(node="n1", devices=("0",)))
    world.pod_seen(replace(pod, labels={"touched": "yes"}))
    assert places(world, pod.uid) == ["written"]
    assert world.unwritten == 1
    assert world.ledger.berth_of(pod.uid) == Berth(node="n1", devices=("0",))


def test_a_late_sighting_of_the_gate_does_not_bring_a_written_pod_back():
    world = a_world(a_node(gpus=1))
    pod = a_pod(whole=1)
    world.pod_seen(pod)
    world.take_batch(9)
    world.depart(pod, Berth(node="n1", devices=("0",)))
    world.arrived(pod.uid)
    stale = replace(pod, labels={"touched": "before the patch"})
    world.ledger.set_pod(stale)
    world.pod_seen(stale)
    assert places(world, pod.uid) == ["landed"]
    assert pod.uid not in world.pods
    assert world.ledger.berth_of(pod.uid) == Berth(node="n1", devices=("0",))
    world.pod_seen(replace(pod, gates=(), pinned_node="n1", devices=("0",)))
    assert places(world, pod.uid) == []


def test_a_pod_that_the_watch_shows_before_the_answer_comes_leaves_nothing_behind():
    world = a_world(a_node(gpus=1))
    pod = a_pod()
    world.pod_seen(pod)
    world.take_batch(9)
    world.depart(pod, Berth(node="n1"))
    world.pod_seen(replace(pod, gates=(), pinned_node="n1"))
    world.arrived(pod.uid)
    assert (world.away, world.pods, world.queue) == ({}, {}, {})


def test_a_pod_that_goes_before_the_answer_comes_leaves_nothing_behind():
    world = a_world(a_node(gpus=1))
    pod = a_pod()
    world.pod_seen(pod)
    world.take_batch(9)
    world.depart(pod, Berth(node="n1"))
    world.ledger.remove_pod(pod.uid)
    world.pod_gone(pod.uid)
    world.arrived(pod.uid)
    assert world.away == {}
    assert world.ledger.picture() == a_world(a_node(gpus=1)).ledger.picture()


@pytest.mark.parametrize("is_written", [True, False])
def test_a_berth_whose_answer_was_lost_stays_counted_until_the_pod_was_read(is_written):
    world = a_world(a_node(gpus=1))
    pod = a_pod(whole=1)
    world.pod_seen(pod)
    world.take_batch(9)
    world.depart(pod, Berth(node="n1", devices=("0",)))
    assert world.rest(pod.uid, is_written=is_written) == 1
    assert (world.ledger.berth_of(pod.uid) is not None) is is_written
    assert places(world, pod.uid) == ["resting"]
    world.pod_seen(replace(pod, labels={"touched": "meanwhile"}))
    assert places(world, pod.uid) == ["resting"]
    world.again(pod.uid)
    assert world.ledger.berth_of(pod.uid) is None
    assert places(world, pod.uid) == ["queue"]
    assert world.rest(pod.uid, is_written=False) == 2


def test_pods_of_a_batch_that_is_given_up_are_planned_again():
    world = a_world()
    pods = [a_pod("a"), a_pod("b")]
    for pod in pods:
        world.pod_seen(pod)
    world.take_batch(9)
    world.pod_gone("uid-b")
    world.recall()
    assert set(world.queue) == {"uid-a"}
    assert world.away == {}


def test_pod_gone_forgets_everything():
    world = a_world(a_node(gpus=1))
    fresh = {name: set(value) for name, value in vars(world).items() if isinstance(value, dict | set)}
    pods = [
        a_pod("queued"),
        replace(a_pod("held"), problems=("odd",)),
        a_pod("pinned", pin="n1", is_unschedulable=True),
        replace(a_pod("steered", candidates=(Berth(node="n1"),), is_unschedulable=True), says_waiting=True),
        a_pod("bound", node="n1"),
    ]
    for pod in pods:
        world.pod_seen(pod)
    world.unbound.steered_anew(0.0, 4)
    for pod in pods:
        world.pod_gone(pod.uid)
    assert {name: set(value) for name, value in vars(world).items() if isinstance(value, dict | set)} == fresh
    assert len(world.waiting) == 0


def test_a_batch_takes_the_most_important_first_and_then_the_oldest():
    world = a_world()
    for name, priority, age in (("new", 0, 9.0), ("old", 0, 1.0), ("vip", 5, 20.0)):
        world.pod_seen(a_pod(name, priority=priority, created_at_s=age))
    assert [pod.name for pod in world.take_batch(2)] == ["vip", "old"]
    assert list(world.queue) == ["uid-new"]


# -- reused names ----------------------------------------------------------------------------------------------


def test_a_reused_name_is_another_pod():
    world = a_world(a_node(gpus=1))
    old = a_pod("llm-0", uid="old", whole=1, node="n1", devices=("0",), is_terminating=True)
    world.ledger.set_pod(old)
    world.pod_seen(old)
    world.refresh()
    new = a_pod("llm-0", uid="new", whole=1)
    # The API shows the new one only after the old one's end; the watch says so in this order.
    world.ledger.remove_pod("old")
    world.pod_gone("old")
    world.ledger.set_pod(new)
    world.pod_seen(new)
    world.refresh()
    assert set(world.queue) == {"new"}
    assert world.index.place(new).berth == Berth(node="n1", devices=("0",))


# -- growth ----------------------------------------------------------------------------------------------------


def test_waiting_pods_are_planned_again_where_they_fit_and_only_those():
    world = a_world(a_node("small", gpus=1, milli_cpu=1000))
    fits, too_big = a_pod("fits", milli_cpu=1500), a_pod("big", milli_cpu=9000)
    waiting_for_room(world, fits, too_big)
    requeue_waiting(world)
    assert set(world.queue) == set()
    world.ledger.set_node(a_node("small", gpus=1, milli_cpu=2000))
    assert world.refresh()
    requeue_waiting(world)
    assert set(world.queue) == {fits.uid}
    assert places(world, too_big.uid) == ["waiting"]


def test_growth_is_remembered_until_waiting_pods_were_asked():
    world = a_world()
    pod = a_pod()
    waiting_for_room(world, pod)
    world.ledger.set_node(a_node())
    assert world.refresh()
    assert world.refresh(), "somebody else refreshed meanwhile: the room must not be lost"
    requeue_waiting(world)
    assert set(world.queue) == {pod.uid}
    assert not world.refresh()


def test_many_new_nodes_at_once_queue_all():
    world = a_world()
    pods = [a_pod(str(i), milli_cpu=i) for i in range(5)]
    waiting_for_room(world, *pods)
    for i in range(40):
        world.ledger.set_node(a_node(f"n{i}"))
    world.refresh()
    requeue_waiting(world)
    assert len(world.queue) == 5


def test_less_room_queues_nobody():
    world = a_world(a_node(gpus=2))
    pod = a_pod(whole=3)
    waiting_for_room(world, pod)
    requeue_waiting(world)
    world.ledger.set_pod(a_pod("other", whole=1, node="n1", devices=("0",)))
    assert not world.refresh()
    requeue_waiting(world)
    assert not world.queue


def test_held_pods_are_not_queued_by_room():
    world = a_world()
    held = replace(a_pod(), problems=("odd",))
    world.pod_seen(held)
    world.ledger.set_node(a_node())
    world.refresh()
    requeue_waiting(world)
    look_again(world, 0.0, most_wishes=9, older_than_s=0.0)
    assert not world.queue


def test_a_miss_that_is_none_any_more_is_found_by_looking_again():
    now_s = 0.0
    world = a_world(a_node(gpus=1), now_s=lambda: now_s)
    pod = a_pod(whole=1)
    waiting_for_room(world, pod)
    look_again(world, now_s, most_wishes=9, older_than_s=30.0)
    assert not world.queue
    now_s = 30.0
    look_again(world, now_s, most_wishes=9, older_than_s=30.0)
    assert set(world.queue) == {pod.uid}


def test_looking_again_renews_the_numbers():
    now_s = 0.0
    world = a_world(a_node(milli_cpu=1000), now_s=lambda: now_s)
    pods = [a_pod(str(i), milli_cpu=4000) for i in range(3)]
    waiting_for_room(world, *pods)
    now_s = 40.0
    look_again(world, now_s, most_wishes=1, older_than_s=30.0)
    assert all("best node n1 lacks 3 cores" in world.waiting.get(pod.uid).text for pod in pods)


# Every way in which one node can differ from another; the first value suits most pods.
WAYS = {
    "is_sharing": [True, False],
    "milli_cpu": [2, 0, 1],
    "memory_gib": [2, 0, 1],
    "pod_slots": [3, 0, 1],
    "x": [2, 0, 1],
    "labels": [{"zone": "a"}, {}],
    "taints": [(), (Taint(key="t"),)],
    "is_cordoned": [False, True],
    "device_problems": [(), ("dead card",)],
    "models": [("G2", "G2"), ("G2",), ("T4", "G2"), ()],
    "memory_mib": [20, None, 10],
    "dead": [(), ("0",), ("0", "1")],
    "holders": [(), ("one",), ("one", "two")],
}
BEST = {name: values[0] for name, values in WAYS.items()}
HOLDERS = [{"whole": 1}, {"milli": 700}, {"mib": 15}, {"milli_cpu": 1}, {"classic": 1}]
WISHES = [
    {},
    {"milli_cpu": 2, "memory_gib": 1},
    {"extended": {"example.com/x": 1}},
    {"constraints": NodeConstraints(node_selector=(("zone", "a"),))},
    {"constraints": NodeConstraints(tolerations=(Toleration(operator="Exists"),))},
    {"whole": 1},
    {"whole": 2},
    {"classic": 1},
    {"classic": 2},
    {"milli": 400},
    {"milli": 400, "mib": 8},
    {"mib": 15},
    {"milli": 100, "count": 2},
    {"whole": 1, "models": ("T4",)},
]


def machine(ways, holders):
    """The state of a node of these ways, with its holders on the first devices."""
    node = a_node(
        "n",
        is_sharing=ways["is_sharing"],
        milli_cpu=ways["milli_cpu"],
        memory_gib=ways["memory_gib"],
        pod_slots=ways["pod_slots"],
        labels=ways["labels"],
        taints=ways["taints"],
        is_cordoned=ways["is_cordoned"],
        device_problems=ways["device_problems"],
    )
    devices = tuple(
        Device(id=str(i), model=model, memory_mib=ways["memory_mib"], is_healthy=str(i) not in ways["dead"])
        for i, model in enumerate(ways["models"])
    )
    gpus = 0 if node.is_sharing else sum(device.is_healthy for device in devices)
    extended = extended_of({"example.com/x": ways["x"], labels.NVIDIA_GPU: gpus})
    node = replace(node, devices=devices, allocatable=replace(node.allocatable, extended=extended))
    pods = []
    for i, name in enumerate(ways["holders"]):
        words = dict(holders[i])
        if words.keys() & {"whole", "mib"} or words.get("milli"):
            words["devices"] = (str(i),)
        pods.append(a_pod(name, node="n", **words))
    return a_state(node, *pods)


def test_no_way_to_become_able_to_take_a_pod_goes_unseen():
    """If a pod fits now and did not before, the node has grown: amounts, devices, rules or records.

    Looked at: nodes of three kinds, before and after, that differ in any two ways at once; whoever is there, whoever
    comes.
    """
    pods = [a_pod(**wish) for wish in WISHES]
    seen = Counter()
    changes = [(name, value) for name, values in WAYS.items() for value in values]
    kinds = [BEST, BEST | {"is_sharing": False}, BEST | {"models": ("T4", "G2"), "memory_mib": None}]
    for after_ways, holder in itertools.product(kinds, HOLDERS):
        after = machine(after_ways, (holder, holder))
        takes = [pod for pod in pods if fits(pod, after)]
        for (one, this), (other, that) in itertools.combinations(changes, 2):
            before = machine(after_ways | {one: this, other: that}, (holder, holder))
            if not all(fits(pod, before) for pod in takes):
                assert has_grown(before, after), (one, this, other, that, holder)
                seen.update({one, other})
    assert set(seen) == set(WAYS), "every way made a difference"


def fits(pod, state):
    return fit.mismatch(pod, state.node) is None and not fit.missing(pod, state)


def test_the_same_state_has_not_grown():
    node = a_node(gpus=2)
    assert not has_grown(a_state(node), a_state(node))
    assert not has_grown(a_state(node), a_state(node, a_pod(whole=1, node="n1", devices=("0",))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"memory_mib": 10}, {"memory_mib": None}, id="memory that limits no more"),
        pytest.param({"model": "T4"}, {"model": "A100"}, id="another model"),
        pytest.param({"dead": ("0",)}, {"dead": ()}, id="healthy again"),
        pytest.param({"device_problems": ("x",)}, {}, id="open again"),
        pytest.param({"gpus": ("0", "1")}, {"gpus": ("0", "2")}, id="another card in the place of one"),
    ],
)
def test_a_device_that_serves_more_is_growth(before, after):
    words = {"gpus": 1}
    assert has_grown(a_state(a_node(**(words | before))), a_state(a_node(**(words | after))))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({"free_milli": 300}, {"free_milli": 400}, True, id="more of the card"),
        pytest.param({"free_milli": 400}, {"free_milli": 300}, False, id="less of the card"),
        pytest.param({"users": 2}, {"users": 1}, True, id="fewer users"),
        pytest.param({"users": 1}, {"users": 2}, False, id="more users"),
        pytest.param({"free_mib": 10}, {"free_mib": 20}, True, id="more memory"),
        pytest.param({"free_mib": 20}, {"free_mib": 10}, False, id="less memory"),
        pytest.param({"free_mib": 20}, {"free_mib": None}, True, id="memory that limits no more"),
        pytest.param({"free_mib": None}, {"free_mib": 20}, False, id="memory that begins to limit"),
    ],
)
def test_a_card_whose_record_moved_is_growth_where_it_left(before, after, expected):
    def state(**words):
        device = replace(card("0", users=1, memory_mib=80), **words)
        return seat("n", devices=[device])

    assert has_grown(state(**before), state(**after)) is expected


# -- un-pinned pods --------------------------------------------------------------------------------------------


def steered(*nodes_named, **words):
    return a_pod(candidates=tuple(Berth(node=name) for name in nodes_named), is_unschedulable=True, **words)


def test_a_pod_refused_on_all_its_candidates_gets_others_and_not_too_often():
    world = a_world(*(a_node(f"n{i}") for i in range(4)))
    world.pod_seen(steered("n0", "n1"))
    ((pod, berths),) = world.unbound.steered_anew(5.0, 2)
    assert pod.uid == "uid-p1"
    assert {berth.node for berth in berths} == {"n2", "n3"}
    assert world.unbound.steered_anew(14.9, 2) == []
    world.pod_seen(steered("n2", "n3"))
    ((_, berths),) = world.unbound.steered_anew(15.0, 2)
    assert len(berths) == 2, "all were tried: it starts again with the best"


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod(candidates=(Berth(node="n0"),)), id="not refused yet"),
        pytest.param(a_pod(pin="n0", is_unschedulable=True), id="pinned"),
        pytest.param(replace(steered("n0"), is_terminating=True), id="going away"),
        pytest.param(replace(steered("n0"), scheduler_name="other"), id="of another scheduler"),
    ],
)
def test_other_pods_are_not_steered_anew(pod):
    world = a_world(a_node("n0"), a_node("n1"))
    world.pod_seen(pod)
    assert world.unbound.steered_anew(100.0, 4) == []


def test_the_first_refusal_is_answered_even_when_the_clock_stands_near_zero():
    world = a_world(a_node("n0"), a_node("n1"))
    world.pod_seen(steered("n0"))
    assert world.unbound.steered_anew(-5.0, 4)


# -- what people are told --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param({"pin": "n1"}, True, id="pinned"),
        pytest.param({"node": "n1"}, True, id="bound"),
        pytest.param({"candidates": (Berth(node="n1"),)}, True, id="steered"),
        pytest.param({"gates": ()}, False, id="handed over: it still waits"),
        pytest.param({"node": "n1", "phase": Phase.SUCCEEDED}, False, id="over"),
        pytest.param({}, False, id="gated"),
    ],
)
def test_a_placed_pod_that_says_it_waits_is_corrected_whoever_said_so(words, expected):
    world = a_world(a_node())
    world.pod_seen(replace(a_pod(**words), says_waiting=True))
    assert bool(world.unbound.to_unsay) is expected


def test_the_correction_is_not_repeated_at_every_event():
    now_s = 0.0
    world = a_world(a_node(), now_s=lambda: now_s)
    pod = replace(a_pod(node="n1"), says_waiting=True)
    world.pod_seen(pod)
    world.unbound.to_unsay.clear()
    world.pod_seen(pod)
    assert not world.unbound.to_unsay
    now_s = 11.0
    world.pod_seen(pod)
    assert world.unbound.to_unsay


def test_a_malformed_pod_is_counted_once():
    world = a_world()
    bad = replace(a_pod(), problems=("odd",))
    for version in range(3):
        world.pod_seen(replace(bad, resource_version=str(version)))
    assert [pod.uid for pod in world.malformed] == [bad.uid]


def test_what_is_wrong_with_a_node_is_told_once_and_told_again_when_it_comes_back():
    world = a_world(a_node(gpus=1))
    bad = replace(a_pod("bad", whole=1, node="n1"), problems=("odd record",), record_problem="odd record")
    for _ in range(2):
        world.ledger.set_pod(bad)
        world.refresh()
        (warning,) = world.nodes.to_warn["n1"]
        assert "odd record" in warning
        world.nodes.to_warn.clear()
        world.ledger.set_node(a_node(gpus=1, labels={"touched": "yes"}))
        world.refresh()
        assert world.nodes.to_warn == {}
        world.ledger.remove_pod(bad.uid)
        world.refresh()
        assert world.nodes.warned == {}
        world.ledger.set_node(a_node(gpus=1))
        world.refresh()


def test_a_node_that_the_index_fails_on_does_not_hide_the_others(monkeypatch):
    world = a_world()
    real = world.index.set_node

    def fails_on_b(state):
        if state.node.name == "b":
            raise ValueError("odd node")
        real(state)

    monkeypatch.setattr(world.index, "set_node", fails_on_b)
    for name in "abc":
        world.ledger.set_node(a_node(name))
    world.refresh()
    assert set(world.states("abc")) == {"a", "c"}
    assert "odd node" in world.nodes.to_warn["b"][0]
    assert world.refresh()


def test_the_reason_that_was_given_stands_in_the_record():
    world = a_world(a_node())
    pod = a_pod(milli_cpu=4000)
    world.pod_seen(pod)
    world.take_batch(1)
    world.decided(pod)
    world.wait(miss(pod, shortfall=Shortfall(node="n1", missing=(("milli_cpu", 4000),))))
    assert world.waiting.get(pod.uid).text == "needs 4 cores: best node n1 lacks 4 cores"
    assert world.to_say == {pod.uid: "needs 4 cores: best node n1 lacks 4 cores"}


def test_waiting_for_room_counts_from_when_room_was_missing():
    now_s = 0.0
    world = a_world(now_s=lambda: now_s)
    pod = a_pod()
    world.pod_seen(replace(pod, gates=(labels.PLAN_GATE, OTHER_GATE)))
    now_s = 3600.0
    waiting_for_room(world, pod)
    assert world.waiting.due_for_hand_over(3600.0) == ()
    assert world.waiting.due_for_hand_over(3630.0) == (pod.uid,)


# -- any sequence of events ------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["seen", "hold", "bare", "gate", "pin", "gone", "batch", "place", "miss", "done", "fail", "again", "grow"]
        ),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(STEPS)
def test_after_any_sequence_every_gated_pod_is_in_exactly_one_place(steps):
    """Nothing is lost and nothing is written twice at a time, whatever comes in whatever order."""
    world = a_world(a_node(gpus=2))
    truth, writing = {}, {}
    plain = {f"uid-{i}": a_pod(str(i), whole=1) for i in range(3)}

    def see(pod):
        truth[pod.uid] = pod
        world.ledger.set_pod(pod)
        world.pod_seen(pod)

    def batch_of():
        return [pod for pod in (truth.get(uid) for uid, place in world.away.items() if place is Away.PLANNED) if pod]

    for step, number in steps:
        uid = f"uid-{number}"
        pod = truth.get(uid, plain[uid])
        is_gated = not truth.get(uid) or bool(pod.gates)
        match step:
            case "seen" if is_gated:
                see(replace(plain[uid], labels={"n": str(len(steps))}))
            case "hold" if is_gated:
                see(replace(plain[uid], problems=("odd",)))
            case "bare" if is_gated:
                see(replace(plain[uid], owner=None))
            case "gate" if not truth.get(uid):
                see(replace(plain[uid], gates=(OTHER_GATE, labels.PLAN_GATE)))
            case "pin" if truth.get(uid) and is_gated and uid not in writing:
                see(replace(plain[uid], gates=(), pinned_node="n1", devices=(str(number % 2),)))
            case "gone" if truth.pop(uid, None):
                writing.pop(uid, None)
                world.ledger.remove_pod(uid)
                world.pod_gone(uid)
            case "batch" if not batch_of():
                world.take_batch(2)
            case "place":
                for planned in batch_of():
                    now = world.decided(planned)
                    if now is not None:
                        assert now.uid not in writing, "written twice at a time"
                        world.depart(now, Berth(node="n1", devices=(str(number % 2),)))
                        writing[now.uid] = now
            case "miss":
                for planned in batch_of():
                    if world.decided(planned) is not None:
                        world.wait(miss(planned))
            case "done" if uid in writing:
                del writing[uid]
                truth[uid] = replace(truth[uid], gates=(), pinned_node="n1", devices=(str(number % 2),))
                world.arrived(uid)
                see(truth[uid])
            case "fail" if uid in writing:
                world.rest(writing.pop(uid).uid, is_written=number == 1)
            case "again" if world.away.get(uid) is Away.RESTING:
                world.again(uid)
            case "grow":
                world.ledger.set_node(a_node(gpus=2, labels={"n": str(number)}))
                world.refresh()
                requeue_waiting(world)
        for each, pod in truth.items():
            gated = handling(pod) is not Handling.NONE
            assert len(places(world, each)) == int(gated), (step, each, places(world, each))
    for uid in set(world.queue) | set(world.away) | set(world.pods):
        assert uid in truth, "something is left of a pod that is gone"
    for uid in [uid for uid, place in world.away.items() if place in (Away.WRITTEN, Away.RESTING)]:
        world.again(uid)
    fresh = Ledger()
    fresh.set_node(world.states(["n1"])["n1"].node)
    for pod in truth.values():
        fresh.set_pod(pod)
    assert world.ledger.picture() == fresh.picture()


def test_a_fresh_planner_learns_the_demand_from_the_pods_it_finds() -> None:
    """On a cluster full of pods that fill whole nodes, the first small pod leaves the whole node alone."""
    world = a_world(a_node("a", gpus=8, milli_cpu=64_000), a_node("b", gpus=2, milli_cpu=64_000))
    before = world.index.potential()
    for number in range(60):
        world.pod_seen(a_pod(f"p{number}", whole=8, milli_cpu=4000, node="z"))
    world.pod_seen(a_pod("new", whole=1, gates=(labels.PLAN_GATE,)))
    assert world.index.potential() == before
    (new,) = world.take_batch(10)
    assert world.index.potential() != before
    assert world.index.place(new).berth.node == "b"
    after = world.index.potential()
    for number in range(60):
        world.pod_seen(a_pod(f"q{number}", milli=300, milli_cpu=4000, node="z"))
    world.take_batch(10)
    assert world.index.potential() == after
