"""Gangs as victims, against brute force: a gang loses what it can do without, or goes as a whole; the cheapest way."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.books import Holding, account
from binpack.check_seats import Gang, SeatRule, check_seats
from binpack.dra.floor import Floor
from binpack.fit import devices_for
from binpack.preemption.bonds import Asker, Bonds, Crew
from binpack.preemption.choice import Price, price
from binpack.preemption.propose import Proposal, propose
from binpack.preemption.seats import Seating, settle
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.constraints import Requirement
from fleet.node import Node
from fleet.pod import Berth, Owner, Pod
from tests.support.builders import a_node, a_pod
from tests.support.shown import Shown

URGENT = 9
NOBODY = Asker(priority=URGENT, sharers=frozenset(), gang=None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A full cluster of pods and gangs, with what each gang needs, and how many pods a budget lets go."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    sizes: Mapping[str, int]
    allowed: int

    def budgets_of(self, pod: Pod) -> list[DisruptionBudget]:
        selector = Selector(requirements=(Requirement(key="app", operator="In", values=("a",)),))
        budget = DisruptionBudget(namespace="default", name="of-a", selector=selector, allowed=self.allowed)
        return [budget] if budget.covers(pod) else []

    def running(self, gang: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.gang == gang and not pod.is_terminating]

    def is_torn(self, gone: Collection[str]) -> bool:
        for gang, size in self.sizes.items():
            members = self.running(gang)
            left = [pod for pod in members if pod.uid not in gone]
            if len(left) < len(members) and left and len(left) < size:
                return True
        return False


class Full(Shown):
    """The cluster of a case."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.nodes, case.pods)
        self.case = case

    def crew(self, pod: Pod) -> Crew | None:
        running = self.case.running(pod.gang)
        return Crew(
            running=tuple(running),
            spare=len(running) - self.case.sizes[pod.gang],
            is_fixed=any(one.owner is not None and one.owner.kind == "DaemonSet" for one in running),
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes, pods = [], []
    gangs = st.sampled_from(("", "", "g", "g", "h"))
    for i in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(1, 4))
        nodes.append(a_node(f"n{i}", gpus=gpus, milli_cpu=8000))
        free = list(range(gpus))
        for j in range(draw(st.integers(1, 4))):
            wide = draw(st.sampled_from((0, 1, 1, 2)))
            if wide > len(free):
                continue
            devices = tuple(str(free.pop(0)) for _ in range(wide)) if wide else None
            pods.append(
                a_pod(
                    f"v{i}{j}",
                    whole=wide,
                    node=f"n{i}",
                    devices=devices,
                    gang=draw(gangs),
                    priority=draw(st.sampled_from((0, 0, 0, 5, 5, URGENT))),
                    milli_cpu=draw(st.sampled_from((0, 1000, 3000))),
                    is_terminating=draw(st.integers(0, 7)) == 0,
                    created_at_s=float(draw(st.integers(0, 2))),
                    pod_labels={"app": draw(st.sampled_from("abcd"))},
                    owner=Owner(kind=draw(st.sampled_from(("Job",) * 9 + ("DaemonSet",))), name="o", uid="o"),
                )
            )
    sizes = {gang: draw(st.integers(1, 4)) for gang in ("g", "h")}
    return Case(nodes=tuple(nodes), pods=tuple(pods), sizes=sizes, allowed=draw(st.integers(0, 3)))


def subsets(pods: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    return chain.from_iterable(combinations(pods, count) for count in range(len(pods) + 1))


def could_go(case: Case) -> list[Pod]:
    return [
        pod
        for pod in case.pods
        if pod.priority < URGENT and not pod.is_terminating and pod.owner is not None and pod.owner.kind != "DaemonSet"
    ]


def cheapest(case: Case, quay: Full, fits: Callable[[Collection[str]], bool], *, may_break: bool) -> Price | None:
    """Go through all sets of pods, wherever they are, that tear no gang."""
    best: Price | None = None
    for chosen in subsets(could_go(case)):
        cost = price(chosen, case.budgets_of)
        if (cost[0] and not may_break) or (best is not None and cost >= best):
            continue
        gone = {pod.uid for pod in chosen}
        if not case.is_torn(gone) and fits(gone):
            best = cost
    return best


def has_room(case: Case, quay: Full, wish: Pod, gone: Collection[str]) -> bool:
    for node in case.nodes:
        held = [one for uid, one in quay.staying(node.name).items() if uid not in gone]
        if devices_for(wish, account(node, held).state) is not None:
            return True
    return False


def violations(quay: Full, found: Proposal) -> set[str]:
    case = quay.case
    nodes = {berth.node: node for _, berth in found.seats if (node := quay.open_node(berth.node)) is not None}
    gangs = [
        Gang(members=tuple(one for one in case.pods if one.gang == gang), size=size)
        for gang, size in case.sizes.items()
        if any(victim.gang == gang for victim in found.victims)
    ]
    staying = {name: quay.staying(name) for name in nodes}
    published = quay.desk.published(nodes)
    wrong = check_seats(found.seats, found.victims, nodes, staying, published, gangs)
    return {violation.rule for violation in wrong}


wishes = st.builds(
    lambda whole, milli_cpu: a_pod("wish", whole=whole, milli_cpu=milli_cpu, priority=URGENT),
    st.integers(1, 4),
    st.sampled_from((0, 2000, 6000)),
)


@settings(max_examples=400, deadline=None)
@given(cases(), wishes, st.booleans())
def test_a_seat_among_gangs_is_what_brute_force_finds_cheapest(case: Case, wish: Pod, may_break: bool) -> None:
    quay = Full(case)
    best = cheapest(case, quay, lambda gone: has_room(case, quay, wish, gone), may_break=may_break)
    found = propose([wish], quay, case.budgets_of, may_break=may_break)
    assert (found is None) == (best is None)
    if found is not None:
        assert price(found.victims, case.budgets_of) == best
        assert not case.is_torn({pod.uid for pod in found.victims})
        assert violations(quay, found) == set()


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers(2, 4), st.integers(1, 2))
def test_a_gang_that_preempts_tears_no_other(case: Case, many: int, whole: int) -> None:
    quay = Full(case)
    unit = [a_pod(f"m{i}", whole=whole, priority=URGENT, gang="mine", gang_size=many) for i in range(many)]
    found = propose(unit, quay, case.budgets_of)
    if found is None:
        return
    assert violations(quay, found) == set()
    assert price(found.victims, case.budgets_of)[0] == 0
    for victim in found.victims:
        if victim.gang:
            rest = replace(found, victims=tuple(pod for pod in found.victims if pod.uid != victim.uid))
            is_torn = case.is_torn({pod.uid for pod in rest.victims})
            assert (SeatRule.GANG_TORN in violations(quay, rest)) == is_torn


@settings(max_examples=300, deadline=None)
@given(cases(), st.data())
def test_a_seat_asks_for_the_cheapest_that_tear_no_gang(case: Case, data: st.DataObject) -> None:
    quay = Full(case)
    node = data.draw(st.sampled_from(case.nodes))
    berth = Berth(node=node.name, devices=(data.draw(st.sampled_from([one.id for one in node.devices])),))
    seated = a_pod("urgent", whole=1, milli_cpu=1000, priority=URGENT, seat=berth)
    held = dict(quay.ledger.holdings_on(node.name))

    def fits(gone: Collection[str]) -> bool:
        staying = [one for uid, one in quay.staying(node.name).items() if uid not in gone]
        state = account(node, staying).state
        free = [one.device.id for one in state.devices if not one.users]
        return berth.devices[0] in free and state.node.allocatable.milli_cpu - used_cpu(staying) >= 1000

    best = cheapest(case, quay, fits, may_break=False)
    (standing,) = settle(Floor(node, quay.desk), held, quay.tenants, [seated], case.budgets_of, bonds=Bonds(quay.crew))
    assert (standing.seating is Seating.LOST) == (best is None)
    if best is not None:
        assert price(standing.victims, case.budgets_of) == best
        assert not case.is_torn({pod.uid for pod in standing.victims})


def used_cpu(holdings: Iterable[Holding]) -> int:
    return sum(one.requests.milli_cpu for one in holdings)


@settings(max_examples=300, deadline=None)
@given(cases(), st.lists(st.integers(0, 20), max_size=3))
def test_whoever_goes_later_counts_on_who_went_before(case: Case, order: list[int]) -> None:
    """One after another: what has gone by then never tears a gang."""
    quay, gone = Full(case), set[str]()
    able = could_go(case)
    bonds = Bonds(quay.crew)
    for number in order:
        left = [pod for pod in able if pod.uid not in gone]
        if not left:
            return
        going = bonds.along([left[number % len(left)]], NOBODY)
        if going is not None:
            assert not gone & {pod.uid for pod in going}
            bonds.leave(going)
            gone |= {pod.uid for pod in going}
        assert not case.is_torn(gone)


def test_looking_for_gangs_that_make_room_ends_soon_however_large_they_are() -> None:
    """1,000 nodes of eight pods, all of them in gangs of 64 over eight nodes: a fifth of a second on one core."""
    nodes = [a_node(f"n{i:04}", gpus=8) for i in range(1000)]
    pods = [
        a_pod(f"{node.name}-{j}", whole=1, node=node.name, devices=(str(j),), gang=f"g{i // 8}", priority=j % 3)
        for i, node in enumerate(nodes)
        for j in range(8)
    ]
    quay = Full(Case(nodes=tuple(nodes), pods=tuple(pods), sizes={f"g{i}": 64 for i in range(125)}, allowed=0))
    began = time.thread_time()
    found = propose([a_pod("urgent", whole=4, priority=URGENT)], quay, lambda pod: ())
    assert time.thread_time() - began < 5
    assert found is not None
    assert len(found.victims) == 64
    assert len({victim.gang for victim in found.victims}) == 1
