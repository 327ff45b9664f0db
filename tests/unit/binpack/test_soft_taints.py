"""Soft taints: used last, never excluded."""

from __future__ import annotations

from binpack.index import Index
from fleet.constraints import NodeConstraints, Taint, Toleration
from fleet.plan import Placement
from fleet.pod import Pod
from tests.support.berths import chosen, pod, seat, share

GOING = Taint(key="DeletionCandidateOfClusterAutoscaler", value="1", effect="PreferNoSchedule")


def node_for(index: Index, one: Pod) -> str:
    answer = index.place(one)
    assert isinstance(answer, Placement)
    return answer.berth.node


def test_a_node_about_to_go_is_used_last_and_still_used() -> None:
    index = Index([seat("a", [530], taints=(GOING,)), seat("b", [1000, 1000])])
    one = pod("p", ask=share(470))
    assert node_for(index, one) == "b"
    index.remove_node("b")
    assert node_for(index, one) == "a"
    index.set_node(seat("b", [1000]))
    assert node_for(index, one) == "b"


def test_a_taint_that_goes_is_forgotten_and_one_that_comes_is_heeded() -> None:
    index = Index([seat("a", [530], taints=(GOING,)), seat("b", [1000, 1000])])
    one = pod("p", ask=share(470))
    assert node_for(index, one) == "b"
    index.set_node(seat("a", [530]))
    assert node_for(index, one) == "a"
    index.set_node(seat("a", [530], taints=(GOING,)))
    assert node_for(index, one) == "b"


def test_a_slot_used_again_has_the_taints_of_its_new_node() -> None:
    index = Index([seat("a", [1000], taints=(GOING,)), seat("z", [1000, 1000])])
    index.remove_node("a")
    index.set_node(seat("b", [1000]))
    assert node_for(index, pod("p", ask=chosen(1))) == "b"


def test_whoever_tolerates_a_soft_taint_goes_there() -> None:
    index = Index([seat("a", [530], taints=(GOING,)), seat("b", [1000, 1000])])
    tolerant = NodeConstraints(tolerations=(Toleration(key=GOING.key, operator="Exists"),))
    assert node_for(index, pod("p", ask=share(470), constraints=tolerant)) == "a"
    other = NodeConstraints(tolerations=(Toleration(key="other", operator="Exists"),))
    assert node_for(index, pod("p", ask=share(470), constraints=other)) == "b"


def test_many_different_tolerations_are_answered_right() -> None:
    index = Index([seat("a", [530], taints=(GOING,)), seat("b", [1000, 1000])])
    for number in range(600):
        constraints = NodeConstraints(tolerations=(Toleration(key=f"k{number}", operator="Exists"),))
        assert node_for(index, pod("p", ask=share(470), constraints=constraints)) == "b"
