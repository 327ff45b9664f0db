"""Device memory beside milli-GPU: a share goes where what it asks much of is left over."""

from __future__ import annotations

import pytest

from binpack.index import Index
from binpack.index.matched import UNMATCHED
from binpack.planner import plan_batch
from binpack.solver.instance import Budget
from fleet.plan import Placement
from tests.support.builders import a_node, a_pod, a_state

GIB = 1024
CARD_MIB = 80 * GIB


@pytest.mark.parametrize(
    ("milli", "gib", "device"),
    [
        (100, 20, "1"),  # much memory: where compute is used up
        (300, 4, "0"),  # much compute: where memory is used up
        (100, 8, "0"),  # evenly: the first of two equal ones
    ],
)
def test_a_share_goes_where_what_it_wants_most_is_left_over(milli: int, gib: int, device: str) -> None:
    residents = [
        a_pod("memory", node="n1", milli=200, mib=48 * GIB, devices=("0",)),
        a_pod("compute", node="n1", milli=600, mib=16 * GIB, devices=("1",)),
    ]
    index = Index([a_state(a_node(gpus=2, memory_mib=CARD_MIB), *residents)])
    answer = index.place(a_pod(milli=milli, mib=gib * GIB))
    assert isinstance(answer, Placement)
    assert answer.berth.devices == (device,)


def test_two_shares_of_little_compute_and_half_the_memory_fill_a_card() -> None:
    states = {"n1": a_state(a_node(gpus=2, memory_mib=CARD_MIB))}
    pods = [a_pod(f"p{number}", milli=200, mib=40 * GIB) for number in range(4)]
    for budget in (None, Budget()):
        plan = plan_batch(Index(states.values()), pods, budget, states)
        assert not plan.unplaced
        assert sorted(one.berth.devices[0] for one in plan.placements) == ["0", "0", "1", "1"]
    fifth = Index(states.values())
    for placement in plan.placements:
        fifth.take(next(pod for pod in pods if pod.uid == placement.pod_uid), placement.berth)
    assert not isinstance(fifth.place(a_pod(mib=1)), Placement)


def test_a_card_of_unknown_memory_is_never_out_of_match() -> None:
    known, unknown = a_state(a_node("a", gpus=1, memory_mib=CARD_MIB)), a_state(a_node("b", gpus=1))
    both, alone = Index([known, unknown]), Index([unknown])
    pod = a_pod(milli=300, models=())
    (berth,) = (option.berth for option in both.options(pod, 2) if option.berth.node == "b")
    base = both.potential() - alone.potential()
    both.take(pod, berth)
    alone.take(pod, berth)
    assert both.potential() - alone.potential() == base


def test_what_does_not_match_counts_and_comes_back() -> None:
    state = a_state(a_node(gpus=1, memory_mib=CARD_MIB))
    index = Index([state])
    before = index.potential()
    pod = a_pod(milli=200, mib=40 * GIB)
    answer = index.place(pod)
    assert isinstance(answer, Placement)
    index.take(pod, answer.berth)
    unknown = Index([a_state(a_node(gpus=1))])
    even = a_pod(milli=500)
    berth = unknown.place(even)
    assert isinstance(berth, Placement)
    unknown.take(even, berth.berth)
    assert index.potential() - unknown.potential() == UNMATCHED * 300
    index.give_back(pod, answer.berth)
    assert index.potential() == before
