"""Resource claims made to stop the planner: expressions without end, searches without end, pools that contradict."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.dra.choose import Obstacle, Refused
from binpack.dra.effort import too_much
from binpack.dra.selectors import Selectors, Trouble
from fleet.dra import Capacity, PoolDevice, RequestPolicy
from fleet.plan import Placement, Reason, Unplaced
from tests.support.devices import (
    DRIVER,
    NANO,
    a_claim,
    a_claimant,
    a_desk,
    a_device,
    a_request,
    a_slice,
    agree,
    an_index,
    cores,
)

ATTRIBUTES = 'device.attributes["dev.example.com"]'
LISTS = f"[{','.join('1' * 100)}]"


def nested(levels: int, seed: str, grow: str) -> str:
    """Return an expression with a name for every level, each made of the one below."""
    text = f"v{levels} == v{levels}"
    for level in range(levels, 0, -1):
        text = f"cel.bind(v{level},{grow.format(f'v{level - 1}')},{text})"
    return f"cel.bind(v0,{seed},{text})"


BOMBS = {
    "sums of lists": nested(30, "[1]", "{0}+{0}"),
    "sums of texts": nested(40, '"x"', "{0}+{0}"),
    "lists of lists": nested(40, "[1]", "[{0},{0}]"),
    "maps of maps": nested(40, "{'a':1}", "{{'a':{0},'b':{0}}}"),
    "optional names": f"optional.of([1]){'.optMap(v, v+v)' * 40}.orValue([]).size() > 0",
    "texts in texts": f"'{'a' * 1000}'{('.replace(' + repr('a') + ',' + repr('a' * 40) + ')') * 4} == 'a'",
    "joined": "cel.bind(l,['a','a'],l.join(l.join(l.join('x')))) == 'a'",
    "loops in loops": f"{LISTS}.all(a,{LISTS}.all(b,{LISTS}.all(c,a==b)))",
    "patterns in loops": f"{LISTS}.all(a,{LISTS}.all(b,!{ATTRIBUTES}.t.matches('x{{1,1000}}y')))",
    "patterns": " && ".join(f"!{ATTRIBUTES}.t.matches('x{{1,1000}}y{i}')" for i in range(100)),
    "a word within a text": nested(30, "[1]", "{0}\n//'\n+{0}"),
    "brackets": "(" * 5000 + "true" + ")" * 5000,
    "long": "true || " * 5000 + "true",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_expression_that_could_take_all_time_or_memory_is_left_to_kube_scheduler(bomb: str) -> None:
    before = time.thread_time()
    verdict = Selectors().judge(BOMBS[bomb], DRIVER, a_device("d", {"t": "x" * 64}))
    assert isinstance(verdict, Trouble)
    assert verdict.is_unmodelled
    assert len(verdict.text) < 500
    assert time.thread_time() - before < 2


@pytest.mark.parametrize(
    "expression",
    [
        f'{ATTRIBUTES}.model == "A100" && {ATTRIBUTES}.index in [0, 1, 2, 3, 4, 5, 6, 7]',
        f"cel.bind(own, {ATTRIBUTES}, own.model.startsWith('A') && own.index < 4 || own.index + 1 > 12)",
        f"cel.bind(a, {ATTRIBUTES}, cel.bind(b, device.capacity['dev.example.com'], a.index > 1 && 'memory' in b))",
        f"[{','.join(repr(f'model-{i}') for i in range(200))}].exists(m, m == {ATTRIBUTES}.model)",
        f"{ATTRIBUTES}.list.split(',').exists(one, one == 'b')",
        f"{ATTRIBUTES}.model.matches('^(A|H)[0-9]+$') && !{ATTRIBUTES}.model.matches('80GB')",
        f"{ATTRIBUTES}.model.replace('NVIDIA ', '') == 'A100'",
        " || ".join(f"{ATTRIBUTES}.model == 'model-{i}'" for i in range(120)),
    ],
)
def test_what_people_write_is_not_too_much(expression: str) -> None:
    assert too_much(expression) == ""


@given(
    st.lists(
        st.sampled_from(
            [
                "cel.bind(a,",
                "[1,1]",
                "+",
                ".map(x,",
                ")",
                "a",
                ",",
                "[a,a]",
                ".all(y,",
                "'xx'",
                "==",
                ".size()",
                "true",
                ".replace('x','yyyyyyyyyyyyyyyyyyyyyyyyy')",
                "x",
                "device.driver",
                ".matches('x{1,1000}')",
                ".split('')",
                ".quote()",
                "-",
                "9223372036854775807",
                "b'\\xff'",
                "\x00",
                "\ud800",
                "🚢",
            ]
        ),
        max_size=30,
    )
)
@settings(deadline=2000, max_examples=150)
def test_whatever_is_written_there_is_a_verdict_soon(parts: list[str]) -> None:
    verdict = Selectors().judge("".join(parts), DRIVER, a_device("d", {"t": "x"}))
    assert isinstance(verdict, bool | Trouble)


def test_what_the_evaluator_gives_up_is_a_verdict() -> None:
    expression = f"{LISTS}.all(a,{LISTS}.all(b,{LISTS}.all(c,a==c)))".replace(LISTS, "'" + "x," * 60 + "'.split(',')")
    verdict = Selectors().judge(expression, DRIVER, a_device("d"))
    assert isinstance(verdict, Trouble)


def test_an_expression_that_is_slow_for_each_device_is_given_up_and_others_are_not() -> None:
    now = itertools.count(step=0.25)  # of CPU seconds, twice for each evaluation
    selectors = Selectors(lambda: next(now))
    slow = f"{ATTRIBUTES}.uuid.matches('x')"
    verdicts = [selectors.judge(slow, DRIVER, a_device(str(i), {"uuid": str(i)})) for i in range(20)]
    assert verdicts[0] is False
    assert isinstance(verdicts[-1], Trouble)
    assert "ms for each device" in verdicts[-1].text
    fast = Selectors(lambda: 0.0)
    assert all(fast.judge(slow, DRIVER, a_device(str(i), {"uuid": str(i)})) is False for i in range(20))


def test_expressions_that_come_and_go_are_forgotten() -> None:
    selectors = Selectors()
    for number in range(9000):
        selectors.judge(f"device.driver == {number}", DRIVER, PoolDevice(name="d"))
    assert len(selectors._programs) <= 4096


# -- searches --------------------------------------------------------------------------------------------------


def odd_ones(node: str, count: int = 96) -> Any:
    """Return a slice of devices of which no two agree, and all in all but one attribute."""
    return a_slice(node, [a_device(f"d{i}", {"n": i, "half": i % 2}) for i in range(count)])


def test_claims_that_no_search_ends_on_cost_little_however_many_nodes_there_are() -> None:
    nodes = [f"n{i}" for i in range(400)]
    desk = a_desk(*(odd_ones(name) for name in nodes))
    constraints = (agree("half", "a", "b"), agree("half", "b", "c"), agree("n", "c", "d"))
    hard = a_claim(
        "hard", *(a_request(name, count=8) for name in "abc"), a_request("d", count=8), constraints=constraints
    )
    desk.set_claim(hard)
    index = an_index(desk, *(cores(name) for name in nodes))
    before = time.thread_time()
    for number in range(20):
        answer = index.place(a_claimant(f"p{number}", "hard"))
        assert isinstance(answer, Unplaced)
        assert answer.reason is Reason.CLAIM_UNSATISFIED
    assert time.thread_time() - before < 4
    desk.set_claim(a_claim("easy"))
    assert isinstance(index.place(a_claimant("q", "easy")), Placement)


def test_a_claim_that_was_given_up_is_looked_for_again_once_enough_has_changed() -> None:
    constraints = (agree("half", "a", "b"), agree("n", "b", "c"))
    wanted = a_claim("c", *(a_request(name, count=6) for name in "abc"), constraints=constraints)
    nodes = [f"n{i}" for i in range(12)]
    desk = a_desk(*(odd_ones(name) for name in nodes))
    desk.set_claim(wanted)
    index = an_index(desk, *(cores(name) for name in nodes))
    assert isinstance(index.place(a_claimant("p", "c")), Unplaced)
    desk.set_slice(a_slice("n5", [a_device(f"e{i}", {"n": 1, "half": 0}) for i in range(24)]))
    for number in range(40):
        desk.set_claim(a_claim(f"x{number}"))
        desk.assume(f"o{number}", desk.offer("n5", desk.wish(a_claimant("o", f"x{number}"))).choices)
        desk.forget(f"o{number}")
    answer = index.place(a_claimant("p", "c"))
    assert isinstance(answer, Placement)
    assert answer.berth.node == "n5"


@pytest.mark.parametrize(("claims", "requests"), [(1, 32), (4, 24), (9, 32), (100, 32), (60, 1), (300, 1)])
def test_however_many_claims_and_requests_a_pod_has_there_is_an_answer(claims: int, requests: int) -> None:
    desk = a_desk(a_slice("n", [a_device(f"d{i}") for i in range(128)]))
    names = [f"c{i}" for i in range(claims)]
    for name in names:
        desk.set_claim(a_claim(name, *(a_request(f"r{i}", is_admin=True) for i in range(requests))))
    answer = desk.offer("n", desk.wish(a_claimant("p", *names)))
    if claims * requests <= 96 and claims <= 64:
        assert len(answer.choices) == claims
    else:
        assert answer == Refused(Obstacle.TOO_LONG)


def test_claims_with_more_devices_than_a_search_is_deep_are_refused() -> None:
    desk = a_desk(a_slice("n", [a_device(f"d{i}") for i in range(128)]))
    names = [f"c{i}" for i in range(40)]
    for name in names:
        desk.set_claim(a_claim(name, a_request(count=32, is_admin=True)))
    assert desk.offer("n", desk.wish(a_claimant("p", *names))) == Refused(Obstacle.TOO_LONG)
    assert len(desk.offer("n", desk.wish(a_claimant("p", *names[:8]))).choices) == 8


# -- pools -----------------------------------------------------------------------------------------------------


def test_a_device_that_draws_from_a_set_that_is_not_there_closes_its_pool() -> None:
    desk = a_desk(a_slice("n", [a_device("d", uses={"nowhere": {}}), a_device("e")]))
    desk.set_claim(a_claim("c"))
    answer = desk.offer("n", desk.wish(a_claimant("p", "c")))
    assert isinstance(answer, Refused)
    assert "nowhere" in answer.detail


def test_a_counter_set_told_twice_closes_its_pool() -> None:
    sets = (("s", (("memory", 80 * NANO),)), ("s", (("memory", 800 * NANO),)))
    desk = a_desk(a_slice("n", [a_device("d", uses={"s": {"memory": 80}})], counter_sets=sets))
    desk.set_claim(a_claim("c"))
    answer = desk.offer("n", desk.wish(a_claimant("p", "c")))
    assert isinstance(answer, Refused)
    assert "same name" in answer.detail


amount = st.sampled_from([0, 1, 3, 10, 10**30])


@given(
    value=amount,
    policy=st.builds(
        RequestPolicy,
        default=amount | st.none(),
        valid_values=st.lists(amount, max_size=3).map(lambda values: tuple(sorted(values))),
        least=amount | st.none(),
        most=amount | st.none(),
        step=amount | st.none(),
    )
    | st.none(),
    uses=amount,
    total=amount,
    wanted=st.lists(amount | st.none(), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=200)
def test_no_capacity_or_counter_is_given_beyond_what_there_is(
    value: int, policy: RequestPolicy | None, uses: int, total: int, wanted: list[int | None]
) -> None:
    device = PoolDevice(
        name="d",
        capacity={"m": Capacity(value=value, policy=policy)},
        uses=(("s", (("k", uses),)),),
        is_multiple=True,
    )
    desk = a_desk(a_slice("n", [device], counter_sets=(("s", (("k", total),)),)))
    index = an_index(desk, cores("n", 100))
    used = 0
    for number, asked in enumerate(wanted):
        capacity = () if asked is None else (("m", asked),)
        desk.set_claim(a_claim(f"c{number}", a_request(capacity=capacity)))
        pod = a_claimant(f"p{number}", f"c{number}")
        answer = index.place(pod)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            (result,) = answer.berth.choices[0].allocation.results
            used += dict(result.consumed)["m"]
            assert uses <= total
    assert used <= value
