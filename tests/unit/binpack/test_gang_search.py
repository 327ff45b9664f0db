"""Gangs on small worlds: placed exactly where brute force finds a way, each berth held by the verifier."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.check import check
from binpack.fit import missing, usable
from binpack.gangs.batch import plan_with_gangs
from binpack.gangs.claims import GangClaims
from binpack.gangs.place import Refusal, place
from binpack.gangs.room import booked
from binpack.gangs.search import seek
from binpack.index import Index
from fleet import labels
from fleet.device import AskKind
from fleet.plan import Placement, Plan, Reason
from fleet.pod import Berth
from tests.support.berths import chosen, pod, seat, share
from tests.support.devices import a_claim, a_claimant, a_desk, a_device, a_request, a_slice, an_index, cores
from tests.support.devices import given as has
from tests.support.worlds import batches, clusters


def brute(pods, states):
    """Try every node and every set of devices for every pod."""
    if not pods:
        return True
    first, rest = pods[0], pods[1:]
    for name, state in states.items():
        if first.constraints.mismatch(name, state.node.labels, state.node.taints, state.node.is_cordoned):
            continue
        if missing(first, state):
            continue
        ask = first.ask
        sets = [()]
        if ask is not None and ask.kind is not AskKind.CLASSIC:
            able = [device.device.id for device in state.devices if usable(ask, device)]
            sets = combinations(able, ask.count)
        for devices in sets:
            if brute(rest, {**states, name: booked(first, Berth(node=name, devices=devices), state)}):
                return True
    return False


@settings(max_examples=300, deadline=None)
@given(clusters(4), batches(5))
def test_a_gang_is_placed_exactly_where_brute_force_finds_a_way(states, pods):
    index = Index(states)
    by_name = {state.node.name: state for state in states}
    before = index.potential()
    answer = place(index, by_name.get, pods)
    assert index.potential() == before
    if isinstance(answer, Refusal):
        assert not brute(pods, by_name)
        assert {one.pod_uid for one in answer.unplaced} == {one.uid for one in pods}
        assert answer.fitted < len(pods)
    else:
        assert check(by_name, pods, Plan(placements=answer), together=[{one.uid for one in pods}]) == ()


@settings(max_examples=300, deadline=None)
@given(clusters(4), batches(5))
def test_the_search_alone_is_exact_too(states, pods):
    by_name = {state.node.name: state for state in states}
    sought = seek(pods, states, 10_000)
    assert bool(sought.berths) == brute(pods, by_name)
    assert sought.is_proven
    if sought.berths:
        placements = tuple(Placement(pod_uid=one.uid, berth=berth) for one, berth in sought.berths)
        assert check(by_name, pods, Plan(placements=placements)) == ()


@settings(max_examples=50, deadline=None)
@given(clusters(4), batches(6), st.integers(0, 12))
def test_a_search_that_was_cut_claims_no_proof(states, pods, budget):
    sought = seek(pods, states, budget)
    assert sought.steps <= budget
    if not sought.berths and sought.is_proven:
        assert not brute(pods, {state.node.name: state for state in states})


def test_backtracking_finds_what_the_first_choice_spoils():
    """Members that would rather have the same node: one of them must take the other."""
    states = [seat("big", [1000] * 4, cpu=8), seat("small", [1000] * 2, cpu=64)]
    pods = [pod("wide", ask=chosen(4), cpu=4), pod("a", ask=share(500), cpu=30), pod("b", ask=chosen(1), cpu=30)]
    answer = place(Index(states), {state.node.name: state for state in states}.get, pods)
    assert {one.pod_uid: one.berth.node for one in answer} == {"wide": "big", "a": "small", "b": "small"}


def test_a_gang_that_fits_by_sum_only_is_refused_with_the_numbers():
    states = [seat(f"n{i}", [1000] * 3) for i in range(4)]
    answer = place(Index(states), {s.node.name: s for s in states}.get, [pod(f"p{i}", ask=chosen(2)) for i in range(6)])
    assert isinstance(answer, Refusal)
    assert answer.is_proven
    assert answer.fitted == 4
    assert {one.reason for one in answer.unplaced} == {Reason.GANG_DOES_NOT_FIT}
    assert "4 of 6 members fit at once: 12 GPUs and 6 cores asked, 12 GPUs" in answer.unplaced[0].detail


def test_a_member_that_fits_nowhere_is_named():
    states = [seat("n1", [1000] * 2)]
    pods = [pod("small", ask=chosen(1)), pod("wide", ask=chosen(8))]
    answer = place(Index(states), {s.node.name: s for s in states}.get, pods)
    assert "member wide fits nowhere, even alone: needs 8 free devices on one node" in answer.unplaced[0].detail


def test_a_batch_with_gangs_is_shown_as_it_would_be_placed():
    states = [seat(f"n{i}", [1000]) for i in range(4)]
    index, by_name = Index(states), {s.node.name: s for s in states}
    ready = {"gates": (labels.PLAN_GATE,)}
    big = [replace(pod(f"b{i}", ask=chosen(1)), gang="b", gang_size=5, **ready) for i in range(5)]
    fits = [replace(pod(f"f{i}", ask=chosen(1)), gang="f", gang_size=3, **ready) for i in range(3)]
    short = [replace(pod("s0", ask=chosen(1)), gang="s", gang_size=2, **ready)]
    single = [replace(pod(f"p{i}", ask=chosen(1)), **ready) for i in range(2)]
    batch = [*big, *fits, *short, *single]
    before = index.potential()
    plan = plan_with_gangs(index, by_name, batch, batch, None)
    assert index.potential() == before
    assert sorted(one.pod_uid[0] for one in plan.placements) == ["f", "f", "f", "p"]
    reasons = Counter((one.pod_uid[0], one.reason) for one in plan.unplaced)
    assert reasons == {
        ("b", Reason.GANG_DOES_NOT_FIT): 5,
        ("s", Reason.GANG_INCOMPLETE): 1,
        ("p", Reason.INSUFFICIENT): 1,
    }
    assert check(by_name, batch, plan, together=[{one.uid for one in fits}]) == ()


def refused_with_claims(desk, states, pods):
    answer = place(an_index(desk, *states), {s.node.name: s for s in states}.get, pods)
    assert isinstance(answer, Refusal)
    return answer.unplaced[0].detail


def pairs(many):
    return [a_claim(f"c{i}", a_request(count=2)) for i in range(many)]


def test_what_is_asked_by_claim_is_counted_beside_what_is_free_of_it():
    """Seven devices are free, of which pairs take six: four pairs ask eight."""
    slices = [
        a_slice("n0", [a_device(f"d{i}") for i in range(4)]),
        a_slice("n1", [a_device(f"d{i}") for i in range(4)]),
    ]
    desk = a_desk(*slices, claims=[*pairs(4), a_claim("other", **has("n1", "d0", pods=["somebody"]))])
    states = [cores("n0"), cores("n1")]
    text = refused_with_claims(desk, states, [a_claimant(f"p{i}", f"c{i}") for i in range(4)])
    assert "3 of 4 members fit at once: 8 devices by resource claim and 4 cores asked, 7 such devices and 16 c" in text
    assert "GPU" not in text


def test_a_claim_that_members_share_is_asked_once_and_one_with_devices_not_at_all():
    slices = [a_slice(name, [a_device("d0"), a_device("d1")]) for name in ("n0", "n1")]
    shared = a_claim("s", a_request("all", 0), a_request("either", 1, is_admin=True))
    desk = a_desk(*slices, claims=[shared, *pairs(1), a_claim("has", **has("n1", "d0", pods=["p2"]))])
    pods = [a_claimant("p0", "s"), a_claimant("p1", "s", "c0"), a_claimant("p2", "has")]
    assert GangClaims(desk, pods).sums(["n0", "n1"]) == (1 + 2, 3)
    assert GangClaims(desk, pods).sums([]) == (3, 0)


def test_cards_asked_by_record_and_devices_asked_by_claim_are_told_apart():
    desk = a_desk(*(a_slice(name, [a_device("d0")]) for name in ("n0", "n1")), claims=[a_claim("c0")])
    states = [seat("n0", [1000], cpu=2), seat("n1", [1000], cpu=2)]
    pods = [a_claimant("p0", "c0"), *(pod(f"w{i}", ask=chosen(1), cpu=2) for i in range(2))]
    text = refused_with_claims(desk, states, pods)
    assert "2 GPUs, 1 device by resource claim and 5 cores asked, 2 GPUs, 2 such devices and 4 cores free" in text
