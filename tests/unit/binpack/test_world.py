"""The planner's picture: every gated pod is in exactly one place, and none is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet import labels
from fleet.constraints import NodeConstraints, Toleration
from fleet.plan import Reason, Shortfall
from fleet.pod import Berth, Phase
from tests.support.builders import a_node, a_pod, an_ask
from tests.support.places import OTHER_GATE, miss, places, waiting_for_room
from tests.support.planning import a_world

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
    list(world.unbound.steered_anew(0.0, 4))
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
