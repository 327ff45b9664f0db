"""What the watches say, joined: pods and their draws, agents, what autoscalers need, pools that are edited."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import labels
from fleet.draw import MissReason, format_draw, hit, miss
from tests.support.pools import a_node, a_pod, a_puller, a_scaler, a_world, an_agent, pool_in, pool_object
from warmpool.controller.agents import strangers
from warmpool.controller.needs import needs_of, nodes_for, nodes_needed, share_of
from warmpool.controller.pods import PodBook, view_of
from warmpool.controller.world import World
from warmpool.resource import spec_of

MISSED = {labels.DRAW: format_draw(miss("g1", MissReason.NO_NODES))}
BY = "2027-01-01T00:10:00Z"
WALL_S = 1_798_761_600.0  # ten minutes before


def test_who_uses_a_node_is_not_the_pool_itself_nor_an_agent_nor_who_has_ended() -> None:
    book = PodBook()
    book.set(a_pod("mine", "n1"))
    book.set(a_pod("agent", "n1", owner=("DaemonSet", "plugin")))
    book.set(a_pod("ended", "n1", phase="Succeeded"))
    book.set(a_puller("pull", "n1"))
    book.set(a_pod("pinned", notes={labels.PINNED: "n1"}))
    assert book.on("n1") == ("uid-mine", "uid-pinned")
    assert [one.node for one in book.pulling("g1", "n1")] == ["n1"]
    book.set(a_pod("mine", "n1", phase="Failed"))
    book.remove("uid-pinned")
    book.remove("uid-pull")
    assert (book.on("n1"), list(book.pulling("g1", "n1")), list(book.of_pool("g1"))) == ((), [], [])


def test_who_missed_waits_until_it_has_a_node_or_is_gone() -> None:
    book = PodBook()
    book.set(a_pod("a", notes=MISSED))
    book.set(a_pod("b", notes={labels.DRAW: format_draw(hit("g1", "n1"))}))
    book.set(a_pod("c", notes={labels.DRAW: "nonsense"}))
    assert sorted(pod.name for pod in book.drawn("g1")) == ["a", "b"]
    assert [pod.name for pod in book.missing("g1")] == ["a"]
    book.set(a_pod("a", "n2", notes=MISSED))
    assert list(book.missing("g1")) == []
    assert sorted(pod.name for pod in book.drawn("g1")) == ["a", "b"]
    book.remove("uid-a")
    book.remove("uid-b")
    assert list(book.drawn("g1")) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "n1", "n2"]), st.booleans()), max_size=30))
def test_the_indexes_hold_what_the_pods_say_and_nothing_else(steps: list[tuple[str, str, bool]]) -> None:
    book, truth = PodBook(), {}
    for name, node, is_there in steps:
        if is_there:
            book.set(a_pod(name, node, notes=MISSED, owner=("ReplicaSet", f"{name}-1")))
            truth[f"uid-{name}"] = node
        else:
            book.remove(f"uid-{name}")
            truth.pop(f"uid-{name}", None)
    assert book.pods.keys() == truth.keys()
    for node in ("n1", "n2"):
        assert set(book.on(node)) == {uid for uid, where in truth.items() if where == node}
    assert {pod.uid for pod in book.missing("g1")} == {uid for uid, where in truth.items() if not where}
    assert len(list(book.owners())) == len(truth)


def test_an_invalid_edit_leaves_the_last_valid_spec_in_force() -> None:
    world = a_world("g1")
    before = pool_in(world).spec
    world.set_pool(pool_object("g1", generation=2, size={"max": 0}))
    assert pool_in(world).spec == before
    assert "size.max" in pool_in(world).problems[0]
    world.set_pool(pool_object("g1", generation=3, size={"max": 9}))
    spec = pool_in(world).spec
    assert spec is not None
    assert (spec.pool.max_nodes, pool_in(world).problems) == (9, ())
    # One made anew under the same name owes nothing to the old one.
    world.set_pool(pool_object("g1", generation=1, uid="other", size={"max": 0}))
    assert pool_in(world).spec is None


def test_what_changes_makes_its_pool_due_and_no_other() -> None:
    world = a_world("g1", "g2")
    for act, due in (
        (lambda: world.set_node(a_node("n1"), 0.0), {"g1"}),
        (lambda: world.set_pod(a_pod("p", "n1")), {"g1"}),
        (lambda: world.set_pod(a_pod("q", "elsewhere")), set()),
        (lambda: world.set_pod(a_pod("w", notes=MISSED)), {"g1"}),
        (lambda: world.set_pod(a_puller("pull", "n1")), {"g1"}),
        (lambda: world.remove_pod("uid-p"), {"g1"}),
        (lambda: world.set_node(a_node("n1", "g2"), 1.0), {"g1", "g2"}),
        (lambda: world.remove_node("n1"), {"g2"}),
    ):
        world.dirty.clear()
        act()
        assert world.dirty == due
    assert list(world.nodes_of("g1")) == list(world.nodes_of("g2")) == []


def test_nodes_of_no_pool_are_told_apart() -> None:
    world = a_world("g1")
    world.set_node(a_node("n1"), 0.0)
    world.set_node(a_node("n2", "gone"), 0.0)
    assert world.orphans() == ("n2",)


@pytest.mark.parametrize(
    ("requests", "share"),
    [
        ({}, 0.001),
        ({"cpu": "8"}, 0.25),
        ({"cpu": "8", "memory": "32Gi"}, 0.5),
        ({"nvidia.com/gpu": "1"}, 0.25),
        ({"nvidia.com/gpu": "4"}, 1.0),
        ({"nvidia.com/gpu": "64"}, 1.0),
        ({labels.GPU: "2"}, 0.5),
        ({labels.GPU_MILLI: "500"}, 0.125),
        ({"example.com/other": "3"}, 0.001),
    ],
)
def test_the_part_of_a_node_that_a_pod_takes(requests: dict[str, str], share: float) -> None:
    spec = pool_in(a_world()).spec
    assert spec is not None
    assert share_of(view_of(a_pod("p", requests=requests)).requests, spec.pool.shape) == pytest.approx(share)


def test_pods_that_missed_need_as_many_nodes_as_they_fill() -> None:
    world = a_world("g1")
    assert world.backlog(pool_in(world)) == 0
    for number in range(5):
        world.set_pod(a_pod(f"p{number}", requests={"nvidia.com/gpu": "1"}, notes=MISSED))
    assert world.backlog(pool_in(world)) == 2
    assert nodes_for([0.1] * 10) == 1  # rounding makes no eleventh


def test_what_autoscalers_need_is_asked_of_the_pool_that_their_replicas_draw_from() -> None:
    world = a_world("g1", "g2", serves={"namespaces": ["shop"], "matchLabels": {"app": "llm"}})
    world.set_needs(a_scaler("llm", 2, [{"replicas": 7, "by": BY, "confidence": 0.9}]))
    assert world.needs_of(pool_in(world)) == []  # nobody has seen a replica yet
    replica = {"requests": {"nvidia.com/gpu": "2"}, "owner": ("ReplicaSet", "llm-5f7d"), "tags": {"app": "llm"}}
    world.set_pod(a_pod("r", "n9", **replica))
    ((_, share),) = world.needs_of(pool_in(world))
    assert nodes_needed(world.needs_of(pool_in(world)), WALL_S, 600.0) == 3
    assert share == 0.5
    assert nodes_needed(world.needs_of(pool_in(world)), WALL_S, 599.0) == 0
    world.remove_pod("uid-r")
    world.set_pod(a_pod("r", "n9", **{**replica, "tags": {"app": "llm", labels.POOL: "g2"}}))
    # The label says which pool, whatever selectors say.
    assert world.needs_of(pool_in(world)) == []
    assert len(world.needs_of(pool_in(world, "g2"))) == 1


@pytest.mark.parametrize(
    "scaler",
    [
        a_scaler(need=[{"replicas": 7, "by": "soon"}]),
        a_scaler(need=[{"replicas": "7", "by": BY}]),
        a_scaler(need=[{"replicas": -1, "by": BY}]),
        a_scaler(need=[{"replicas": 10**30, "by": BY}]),
        a_scaler(current="2", need=[{"replicas": 7, "by": BY}]),
        a_scaler(current=None, need=[{"replicas": 7, "by": BY}]),
        a_scaler(need=[{"replicas": 7, "by": BY}], mode="observe"),
        a_scaler(need=[]),
    ],
)
def test_what_cannot_be_read_or_is_not_acted_on_is_no_need(scaler: Any) -> None:
    assert needs_of(scaler) is None


def test_a_need_as_likely_as_not_to_fail_is_left_to_the_forecast() -> None:
    needs = needs_of(a_scaler(need=[{"replicas": 9, "by": BY, "confidence": 0.2}, {"replicas": 3, "by": BY}]))
    assert needs is not None
    assert nodes_needed([(needs, 1.0)], WALL_S, 3600.0) == 1


EVERYTHING = [{"operator": "Exists"}]
BOTH = [{"key": labels.POOL, "operator": "Exists"}, {"key": f"{labels.READINESS_PREFIX}g1", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("spec", "is_stranger"),
    [
        ({}, True),
        ({"tolerations": EVERYTHING}, False),
        ({"tolerations": BOTH}, False),
        ({"tolerations": BOTH[:1]}, True),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, True),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, True),
        ({"nodeSelector": {"role": "control-plane"}}, False),
    ],
)
def test_an_agent_that_wants_the_nodes_must_tolerate_both_taints(spec: dict[str, Any], is_stranger: bool) -> None:
    pool = spec_of("g1", {"shape": {"instanceType": "x"}, "size": {"max": 1}, "provider": {"kind": "adopt"}}).pool
    agent = an_agent("plugin", **spec)
    assert (agent in strangers(pool, [agent], [])) is is_stranger
    # Once there are nodes, their labels tell.
    assert strangers(pool, [agent], [{"kubernetes.io/os": "windows"}]) == (
        (agent,) if is_stranger and not spec.get("nodeSelector") else ()
    )


def test_device_plugins_are_named_first_and_affinity_is_respected() -> None:
    world = World()
    term = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    world.set_pool(pool_object("g1"))
    agents = [an_agent("a-logs"), an_agent("nvidia-device-plugin"), an_agent("picky", affinity=affinity)]
    spec = pool_in(world).spec
    assert spec is not None
    assert [one.name for one in strangers(spec.pool, agents, [])] == ["nvidia-device-plugin", "a-logs"]
    named = strangers(spec.pool, agents, [{"gpu": "true"}])
    assert [one.name for one in named] == ["nvidia-device-plugin", "a-logs", "picky"]
