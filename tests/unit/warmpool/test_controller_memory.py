"""What a pool earned and remembers: sums by the hour, draws counted once, and all of it across restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import labels
from fleet.draw import MissReason, format_draw, hit, miss
from tests.support.pools import a_pod, a_world, pool_in
from warmpool.controller.book import Book
from warmpool.controller.ledger import HOUR_S, KEPT_HOURS, Ledger, ledger_from
from warmpool.controller.pods import PodView, view_of
from warmpool.controller.sizing import Fixed, rule_for
from warmpool.controller.store import LARGEST_BYTES, Memory, data_of, mark, memory_from
from warmpool.nodes.action import Drawn
from warmpool.nodes.limits import StepTimes
from warmpool.size.rule import Learnt
from warmpool.values import NodeState, PoolNode, PoolSpec

T0_S = 1_800_000_000.0


class Noted(Fixed):
    """A rule that writes down what it is told."""

    def __init__(self, pool: PoolSpec) -> None:
        super().__init__(pool)
        self.draws: list[tuple[int, int]] = []

    def drew(self, wall_s: float, nodes: int, misses: int) -> None:
        self.draws.append((nodes, misses))


def a_book(**spec: Any) -> tuple[Book, Noted]:
    read = pool_in(a_world(**spec)).spec
    assert read is not None
    rule = Noted(read.pool)
    return Book(spec=read, rule=rule), rule


def noted(name: str, *, is_hit: bool, node: str = "n1", gpus: int = 4, pool: str = "g1") -> PodView:
    draw = hit(pool, node) if is_hit else miss(pool, MissReason.NO_NODES)
    return view_of(a_pod(name, requests={"nvidia.com/gpu": str(gpus)}, notes={labels.DRAW: format_draw(draw)}))


def test_each_pod_is_one_draw_and_the_first_word_counts() -> None:
    book, rule = a_book()
    firm = Drawn(node="n1", pods=("uid-a", "uid-b"), was_warm=True)
    assert book.draw([firm], [], T0_S) == (2, 0)
    # The planner's note on the same pods comes later and is no second draw.
    assert book.draw([firm], [noted("a", is_hit=True), noted("b", is_hit=True)], T0_S) == (0, 0)
    assert book.draw([], [noted("c", is_hit=False)], T0_S) == (1, 1)
    # It missed, and the node that it got in the end makes no hit of it.
    assert book.draw([Drawn(node="n2", pods=("uid-c",), was_warm=True)], [], T0_S) == (0, 0)
    assert rule.draws == [(1, 0), (1, 1)]
    sums = book.ledger.sums(T0_S)
    assert (sums.draws, sums.misses, sums.hit_ratio) == (3, 1, pytest.approx(2 / 3))


def test_draws_are_counted_in_replicas_and_sized_in_nodes() -> None:
    book, rule = a_book()
    pods = [noted(f"h{i}", is_hit=True, gpus=1) for i in range(4)]
    pods += [noted(f"m{i}", is_hit=False, gpus=2) for i in range(3)]
    pods.append(noted("other", is_hit=False, pool="g2"))
    assert book.draw([], pods, T0_S) == (7, 3)
    assert rule.draws == [(1 + 2, 2)]  # four on one warm node; three halves of a node missed
    assert book.draw([Drawn(node="cold", pods=("x", "y"), was_warm=False)], [], T0_S) == (2, 2)
    assert rule.draws[-1] == (1, 1)


def test_a_restart_counts_nothing_twice() -> None:
    book, _ = a_book()
    pods = [noted("a", is_hit=True), noted("b", is_hit=False)]
    book.draw([], pods, T0_S)
    data = data_of(book.memory([pod.uid for pod in pods]))
    again, rule = a_book()
    again.remember(memory_from(data))
    assert again.draw([], pods, T0_S + 60) == (0, 0)
    assert again.draw([], [noted("c", is_hit=True)], T0_S + 60) == (1, 0)
    assert rule.draws == [(1, 0)]
    assert again.ledger.sums(T0_S + 60).draws == 3
    # Pods that are gone need not be remembered.
    assert again.memory(["uid-c"]).counted == {mark("uid-c")}


def test_idle_time_is_warm_and_unclaimed_and_watched() -> None:
    book, _ = a_book()
    node = PoolNode.found("n1", 0.0)
    for name, state in (("a", NodeState.WARM), ("b", NodeState.WARM), ("c", NodeState.SERVING)):
        book.nodes[name] = PoolNode(
            name=name, ordered_at_s=0, state_since_s=0, coming_since_s=0, born_at_s=0, state=state
        )
    book.nodes[node.name] = node
    assert book.passed(T0_S, 100.0) == 0.0
    assert book.passed(T0_S + 30, 130.0) == 60.0
    sums = book.ledger.sums(T0_S + 30)
    assert (sums.idle_s, sums.watched_s) == (60.0, 30.0)


def test_only_four_weeks_are_kept_and_a_day_is_a_part_of_them() -> None:
    ledger = Ledger()
    for hour in range(KEPT_HOURS + 50):
        ledger.drew(T0_S + hour * HOUR_S, 1, 0)
    now_s = T0_S + (KEPT_HOURS + 49) * HOUR_S
    assert len(ledger.hours) == KEPT_HOURS
    assert ledger.sums(now_s).draws == KEPT_HOURS
    assert ledger.sums(now_s, 24).draws == 24
    assert ledger_from(ledger.rows()).sums(now_s) == ledger.sums(now_s)
    assert Ledger().sums(now_s).hit_ratio is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["ledger", "times", "counted", "history"]), st.text(max_size=40) | JSON))
def test_what_cannot_be_read_is_forgotten_and_ends_nothing(data: dict[str, Any]) -> None:
    memory = memory_from(data)
    assert data_of(memory).keys() >= {"ledger", "times", "counted"}


@given(st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.integers() | st.text(), max_size=6)))
def test_rows_that_are_none_are_left_out(rows: list[Any]) -> None:
    ledger_from(rows).sums(T0_S)


@given(st.integers(0, 300_000), st.integers(0, 5000))
def test_it_never_outgrows_its_object(history: int, counted: int) -> None:
    ledger = Ledger(hours={hour: [float(hour), 1.0, 1e6 / 3, 3600.0] for hour in range(KEPT_HOURS)})
    memory = Memory(
        ledger=ledger,
        times=StepTimes(leads_s=(511.123,) * 64),
        counted=frozenset(mark(str(one)) for one in range(counted)),
        history=b"x" * history,
    )
    data = data_of(memory)
    assert sum(map(len, data.values())) <= LARGEST_BYTES
    read = memory_from(data)
    assert read.times.leads_s[0] == 511.1
    if history <= 150_000:
        assert read.history == memory.history
        assert read.ledger.hours.keys() == ledger.hours.keys() or len(read.ledger.hours) == 7 * 24


def test_a_fixed_size_keeps_what_was_learnt_for_later() -> None:
    learnt = pool_in(a_world(objective={"hitRate": 0.9})).spec
    fixed = pool_in(a_world(objective={"static": 3}, size={"max": 5})).spec
    assert learnt is not None
    assert fixed is not None
    first = rule_for(learnt.pool, b"")
    assert isinstance(first, Learnt)
    first.pass_to(T0_S, 0, is_known=True)
    first.drew(T0_S, 2, 0)
    first.pass_to(T0_S + 120, 2, is_known=True)
    stored = first.stored()
    held = rule_for(fixed.pool, stored)
    assert held.size(T0_S, 0).target == 3
    assert held.stored() == stored
    assert isinstance(rule_for(learnt.pool, held.stored()), Learnt)
    assert isinstance(rule_for(learnt.pool, b"no such thing"), Learnt)
