"""Who goes: the fewest, the least important, no budget broken where avoidable, and never without a seat."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.books import account
from binpack.dra.desk import Desk
from binpack.dra.floor import Floor
from binpack.fit import devices_for, refusal
from binpack.preemption.bonds import Asker, Bonds, Crew
from binpack.preemption.choice import price, spared
from binpack.preemption.propose import propose
from binpack.preemption.seats import Seating, settle
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.constraints import Requirement
from fleet.pod import Berth, Owner
from tests.support.builders import a_node, a_pod
from tests.support.shown import Shown


def settled(node, held, tenants, seats):
    """How the seats stand on a node without devices for claims."""
    return settle(Floor(node, Desk()), held, tenants, seats, no_budgets)


def no_budgets(_):
    return ()


def _app(name):
    return Selector(requirements=(Requirement(key="app", operator="In", values=(name,)),))


def budget(allowed, app="a", **words):
    return DisruptionBudget(namespace="default", name=f"of-{app}", selector=_app(app), allowed=allowed, **words)


def under(*budgets):
    return lambda pod: [one for one in budgets if one.covers(pod)]


@st.composite
def harbours(draw):
    nodes, pods = [], []
    for i in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(1, 4))
        nodes.append(a_node(f"n{i}", gpus=gpus, milli_cpu=8000))
        free = list(range(gpus))
        for j in range(draw(st.integers(0, 4))):
            wide = draw(st.integers(1, 2))
            if wide > len(free):
                continue
            devices = tuple(str(free.pop(0)) for _ in range(wide))
            pods.append(
                a_pod(
                    f"v{i}{j}",
                    whole=wide,
                    node=f"n{i}",
                    devices=devices,
                    priority=draw(st.sampled_from((0, 5, 10, 50))),
                    milli_cpu=draw(st.sampled_from((0, 1000, 3000))),
                    is_terminating=draw(st.integers(0, 5)) == 0,
                    pod_labels={"app": draw(st.sampled_from("abc"))},
                    owner=Owner(
                        kind=draw(st.sampled_from(("ReplicaSet", "ReplicaSet", "DaemonSet"))), name="o", uid="o"
                    ),
                )
            )
    wish = a_pod("wish", whole=draw(st.integers(1, 4)), priority=draw(st.sampled_from((0, 10, 100))), milli_cpu=2000)
    return nodes, pods, wish


@settings(max_examples=250, deadline=None)
@given(harbours(), st.integers(0, 2), st.booleans())
def test_a_proposal_is_what_brute_force_finds_cheapest(harbour, allowed, may_break):
    nodes, pods, wish = harbour
    quay, budgets = Shown(nodes, pods), under(budget(allowed))
    best = None
    for node in nodes:
        staying = [pod for pod in pods if pod.node_name == node.name and not pod.is_terminating]
        able = [pod for pod in staying if pod.priority < wish.priority and pod.owner.kind != "DaemonSet"]
        for count in range(len(able) + 1):
            for chosen in combinations(able, count):
                held = [h for uid, h in quay.staying(node.name).items() if uid not in {pod.uid for pod in chosen}]
                if devices_for(wish, account(node, held).state) is None:
                    continue
                cost = price(chosen, budgets)
                if (may_break or not cost[0]) and (best is None or cost < best):
                    best = cost
    found = propose([wish], quay, budgets, may_break=may_break)
    assert (found is None) == (best is None)
    if found is not None:
        assert price(found.victims, budgets) == best
        ((_, berth),) = found.seats
        gone = {pod.uid for pod in found.victims}
        held = [h for uid, h in quay.staying(berth.node).items() if uid not in gone]
        node = quay.ledger.node(berth.node)
        assert refusal(wish, berth, account(node, held).state) == ""
        assert all(pod.priority < wish.priority and pod.node_name == berth.node for pod in found.victims)


def full_of(name, gpus=4, **words):
    """A node with one pod on each device."""
    return a_node(name, gpus=gpus), [
        a_pod(f"{name}-{i}", whole=1, node=name, devices=(str(i),), **words) for i in range(gpus)
    ]


def test_pieces_on_different_nodes_make_no_seat():
    """A report of users: eight cards could be freed, two on each of four nodes; nobody may go for that."""
    nodes, pods = [], []
    for i in range(1, 5):
        nodes.append(a_node(f"n{i}", gpus=8))
        pods += [a_pod(f"hi{i}{j}", whole=1, node=f"n{i}", devices=(str(j),), priority=100) for j in range(6)]
        pods += [a_pod(f"lo{i}{j}", whole=1, node=f"n{i}", devices=(str(6 + j),)) for j in range(2)]
    quay = Shown(nodes, pods)
    assert propose([a_pod("big", whole=8, priority=100)], quay, no_budgets) is None
    small = propose([a_pod("small", whole=1, priority=100)], quay, no_budgets)
    assert [pod.priority for pod in small.victims] == [0]


def test_a_pod_that_never_preempts_gets_no_seat_that_others_hold():
    node, pods = full_of("n1")
    assert propose([a_pod("p", whole=1, priority=9, never_preempts=True)], Shown([node], pods), no_budgets) is None


def test_a_budget_sends_the_preemptor_to_another_node():
    quay = Shown(
        [a_node("n1", gpus=1), a_node("n2", gpus=1)],
        [
            a_pod("kept", whole=1, node="n1", devices=("0",), pod_labels={"app": "a"}),
            a_pod("free", whole=1, node="n2", devices=("0",), priority=5),
        ],
    )
    assert [pod.name for pod in propose([a_pod("p", whole=1, priority=9)], quay, under(budget(0))).victims] == ["free"]


def test_a_pod_under_two_budgets_stays_for_the_api_evicts_it_under_none():
    node, pods = full_of("n1", 1, pod_labels={"app": "a"})
    twins = under(budget(5), replace(budget(5), name="twin"))
    assert propose([a_pod("p", whole=1, priority=9)], Shown([node], pods), twins) is None
    assert propose([a_pod("p", whole=1, priority=9)], Shown([node], pods), twins, may_break=True) is not None


def test_a_status_that_is_old_allows_nothing():
    node, pods = full_of("n1", 1, pod_labels={"app": "a"})
    assert propose([a_pod("p", whole=1, priority=9)], Shown([node], pods), under(budget(5, is_current=False))) is None


def test_budgets_are_used_up_over_the_members_of_a_gang():
    first, second = full_of("n1", 1, pod_labels={"app": "a"}), full_of("n2", 1, pod_labels={"app": "a"})
    quay = Shown([first[0], second[0]], first[1] + second[1])
    gang = [a_pod(f"g{i}", whole=1, priority=9, gang="g", gang_size=2) for i in range(2)]
    assert propose(gang, quay, under(budget(1))) is None
    found = propose(gang, quay, under(budget(2)))
    assert {berth.node for _, berth in found.seats} == {"n1", "n2"}
    assert len(found.victims) == 2


def test_a_gang_uses_what_is_free_before_anybody_goes():
    node, pods = full_of("n1", 4)
    quay = Shown([node, a_node("n2", gpus=2)], pods)
    gang = [a_pod(f"g{i}", whole=1, priority=9, gang="g", gang_size=3) for i in range(3)]
    found = propose(gang, quay, no_budgets)
    assert len(found.victims) == 1
    assert len({(berth.node, berth.devices) for _, berth in found.seats}) == 3


@pytest.mark.parametrize(("terminating", "right"), [(True, Seating.LEAVING), (False, Seating.HELD)])
def test_a_seat_waits_for_who_leaves_and_asks_who_stays(terminating, right):
    node, pods = full_of("n1", 1, is_terminating=terminating)
    quay = Shown([node], pods)
    seated = a_pod("p", whole=1, priority=9, seat=Berth(node="n1", devices=("0",)))
    held = {pod.uid: quay.ledger.holdings_on("n1")[pod.uid] for pod in pods}
    (standing,) = settled(node, held, quay.tenants, [seated])
    assert standing.seating is right
    assert [pod.name for pod in standing.victims] == ([] if terminating else ["n1-0"])


def test_two_seats_on_one_node_ask_for_two_to_go():
    node, pods = full_of("n1", 2)
    quay = Shown([node], pods)
    seats = [
        a_pod(f"p{i}", whole=1, priority=priority, seat=Berth(node="n1", devices=(str(i),)))
        for i, priority in enumerate((50, 9))
    ]
    found = settled(node, dict(quay.ledger.holdings_on("n1")), quay.tenants, seats)
    assert {victim.name for one in found for victim in one.victims} == {"n1-0", "n1-1"}


def test_what_goes_for_one_seat_is_not_asked_again_for_the_next():
    node = a_node("n1", milli_cpu=10_000)
    pods = [a_pod(name, milli_cpu=5000, node="n1") for name in ("a", "b")]
    quay = Shown([node], pods)
    seats = [a_pod(f"p{p}", milli_cpu=5000, priority=p, seat=Berth(node="n1")) for p in (50, 9)]
    found = settled(node, dict(quay.ledger.holdings_on("n1")), quay.tenants, seats)
    assert sorted(victim.name for one in found for victim in one.victims) == ["a", "b"]


def bonds_of(*pods, spare=0):
    return Bonds(lambda pod: Crew(running=pods, spare=spare))


def names(pods):
    return sorted(pod.name for pod in pods)


ASKER = Asker(priority=9, sharers=frozenset(), gang=None)


def test_who_is_spared_may_be_so_because_of_those_who_go_along():
    a, b = (a_pod(name, gang="g") for name in "ab")
    lone = a_pod("x")
    along = bonds_of(a, b).along_with([a, b], ASKER)
    assert names(spared([a, b, lone], lambda uids: len(uids) > 1, no_budgets, along=along)) == ["a", "b"]


def test_no_gang_goes_for_one_of_its_own_for_who_shares_its_claims_or_by_the_thousand():
    a, b = (a_pod(name, gang="g") for name in "ab")
    assert names(bonds_of(a, b).along([a], ASKER)) == ["a", "b"]
    assert bonds_of(a, b).along([a], replace(ASKER, gang=("default", "g"))) is None
    assert bonds_of(a, b).along([a], replace(ASKER, sharers=frozenset([b.uid]))) is None
    many = [a_pod(f"p{i}", gang="g") for i in range(257)]
    assert bonds_of(*many).along(many[:1], ASKER) is None
    assert bonds_of(*many, spare=1).along(many[:1], ASKER) == (many[0],)


def test_a_seat_that_nobody_may_free_is_lost():
    node, pods = full_of("n1", 1, priority=9)
    quay = Shown([node], pods)
    seated = a_pod("p", whole=1, priority=9, seat=Berth(node="n1", devices=("0",)))
    (standing,) = settled(node, dict(quay.ledger.holdings_on("n1")), quay.tenants, [seated])
    assert standing.seating is Seating.LOST
    assert "device" in standing.detail
