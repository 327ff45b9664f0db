"""Devices of one island: who gets them together, and who leaves them whole for others."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpack import fit
from binpack.check import check
from binpack.index import Index
from binpack.index.islands import BROKEN_MILLI, breaking, broken, parted, together
from binpack.planner import plan_batch
from binpack.state import NodeState
from binpack.wording import needs
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth, Pod
from tests.support.builders import a_node, a_pod, a_state

PAIRS = (("0", "2"), ("1", "3"), ("4", "5"), ("6", "7"))
HALVES = (("0", "1", "2", "3"), ("4", "5", "6", "7"))

nodes = st.integers(1, 8).flatmap(
    lambda width: st.tuples(
        st.lists(st.booleans(), min_size=width, max_size=width),
        st.lists(st.integers(0, 3), min_size=width, max_size=width),
        st.integers(1, 8),
    )
)


@given(nodes)
def test_the_choice_takes_what_is_free_and_one_island_where_one_has_enough(
    node: tuple[list[bool], list[int], int],
) -> None:
    free, island, count = node
    chosen = together(np.array([free]), np.array([island]), count)[0]
    assert not (chosen & ~np.array(free)).any()
    assert chosen.sum() == min(count, sum(free))
    groups = {tuple(i for i, n in enumerate(island) if n == number) for number in {1, 2, 3}}
    groups |= {(i,) for i, n in enumerate(island) if n == 0}
    left = [sum(free[i] for i in group) for group in groups]
    enough = [many for many in left if many >= count]
    taken = [group for group in groups if any(chosen[i] for i in group)]
    if enough:
        (group,) = taken
        assert sum(free[i] for i in group) == min(enough)
    else:
        assert len(taken) == _fewest(left, min(count, sum(free)))


@given(nodes)
def test_the_step_of_each_device_is_the_difference_of_the_potential(node: tuple[list[bool], list[int], int]) -> None:
    free, island, _ = np.array([node[0]]).astype(np.int64), np.array([node[1]]), node[2]
    steps = breaking(free, island)[0]
    for device in range(free.shape[1]):
        after = free.copy()
        after[0, device] = 0
        assert steps[device] == broken(after, island)[0] - broken(free, island)[0]


def test_what_lies_free_beside_a_taken_one_counts() -> None:
    island = np.array([[1, 1, 2, 2, 0]])
    assert broken(np.array([[1, 1, 1, 1, 1]]), island) == [0]
    assert broken(np.array([[0, 1, 1, 1, 0]]), island) == [BROKEN_MILLI]
    assert broken(np.array([[0, 0, 1, 1, 0]]), island) == [0]
    assert parted(np.array([[True, False, True, False, True]]), island) == [256]
    assert parted(np.array([[True, True, False, False, True]]), island) == [0]


def place(index: Index, pod: Pod) -> tuple[str, ...]:
    answer = index.place(pod)
    assert isinstance(answer, Placement), answer
    index.take(pod, answer.berth)
    return answer.berth.devices


def test_a_single_device_and_a_share_come_from_a_broken_island() -> None:
    state = a_state(a_node(gpus=8, islands=PAIRS), a_pod("r", node="n1", whole=1, devices=("4",)))
    assert place(Index([state]), a_pod(whole=1)) == ("5",)
    assert place(Index([state]), a_pod(milli=600)) == ("5",)
    shared = a_state(a_node(gpus=8, islands=PAIRS), a_pod("r", node="n1", milli=300, devices=("6",)))
    assert place(Index([shared]), a_pod(whole=1)) == ("7",)


def test_a_share_breaks_the_same_island_as_the_next() -> None:
    index = Index([a_state(a_node(gpus=4, islands=PAIRS[:2]))])
    assert place(index, a_pod("a", milli=900)) == ("0",)
    assert place(index, a_pod("b", milli=900)) == ("2",)
    assert place(index, a_pod("c", whole=2)) == ("1", "3")


def test_four_devices_are_two_whole_pairs_or_one_half() -> None:
    resident = a_pod("r", node="n1", whole=1, devices=("0",))
    assert place(Index([a_state(a_node(gpus=8, islands=PAIRS), resident)]), a_pod(whole=4)) == ("1", "3", "4", "5")
    assert place(Index([a_state(a_node(gpus=8, islands=HALVES), resident)]), a_pod(whole=4)) == ("4", "5", "6", "7")


def test_a_pod_goes_to_the_node_where_it_stays_together() -> None:
    parted_node = a_state(
        a_node("a", gpus=4, islands=PAIRS[:2]),
        a_pod("r", node="a", whole=1, devices=("0",)),
        a_pod("s", node="a", whole=1, devices=("1",)),
    )
    paired = a_state(a_node("b", gpus=4, islands=PAIRS[:2]), a_pod("t", node="b", whole=2, devices=("0", "2")))
    answer = Index([parted_node, paired]).place(a_pod(whole=2))
    assert isinstance(answer, Placement)
    assert answer.berth == Berth(node="b", devices=("1", "3"))
    alone = Index([parted_node]).place(a_pod(whole=2))
    assert isinstance(alone, Placement)
    assert alone.berth.devices == ("2", "3")


def test_one_who_insists_waits_and_says_so() -> None:
    residents = [a_pod(f"r{i}", node="n1", whole=1, devices=(i,)) for i in ("0", "1")]
    state = a_state(a_node(gpus=4, islands=PAIRS[:2]), *residents)
    pod = a_pod(whole=2, is_one_island=True)
    answer = Index([state]).place(pod)
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.INSUFFICIENT
    assert fit.missing(pod, state) == (("devices", 2),)
    assert needs(pod).startswith("2 free devices on one island")
    assert isinstance(Index([state]).place(a_pod(whole=2)), Placement)


def test_a_node_that_tells_of_no_islands_is_none_to_one_who_insists() -> None:
    pod = a_pod(whole=2, is_one_island=True)
    for node in (a_node(gpus=4), a_node(gpus=4, islands=(("0",), ("1",)))):
        answer = Index([a_state(node)]).place(pod)
        assert isinstance(answer, Unplaced)
        assert answer.reason is Reason.NO_SUCH_DEVICE
        assert answer.detail.endswith("of one island")


def rules(state: NodeState, pod: Pod, *devices: str) -> list[str]:
    plan = Plan(placements=(Placement(pod_uid=pod.uid, berth=Berth(node="n1", devices=devices)),))
    return [violation.rule for violation in check({"n1": state}, [pod], plan)]


@pytest.mark.parametrize(("devices", "is_lawful"), [(("0", "2"), True), (("0", "1"), False), (("8", "9"), False)])
def test_the_verifier_and_the_extender_hold_one_who_insists_to_it(devices: tuple[str, ...], is_lawful: bool) -> None:
    state = a_state(a_node(gpus=10, islands=PAIRS))
    pod = a_pod(whole=2, is_one_island=True)
    assert rules(state, pod, *devices) == ([] if is_lawful else ["devices of one island"])
    assert (fit.refusal(pod, Berth(node="n1", devices=devices), state) == "") is is_lawful


def test_the_solver_keeps_pairs_together_too() -> None:
    """A batch whose draft the solver improves, on nodes whose pairs are no neighbours."""
    states = {name: a_state(a_node(name, gpus=4, islands=PAIRS[:2], milli_cpu=32_000)) for name in ("a", "b")}
    pods = [a_pod(f"t{i}", whole=2, is_one_island=True, milli_cpu=4000) for i in range(3)]
    pods += [a_pod(f"o{i}", whole=1, milli_cpu=4000) for i in range(2)]
    from binpack.solver.instance import Budget

    plan = plan_batch(Index(states.values()), pods, Budget(), states)
    assert not plan.unplaced
    assert check(states, pods, plan) == ()


def _fewest(left: list[int], count: int) -> int:
    return (
        next(many for many in range(1, len(left) + 1) if any(sum(some) >= count for some in combinations(left, many)))
        if count
        else 0
    )
