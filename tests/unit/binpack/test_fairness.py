"""Fair order of waiting pods: priority, then what the namespace holds over its weight, then age."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from binpack.config import PlannerSettings
from binpack.controller.deciding import Decider
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.shares import contended_order
from binpack.fairness import Standing, capacity_of, fair_order, holding_of, weight_of
from binpack.solver.process import SolverProcess
from fleet.plan import Reason
from tests.support.builders import a_node, a_pod
from tests.support.clock import ManualClock
from tests.support.planning import a_world


def pods(namespace, count, **words):
    return [
        a_pod(f"{namespace}{i}", namespace=namespace, created_at_s=float(i), **({"whole": 1} | words))
        for i in range(count)
    ]


def order(*groups, **standing):
    found = fair_order([pod for group in groups for pod in group], Standing(**standing))
    return [pod.namespace for pod in found]


def test_namespaces_of_equal_weight_take_turns():
    assert order(pods("a", 3), pods("b", 3), capacity={"G2": 8000}) == ["a", "b"] * 3


def test_whoever_holds_more_comes_later():
    assert order(pods("a", 2), pods("b", 2), capacity={"G2": 8000}, held={"a": {"G2": 2000}}) == ["b", "b", "a", "a"]


def test_weights_stretch_shares():
    found = order(pods("a", 4), pods("b", 8), capacity={"G2": 9000}, weights={"b": 2.0})
    assert Counter(found[:6]) == {"a": 2, "b": 4}


def test_large_pods_count_by_their_size():
    found = order(pods("a", 2, whole=4), pods("b", 8), capacity={"G2": 16000})
    assert found[:6].count("b") >= 4


def test_priority_comes_before_shares_and_age_before_nothing():
    late = pods("a", 1, priority=5)
    assert order(pods("b", 1), late, capacity={"G2": 8000}, held={"a": {"G2": 8000}}) == ["a", "b"]


def test_each_model_is_a_resource_of_its_own():
    standing = Standing(capacity={"G2": 100_000, "T4": 1000}, held={"a": {"T4": 1000}, "b": {"G2": 50_000}})
    assert standing.share("a") == 1.0
    assert standing.share("b") == 0.5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from((0, 9))), max_size=20))
def test_nobody_is_lost_or_doubled_and_age_holds_within_a_namespace(wishes):
    batch = [
        a_pod(f"p{i}", namespace=ns, whole=wide, priority=priority, created_at_s=float(i))
        for i, (ns, wide, priority) in enumerate(wishes)
    ]
    found = fair_order(batch, Standing(capacity={"G2": 32_000}))
    assert sorted(pod.uid for pod in found) == sorted(pod.uid for pod in batch)
    for ns in "abc":
        for priority in (0, 9):
            ages = [pod.created_at_s for pod in found if (pod.namespace, pod.priority) == (ns, priority)]
            assert ages == sorted(ages)
    assert [pod.priority for pod in found] == sorted((pod.priority for pod in found), reverse=True)


@pytest.mark.parametrize(("text", "weight"), [("2", 2.0), ("0.5", 0.5), ("0", None), ("-1", None), ("x", None)])
def test_weights_are_read_or_refused(text, weight):
    assert weight_of(text) == weight


@pytest.mark.parametrize("text", ["nan", "inf", "1e9"])
def test_weights_without_sense_are_refused(text):
    assert weight_of(text) is None


def test_what_is_held_counts_by_the_model_of_its_devices():
    node = a_node("n1", gpus=2, model="T4", milli_cpu=4000)
    assert holding_of(a_pod(whole=2, node="n1", devices=("0", "1")), node) == {"T4": 2000}
    assert holding_of(a_pod(milli=300, node="n1", devices=("1",)), node) == {"T4": 300}
    assert holding_of(a_pod(classic=1, node="n1"), node) == {"T4": 1000}
    assert holding_of(a_pod(milli_cpu=500, node="n1"), node) == {"cpu": 500}
    assert capacity_of([node]) == {"cpu": 4000, "T4": 2000}


@pytest.mark.parametrize(("weights", "right"), [({"b": 1.0}, {"a": 2, "b": 2}), ({}, None)])
async def test_the_planner_gives_scarce_room_in_fair_order_where_weights_are_set(weights, right):
    world = a_world(a_node("n1", gpus=4))
    world.weights.update(weights)
    batch = pods("a", 4) + [a_pod(f"b{i}", namespace="b", whole=1, created_at_s=9.0 + i) for i in range(4)]
    for pod in batch:
        world.pod_seen(pod)
    decide = Decider(SolverProcess(ManualClock()), PlannerSettings(solve_s=0), PlannerMetrics(CollectorRegistry()))
    plan = await decide(world, world.take_batch(100))
    by_uid = {pod.uid: pod.namespace for pod in batch}
    placed = Counter(by_uid[one.pod_uid] for one in plan.placements)
    assert sum(placed.values()) == 4
    assert right is None or placed == right
    assert {one.reason for one in plan.unplaced} == {Reason.INSUFFICIENT}


def test_a_batch_that_is_full_is_filled_in_fair_order():
    world = a_world(a_node("n1", gpus=8))
    world.weights["b"] = 1.0
    for pod in pods("a", 6) + [a_pod(f"b{i}", namespace="b", whole=1, created_at_s=50.0 + i) for i in range(2)]:
        world.pod_seen(pod)
    batch = world.take_batch(4, order=lambda found: contended_order(world, tuple(found)))
    assert Counter(pod.namespace for pod in batch) == {"a": 2, "b": 2}
    assert [pod.name for pod in world.take_batch(9)] == ["a2", "a3", "a4", "a5"]
