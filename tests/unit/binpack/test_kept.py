"""Nodes that drain for pods waiting for several whole devices: last resort of everybody else, refused to nobody."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.index import Index
from binpack.index.ahead import Ahead, Expected, Present
from fleet.plan import Placement
from fleet.pod import Berth, Pod
from tests.support.berths import chosen, pod, seat, share


def waits(*pods: tuple[Pod, int]) -> list[Expected]:
    return [Expected(pod=one, waiting=n) for one, n in pods]


def where(index: Index, wanted: Pod) -> str | None:
    answer = index.place(wanted)
    return answer.berth.node if isinstance(answer, Placement) else None


def test_the_emptiest_node_drains_for_the_pod_that_waits_and_the_others_fill_up() -> None:
    nodes = [seat("a", (0, 0, 0, 1000)), seat("b", (1000, 1000, 1000, 0)), seat("c", (0, 0, 1000, 1000))]
    index = Index(nodes)
    waiting = pod("big", ask=chosen(4))
    index.keep_for(waits((waiting, 1)))
    one = pod("one", ask=chosen())
    assert where(index, one) in {"a", "c"}
    index.keep_for(waits((waiting, 2)))
    assert where(index, one) == "a", "two wait: c is kept too, though less near"
    index.keep_for(waits((waiting, 9)))
    assert where(index, one) == "a", "all are kept: the furthest from being of use first"


def test_no_node_is_refused_for_it() -> None:
    index = Index([seat("b", (1000, 1000, 1000, 0))])
    index.keep_for(waits((pod("big", ask=chosen(4)), 3)))
    assert where(index, pod("one", ask=chosen())) == "b"
    assert where(index, pod("cpu")) == "b"


def test_who_asks_as_many_devices_may_take_what_is_kept() -> None:
    nodes = [seat("a", (1000, 1000, 0, 0)), seat("b", (1000, 1000, 1000, 0))]
    index = Index(nodes)
    index.keep_for(waits((pod("two", ask=chosen(2)), 1)))
    free = Index(nodes)
    for ask in (chosen(2), chosen(3)):
        wanted = pod("p", ask=ask)
        assert where(index, wanted) == where(free, wanted)


def test_nodes_that_could_never_hold_the_waiting_pod_are_nobodys_concern() -> None:
    nodes = [seat("a", (1000, 1000)), seat("b", (1000, 1000, 1000, 0), cpu=4)]
    index, free = Index(nodes), Index(nodes)
    index.keep_for(
        waits((pod("big", ask=chosen(4), cpu=32), 1), (pod("small", ask=share(300)), 5), (pod("cpu", cpu=99), 1))
    )
    for wanted in (pod("one", ask=chosen()), pod("part", ask=share(470)), pod("c")):
        assert index.place(wanted) == free.place(wanted)


def test_the_last_call_counts_and_nobody_waiting_means_nothing_is_kept() -> None:
    nodes = [seat("a", (0, 1000, 1000, 1000)), seat("b", (0, 0, 0, 1000))]
    index, free = Index(nodes), Index(nodes)
    index.keep_for(waits((pod("big", ask=chosen(4)), 1)))
    index.keep_for([])
    assert index.place(pod("one", ask=chosen())) == free.place(pod("one", ask=chosen()))


def test_nodes_are_kept_for_who_is_missing_though_nobody_waits() -> None:
    nodes = [seat("a", (0, 0, 0, 1000)), seat("b", (1000, 1000, 1000, 0)), seat("c", (0, 0, 1000, 1000))]
    index, big, one = Index(nodes), pod("big", ask=chosen(4)), pod("one", ask=chosen())
    index.keep_for([Expected(pod=big, waiting=0, missing=2.2)])
    assert where(index, one) == "a"
    more = Expected(pod=pod("other", ask=chosen(4), cpu=2), waiting=0, missing=-1.0)
    index.keep_for([Expected(pod=big, waiting=0, missing=2.2), more])
    assert where(index, one) in {"a", "c"}, "of those that the same nodes could hold one more than usual runs"
    index.keep_for([Expected(pod=big, waiting=0, missing=0.4), more])
    free = Index(nodes)
    assert index.place(one) == free.place(one)


def test_once_some_have_left_nodes_fill_in_order_of_names_though_none_is_missing() -> None:
    nodes = [seat("a", (1000,) * 4), seat("b", (500, 1000, 1000, 1000))]
    index, free, one = Index(nodes), Index(nodes), pod("half", ask=share(500))
    assert where(free, one) == "b", "best fit"
    big = pod("big", ask=chosen(4))
    index.keep_for([Expected(pod=big, waiting=0)])
    assert where(index, one) == "b"
    index.keep_for([Expected(pod=big, waiting=0, leaves=True)])
    assert where(index, one) == "a"
    index.keep_for([Expected(pod=pod("two", ask=chosen(2)), waiting=0, missing=3.0, leaves=True)])
    assert where(index, one) == "b", "two such pods share a node: its openings come by themselves"


def test_that_some_left_is_known_as_long_as_they_are_usual() -> None:
    ahead, big = Ahead(), pod("big", ask=chosen(4))

    def leaves(now_s: float, running: int) -> list[bool]:
        present = {"big": Present(pod=big, running=running, waiting=0)} if running else {}
        return [one.leaves for one in ahead.expected(present, now_s)]

    assert [leaves(0.0, 1), leaves(60.0, 2), leaves(120.0, 1), leaves(180.0, 3)] == [[False], [False], [True], [True]]
    assert leaves(400_000.0, 0) == []
    assert leaves(400_060.0, 1) == [False]


def test_what_is_known_to_be_usual_is_missing_from_the_first_look_on() -> None:
    big = pod("big", ask=chosen(4))
    (found,) = Ahead([(big, 2.5), (pod("same", ask=chosen(4)), 0.5)]).expected({}, 1e9)
    assert (found.waiting, found.missing) == (0, 3.0)


def missing(ahead: Ahead, now_s: float, running: int, waiting: int = 0) -> float:
    present = {"big": Present(pod=pod("big", ask=chosen(4)), running=running, waiting=waiting)}
    (found,) = ahead.expected(present if running or waiting else {}, now_s)
    assert found.waiting == waiting
    return found.missing


def test_a_cluster_that_only_fills_misses_nobody() -> None:
    ahead = Ahead()
    assert all(missing(ahead, 600.0 * n, running) <= 0 for n, running in enumerate(range(1, 50)))


def test_who_left_is_missed_and_forgotten_by_half_every_six_hours() -> None:
    ahead, hour_s = Ahead(), 3600.0
    assert missing(ahead, 0.0, running=8) == 0
    assert missing(ahead, 0.0, running=3) == 5, "at the same moment nothing is learnt"
    assert missing(ahead, 6 * hour_s, running=3) == pytest.approx(8 / 2 + 3 / 2 - 3)
    assert missing(ahead, 12 * hour_s, running=0) == pytest.approx(5.5 / 2)
    assert missing(ahead, 12 * hour_s, running=0, waiting=4) == pytest.approx(5.5 / 2)
    assert ahead.expected({}, 100 * hour_s) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from((0, 300, 530, 1000)), min_size=1, max_size=4), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(2, 4), st.integers(1, 9)), max_size=3),
    st.sampled_from((None, share(250), share(600), chosen(1), chosen(2), chosen(4))),
)
def test_keeping_changes_where_and_never_whether(
    residuals: list[list[int]], waiting: list[tuple[int, int]], ask
) -> None:
    nodes = [seat(f"n{i}", tuple(row)) for i, row in enumerate(residuals)]
    index, free = Index(nodes), Index(nodes)
    index.keep_for(waits(*((pod(f"w{count}", ask=chosen(count)), many) for count, many in waiting)))
    wanted = pod("p", ask=ask)
    found, other = index.place(wanted), free.place(wanted)
    assert isinstance(found, Placement) == isinstance(other, Placement)
    if isinstance(found, Placement):
        index.take(wanted, Berth(node=found.berth.node, devices=found.berth.devices))
