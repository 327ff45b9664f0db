from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.controller.census import Order, census, order_for, replicas
from scaler.controller.pods import Pod
from scaler.seen import Phase
from tests.support.replicas import a_pod

READY, STARTING, DRAINING, FAILED = Phase.READY, Phase.STARTING, Phase.DRAINING, Phase.FAILED


def pods(ready: int = 0, starting: int = 0, draining: int = 0, stuck: int = 0) -> list[Pod]:
    phases = [READY] * ready + [STARTING] * starting + [DRAINING] * draining + [FAILED] * stuck
    return [a_pod(f"p{number}", phase, since_s=float(number)) for number, phase in enumerate(phases)]


# ready, starting, draining, stuck of the pods; ordered -> ready, starting, draining of the fleet.
@pytest.mark.parametrize(
    ("there", "ordered", "counted"),
    [
        ((3, 0, 0, 0), 3, (3, 0, 0)),
        ((3, 0, 0, 0), None, (3, 0, 0)),
        ((1, 0, 0, 0), 4, (1, 3, 0)),  # ordered, no pods yet: starting, once
        ((1, 2, 0, 0), 4, (1, 3, 0)),
        ((4, 0, 0, 0), 3, (3, 0, 1)),  # a shrink on its way
        ((3, 2, 0, 0), 3, (3, 0, 2)),  # starting ones go first
        ((3, 2, 0, 0), 2, (2, 0, 3)),
        ((2, 0, 1, 0), 2, (2, 0, 1)),  # a leaving pod is no capacity and holds no place
        ((2, 0, 1, 0), 3, (2, 1, 1)),
        ((10, 3, 0, 0), 10, (10, 0, 3)),  # a rollout's surge
        ((2, 0, 0, 1), 3, (2, 0, 0)),  # a stuck pod holds its place and is no capacity
        ((0, 0, 0, 0), 0, (0, 0, 0)),
    ],
)
def test_pods_and_order_become_counts(there, ordered, counted):
    fleet = census(pods(*there), Order(replicas=ordered, at_s=50.0)).fleet
    assert (fleet.ready, fleet.starting, fleet.draining) == counted


def test_an_order_without_a_pod_starts_when_it_was_given():
    fleet = census([a_pod("a", STARTING, since_s=10.0)], Order(replicas=3, at_s=50.0)).fleet
    assert fleet.starting_since_s == (10.0, 50.0, 50.0)


def test_of_starting_pods_the_oldest_stay():
    there = [a_pod("old", STARTING, since_s=1.0), a_pod("young", STARTING, since_s=9.0)]
    assert census(there, Order(replicas=1, at_s=0.0)).fleet.starting_since_s == (1.0,)


def test_an_ended_pod_is_nobody():
    counted = census([a_pod("a", FAILED, is_ended=True), a_pod("b")], Order(replicas=1, at_s=0.0))
    assert (counted.fleet.replicas, counted.fleet.failed, sorted(counted.pods)) == (1, 0, ["b"])


def test_an_address_of_two_pods_names_neither():
    there = [a_pod("a", address="10.0.0.1"), a_pod("b", address="10.0.0.1"), a_pod("c", address="10.0.0.2")]
    assert census(there, Order(replicas=3, at_s=0.0)).names == {"10.0.0.2": "c"}


def test_where_pods_cannot_be_told_the_order_counts():
    counted = census((), Order(replicas=3, at_s=0.0, tells_pods=False))
    assert (counted.fleet.ready, counted.fleet.starting) == (3, 0)


@given(st.lists(st.sampled_from(list(Phase)), max_size=30), st.none() | st.integers(0, 30))
def test_every_place_is_counted_once(phases, ordered):
    there = [a_pod(f"p{number}", phase, since_s=float(number)) for number, phase in enumerate(phases)]
    counted = census(there, Order(replicas=ordered, at_s=99.0))
    fleet = counted.fleet
    assert fleet.ready + fleet.starting + fleet.draining + fleet.failed == len(phases) + counted.missing
    if ordered is not None:
        assert fleet.replicas <= ordered
        assert fleet.replicas + counted.stuck >= min(ordered, fleet.replicas + counted.stuck)
        # A stuck pod stands in the way of its own replacement only.
        assert fleet.replicas == ordered - counted.stuck or counted.stuck > ordered or counted.stuck == 0


# desired, ready, stuck, max -> the count to set
@pytest.mark.parametrize(
    ("desired", "ready", "stuck", "most", "wanted"),
    [
        (4, 4, 0, 10, 4),
        (10, 7, 3, 20, 13),
        (10, 7, 3, 11, 11),  # bounds hold
        (1, 0, 1, 20, 1),  # where nothing comes up, more of it does not help
        (4, 2, 9, 20, 5),
        (0, 0, 2, 20, 0),  # asleep is asleep
    ],
)
def test_stuck_pods_are_replaced_where_others_come_up(desired, ready, stuck, most, wanted):
    counted = census(pods(ready=ready, stuck=stuck), Order(replicas=None, at_s=0.0))
    assert order_for(desired, counted, most) == wanted


def test_replicas_carry_what_the_balancer_saw():
    found = replicas([a_pod("a"), a_pod("b", STARTING, scheduled_at_s=None)], {"a": 3.0})
    assert [(one.name, one.in_flight, one.unscheduled) for one in found] == [("a", 3.0, False), ("b", None, True)]
