"""Rules between pods: the index, `fit` and the verifier, which counts on its own, say the same of every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack import fit
from binpack.check import check
from binpack.check_order import disorders
from binpack.check_register import Register
from binpack.company import COMPANY_REASONS
from binpack.index import Index
from binpack.planner import draft
from binpack.state import NodeState
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth, Pod
from tests.support.company import TEAMS, a_world, newcomers

SEEDS = st.integers(0, 2**32 - 1)


def known(states: Sequence[NodeState]) -> tuple[Index, Register]:
    index, register = Index(states), Register(states)
    for name, labels in TEAMS.items():
        index.company.set_namespace(name, labels)
        register.set_namespace(name, labels)
    return index, register


def is_lawful(register: Register, states: Sequence[NodeState], placed: Sequence[tuple[Pod, str]]) -> bool:
    by_name = {state.node.name: state for state in states}
    return not check(by_name, [pod for pod, _ in placed], plan_of(placed), register=register)


def plan_of(placed: Sequence[tuple[Pod, str]]) -> Plan:
    return Plan(placements=tuple(Placement(pod_uid=pod.uid, berth=Berth(node=node)) for pod, node in placed))


@settings(max_examples=600, deadline=None)
@given(seed=SEEDS)
def test_the_index_offers_exactly_the_nodes_that_the_verifier_allows(seed: int) -> None:
    rng = Random(seed)
    states, pods = a_world(rng), newcomers(rng)
    index, register = known(states)
    placed: list[tuple[Pod, str]] = []
    for pod in pods:
        offered = {option.berth.node for option in index.options(pod, len(states))}
        allowed = {
            state.node.name for state in states if is_lawful(register, states, [*placed, (pod, state.node.name)])
        }
        assert offered == allowed
        answer = index.place(pod)
        if isinstance(answer, Unplaced):
            roomy = [s for s in states if fit.mismatch(pod, s.node) is None and has_room(s, pod, placed)]
            assert (answer.reason in COMPANY_REASONS) == bool(roomy)
            assert not roomy or answer.detail
            continue
        index.take(pod, answer.berth)
        placed.append((pod, answer.berth.node))


def has_room(state: NodeState, pod: Pod, placed: Sequence[tuple[Pod, str]]) -> bool:
    used = sum(other.requests.milli_cpu for other, node in placed if node == state.node.name)
    return state.free.milli_cpu - used >= pod.requests.milli_cpu


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_what_is_taken_and_given_back_leaves_no_trace(seed: int) -> None:
    rng = Random(seed)
    states, pods = a_world(rng), newcomers(rng)
    index, _ = known(states)
    before = [index.place(pod) for pod in pods]
    booked: list[tuple[Pod, Berth]] = []
    for pod in pods:
        answer = index.place(pod)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            booked.append((pod, answer.berth))
    for pod, berth in reversed(booked):
        index.give_back(pod, berth)
    assert [index.place(pod) for pod in pods] == before


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_nodes_that_change_one_by_one_end_as_those_read_afresh(seed: int) -> None:
    rng = Random(seed)
    first, second, pods = a_world(rng), a_world(rng), newcomers(rng, 3)
    index, _ = known(first)
    for pod in pods:
        index.place(pod)  # groups are made by the questions asked
    for state in second:
        index.set_node(state)
    for state in first[len(second) :]:
        index.remove_node(state.node.name)
    afresh, _ = known(second)
    assert [index.place(pod) for pod in pods] == [afresh.place(pod) for pod in pods]


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_a_drafted_batch_breaks_no_rule_and_leaves_nobody_out_who_still_fits(seed: int) -> None:
    rng = Random(seed)
    states, pods = a_world(rng), newcomers(rng)
    index, register = known(states)
    plan = draft(index, pods)
    by_name = {state.node.name: state for state in states}
    assert check(by_name, pods, plan, register=register) == ()
    by_uid = {pod.uid: pod for pod in pods}
    placed = [(by_uid[one.pod_uid], one.berth.node) for one in plan.placements]
    for one in plan.unplaced:
        if one.reason is not Reason.INSUFFICIENT:  # left to the next turn: others keep breaking its spread
            for state in states:
                more = [*placed, (by_uid[one.pod_uid], state.node.name)]
                assert not is_lawful(register, states, more) or disorders(register, (), pods, plan_of(more))


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_every_hard_spread_of_a_batch_holds_beside_all_the_others(seed: int) -> None:
    """kube-scheduler takes the pins in an order of its own, not in the plan's."""
    rng = Random(seed)
    states, pods = a_world(rng), [*newcomers(rng), *(replace(one, uid=f"{one.uid}-b") for one in newcomers(rng))]
    index, _ = known(states)
    by_uid = {pod.uid: pod for pod in pods}
    plan = draft(index, pods)
    assert {one.pod_uid for one in (*plan.placements, *plan.unplaced)} == by_uid.keys()
    for one in plan.placements:
        index.take(by_uid[one.pod_uid], one.berth)
    for one in plan.placements:
        pod = by_uid[one.pod_uid]
        if any(spread.is_hard for spread in pod.guest.spreads):
            index.give_back(pod, one.berth)
            assert index.company.allows(pod, one.berth.node)
            index.take(pod, one.berth)


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS)
def test_a_register_can_be_what_it_was_and_is_then_what_it_is(seed: int) -> None:
    rng = Random(seed)
    before, after, pods = a_world(rng), a_world(rng), newcomers(rng)
    after = [state for state in after if rng.random() < 0.8]
    renamed = {name: labels for name, labels in TEAMS.items() if rng.random() < 0.5}
    _, register = known(before)
    roll = register.roll()
    verdicts(register, before, pods)  # what it keeps for later is filled
    for name in {state.node.name for state in before} - {state.node.name for state in after}:
        register.remove_node(name)
    for state in after:
        register.set_node(state)
    for name in TEAMS:
        register.set_namespace(name, renamed.get(name))
    now = Register(after)
    now.namespaces = dict(renamed)
    for _ in range(2):
        assert verdicts(register, after, pods) == verdicts(now, after, pods)
        with register.as_of(roll):
            assert register.roll() == roll
            assert verdicts(register, before, pods) == verdicts(known(before)[1], before, pods)
    assert register.roll() == now.roll()


def verdicts(register: Register, states: Sequence[NodeState], pods: Sequence[Pod]) -> list[bool]:
    return [is_lawful(register, states, [(pod, state.node.name)]) for pod in pods for state in states]
