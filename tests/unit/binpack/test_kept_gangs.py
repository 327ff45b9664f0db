"""Nodes that drain for gangs which wait: last resort of everybody else, refused to nobody, and worth the wait."""

from __future__ import annotations

import heapq
import random
import statistics
from dataclasses import replace
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.index import Index
from fleet.constraints import NodeConstraints
from fleet.device import DeviceAsk
from fleet.plan import Placement, Reason
from fleet.pod import Berth, Pod
from tests.support.berths import chosen, pod, seat, share
from tests.support.builders import a_node, a_pod
from tests.support.planning import running


def unit(members: int, ask: DeviceAsk | None, gang: str = "g", **words: float) -> tuple[Pod, ...]:
    return tuple(replace(pod(f"{gang}{i}", ask=ask, **words), gang=gang, gang_size=members) for i in range(members))


def where(index: Index, wanted: Pod) -> str | None:
    answer = index.place(wanted)
    return answer.berth.node if isinstance(answer, Placement) else None


def kept(index: Index) -> list[str]:
    """Return the nodes that are kept from a pod without a gang, the freest first."""
    cost = {one.berth.node: one.score for one in index.options(pod("cpu"), 99)}
    return [name for name in sorted(cost, key=lambda name: (-cost[name], name)) if cost[name] > 10_000]


def test_the_freest_nodes_drain_until_all_members_would_have_room() -> None:
    nodes = [
        seat("a", (0, 0, 0, 1000)),
        seat("b", (1000, 1000, 1000, 0)),
        seat("c", (0, 0, 1000, 1000)),
        seat("d", (0, 1000, 1000, 1000)),
    ]
    index, one = Index(nodes), pod("one", ask=chosen())
    for members, expected in ((1, "a"), (2, "b"), (4, "b"), (5, "bd"), (9, "bdc"), (99, "bdca")):
        index.keep_for_gangs([unit(members, chosen())])
        assert kept(index) == list(expected)
    index.keep_for_gangs([unit(1, chosen(4)), unit(2, chosen(3), "h")])
    assert kept(index) == ["b", "d", "c"], "three nodes for two gangs"
    assert where(index, one) == "a"
    index.keep_for_gangs([[*unit(3, chosen(4)), *unit(1, chosen())]])
    assert kept(index) == ["b", "d", "c", "a"], "of one gang, too, each kind has its own"
    index.keep_for_gangs([])
    assert kept(index) == []


def test_members_of_a_gang_that_waits_may_and_others_of_their_size_may_not() -> None:
    nodes = [seat("a", (1000, 1000, 0, 0)), seat("b", (1000, 1000, 1000, 0))]
    index, free = Index(nodes), Index(nodes)
    members = unit(2, chosen(2))
    index.keep_for_gangs([members])
    assert [one.score for one in index.options(members[0], 9)] == [one.score for one in free.options(members[0], 9)]
    assert where(index, pod("same", ask=chosen(2))) == "a"
    others = replace(pod("else", ask=chosen(2)), gang="h", gang_size=3)
    assert [one.berth.node for one in index.options(others, 9)] == ["a", "b"]
    assert index.options(others, 9)[1].score > free.options(others, 9)[0].score + 10_000


def test_what_could_never_hold_a_member_is_not_kept() -> None:
    nodes = [seat("a", (1000, 1000)), seat("b", (1000, 1000, 1000, 0), cpu=4), seat("c", (0, 1000, 1000, 1000))]
    index, one = Index(nodes), pod("one", ask=chosen())
    for members in (unit(3, chosen(4), cpu=32), unit(2, share(500)), unit(2, None)):
        index.keep_for_gangs([members])
        expected = "c" if members[0].ask == chosen(4) else None
        found = where(index, one)
        assert found != expected
        if expected is None:
            assert found == where(Index(nodes), one)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from((0, 300, 530, 1000)), min_size=1, max_size=4), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), max_size=3),
    st.sampled_from((None, share(250), share(600), chosen(1), chosen(2), chosen(4))),
)
def test_keeping_changes_where_and_never_whether(
    residuals: list[list[int]], gangs: list[tuple[int, int]], ask: DeviceAsk | None
) -> None:
    nodes = [seat(f"n{i}", tuple(row)) for i, row in enumerate(residuals)]
    index, free = Index(nodes), Index(nodes)
    index.keep_for_gangs([unit(members, chosen(each), f"g{i}") for i, (members, each) in enumerate(gangs)])
    for wanted in (pod("p", ask=ask), replace(pod("m", ask=ask), gang="g0", gang_size=9)):
        found, other = index.place(wanted), free.place(wanted)
        assert isinstance(found, Placement) == isinstance(other, Placement)
        if wanted.gang and gangs:
            assert found == other
        if isinstance(found, Placement):
            index.take(wanted, Berth(node=found.berth.node, devices=found.berth.devices))
            index.give_back(wanted, found.berth)


def wait_h(seed: int, *, keeps: bool, longest_h: float) -> float:
    """Return how long 3 members of 4 devices wait on 8 nodes of 4, loaded to 0.7 by single pods that live for 1 h."""
    chance, nodes = random.Random(seed), 8
    index = Index(seat(f"n{i}", (1000,) * 4) for i in range(nodes))
    asks, numbers = (share(500), chosen(1)), count()
    rate = 0.7 * nodes * 4 / 0.75
    members, began_h = unit(3, chosen(4)), 4.0
    leaving: list[tuple[float, int, Pod, Berth]] = []
    now_h = 0.0
    while now_h < began_h + longest_h:
        now_h += chance.expovariate(rate)
        while leaving and leaving[0][0] <= now_h:
            _, _, gone, berth = heapq.heappop(leaving)
            index.give_back(gone, berth)
        if now_h >= began_h:
            if stands(index, members):
                return now_h - began_h
            if keeps:
                index.keep_for_gangs([members])
        single = pod(f"s{next(numbers)}", ask=chance.choice(asks))
        answer = index.place(single, with_shortfall=False)
        if isinstance(answer, Placement):
            index.take(single, answer.berth)
            heapq.heappush(leaving, (now_h + chance.expovariate(1.0), next(numbers), single, answer.berth))
    return longest_h


def stands(index: Index, members: tuple[Pod, ...]) -> bool:
    booked: list[tuple[Pod, Berth]] = []
    for member in members:
        answer = index.place(member, with_shortfall=False)
        if isinstance(answer, Placement):
            index.take(member, answer.berth)
            booked.append((member, answer.berth))
    for member, berth in reversed(booked):
        index.give_back(member, berth)
    return len(booked) == len(members)


def test_a_gang_gets_in_sooner_where_single_pods_come_and_go() -> None:
    without = [wait_h(seed, keeps=False, longest_h=30.0) for seed in range(3)]
    with_it = [wait_h(seed, keeps=True, longest_h=30.0) for seed in range(3)]
    assert statistics.mean(with_it) < 0.5 * statistics.mean(without)


async def test_the_planner_keeps_nodes_for_a_gang_from_its_first_refusal_until_it_stands() -> None:
    only = NodeConstraints(node_selector=(("zone", "n2"),))
    async with running([a_node(name, gpus=4, labels={"zone": name}) for name in ("n1", "n2")]) as bridge:
        bridge.see(
            a_pod("x", whole=1, node="n1", devices=("0",)),
            *(a_pod(f"y{i}", whole=1, node="n2", devices=(f"{i}",)) for i in range(2)),
            a_pod("p0", whole=4, gang="g", gang_size=1, constraints=only),
        )
        await bridge.pass_s(2)
        assert bridge.world.waiting.get("uid-p0").reason is Reason.GANG_DOES_NOT_FIT
        bridge.see(a_pod("a", whole=2))
        await bridge.pass_s(1)
        assert bridge.writer.pods["uid-a"].pinned_node == "n1", "n2 would fit best"
        bridge.see(a_pod("b", whole=2))
        await bridge.pass_s(1)
        assert bridge.writer.pods["uid-b"].pinned_node == "n2", "nobody is refused for it"
        bridge.lose("uid-b", "uid-y0", "uid-y1")
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert bridge.writer.pods["uid-p0"].pinned_node == "n2"
        bridge.lose("uid-p0")
        bridge.see(a_pod("z", whole=1, node="n2", devices=("0",)), a_pod("c", whole=3))
        await bridge.pass_s(2)
        assert bridge.writer.pods["uid-c"].pinned_node == "n2"
        assert bridge.world.index.place(a_pod("free", whole=1)).score < 10_000
