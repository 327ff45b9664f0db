"""Pods that were steered and are not bound: others are offered to them, not too often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.planning import a_world


def steered(*nodes_named, **words):
    return a_pod(candidates=tuple(Berth(node=name) for name in nodes_named), is_unschedulable=True, **words)


def test_a_pod_refused_on_all_its_candidates_gets_others_and_not_too_often():
    world = a_world(*(a_node(f"n{i}") for i in range(4)))
    world.pod_seen(steered("n0", "n1"))
    ((pod, berths),) = world.unbound.steered_anew(5.0, 2)
    assert pod.uid == "uid-p1"
    assert {berth.node for berth in berths} == {"n2", "n3"}
    assert not list(world.unbound.steered_anew(14.9, 2))
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
    assert not list(world.unbound.steered_anew(100.0, 4))


def test_the_first_refusal_is_answered_even_when_the_clock_stands_near_zero():
    world = a_world(a_node("n0"), a_node("n1"))
    world.pod_seen(steered("n0"))
    assert list(world.unbound.steered_anew(-5.0, 4))
