"""In whose favour room is given that does not suffice, once somebody has waited for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from binpack.config import PlannerSettings
from binpack.controller.deciding import Decider
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.queueing import turn_order
from binpack.demand import LONG_WAIT_S, demand_milli, in_turn
from binpack.solver.process import SolverProcess
from fleet.plan import Reason, Unplaced
from tests.support.builders import a_node, a_pod
from tests.support.clock import ManualClock
from tests.support.planning import a_world

HOUR_S = 3600.0
SHAPES = [{"whole": 8}, {"whole": 4}, {"whole": 1}, {"milli": 500}, {"milli": 200}]


def a_world_with(*pods, gpus=1):
    """Return a world in which these (pod, waited s) wait or, with None, have just come."""
    now = [0.0]
    world = a_world(a_node("n1", gpus=gpus), now_s=lambda: now[0])
    for pod, waited_s in pods:
        world.pod_seen(pod)
        now[0] = -(waited_s or 0.0)
        if waited_s is not None:
            world.wait(Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, detail=""))
            world.queue[pod.uid] = pod
    now[0] = 0.0
    return world


@given(st.lists(st.tuples(st.sampled_from(SHAPES), st.floats(0, 1e7)), min_size=2, max_size=8))
def test_nobody_is_passed_over_for_ever_and_of_equals_who_waits_longer_is_first(waits):
    pods = [(a_pod(f"p{i}", **shape), waited_s) for i, (shape, waited_s) in enumerate(waits)]
    for one, one_s in pods:
        for other, other_s in pods:
            ratio = demand_milli(other) / demand_milli(one)
            if one_s > max(LONG_WAIT_S, other_s) * ratio * ratio * 1.001:
                assert in_turn(one, one_s) < in_turn(other, other_s)


def test_the_bigger_is_first_where_waits_are_short_and_priority_before_all():
    big, small, urgent = a_pod("big", whole=8), a_pod("small", whole=1), a_pod("urgent", milli=200, priority=1)
    waited_s = {"big": 0.0, "small": HOUR_S - 1, "urgent": 0.0}
    found = sorted((small, big, urgent), key=lambda pod: in_turn(pod, waited_s[pod.name]))
    assert [pod.name for pod in found] == ["urgent", "big", "small"]


def test_turns_are_taken_only_once_somebody_has_waited_for_an_hour():
    old, new = a_pod("old", milli=600), a_pod("new", whole=1)
    world = a_world_with((old, HOUR_S - 1), (new, None))
    assert turn_order(world, [new, old]) is None
    world = a_world_with((old, 9 * HOUR_S), (new, None))
    assert turn_order(world, [new, old]) == [old, new]


def test_weights_between_namespaces_come_before_waiting():
    old = [a_pod(f"old{i}", whole=1, namespace="a") for i in range(3)]
    new = a_pod("new", whole=1, namespace="b", created_at_s=9.0)
    world = a_world_with(*((pod, 9 * HOUR_S) for pod in old), (new, None), gpus=4)
    assert turn_order(world, [*old, new]) == [*old, new], "by waiting time alone"
    world.weights["b"] = 1.0
    assert turn_order(world, [*old, new]) == [old[0], new, *old[1:]], "in turn between namespaces"


async def placed(world):
    decide = Decider(SolverProcess(ManualClock()), PlannerSettings(solve_s=0), PlannerMetrics(CollectorRegistry()))
    plan = await decide(world, world.take_batch(100))
    return {one.pod_uid for one in plan.placements}


async def test_a_share_that_has_waited_for_hours_gets_the_device_before_a_whole_pod_that_just_came():
    old, new = a_pod("old", milli=600), a_pod("new", whole=1)
    assert await placed(a_world_with((old, 9 * HOUR_S), (new, None))) == {old.uid}
    assert await placed(a_world_with((old, 60.0), (new, None))) == {new.uid}


async def test_a_node_that_became_free_goes_to_the_pod_that_needs_all_of_it_though_small_ones_wait_longer():
    big = a_pod("big", whole=8)
    small = [(a_pod(f"s{i}", whole=1), 20 * HOUR_S) for i in range(8)]
    assert await placed(a_world_with((big, 2 * HOUR_S), *small, gpus=8)) == {big.uid}
    small = [(pod, 200 * HOUR_S) for pod, _ in small]
    assert await placed(a_world_with((big, 2 * HOUR_S), *small, gpus=8)) == {pod.uid for pod, _ in small}
