"""Room that appears is seen, whatever made it, and the pods that it may help are planned again."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from binpack import fit
from binpack.controller.growth import has_grown
from binpack.controller.retrying import look_again, requeue_waiting
from fleet import labels
from fleet.constraints import NodeConstraints, Taint, Toleration
from fleet.device import Device
from fleet.resources import extended_of
from tests.support.berths import card, seat
from tests.support.builders import a_node, a_pod, a_state
from tests.support.places import places, waiting_for_room
from tests.support.planning import a_world


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
