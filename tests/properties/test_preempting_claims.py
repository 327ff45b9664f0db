"""Seats for pods with resource claims, against brute force: the fewest go, and only for devices that become free."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.books import account
from binpack.check_seats import check_seats
from binpack.dra.check import check_claims
from binpack.dra.desk import Desk
from binpack.dra.excerpts import Excerpts
from binpack.dra.floor import Floor
from binpack.fit import missing
from binpack.preemption.choice import price
from binpack.preemption.propose import Proposal, propose
from binpack.preemption.seats import Seating, settle
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.constraints import Requirement
from fleet.dra import Allocation, ClaimChoice, DeviceResult, PoolDevice, ResourceClaim
from fleet.node import Node
from fleet.plan import Placement, Plan
from fleet.pod import Berth, Pod
from tests.support.builders import a_node, a_pod
from tests.support.devices import DRIVER, a_claim, a_claimant, a_desk, a_device, a_request, a_slice, agree
from tests.support.devices import given as has
from tests.support.shown import Shown

COUNTERS = {"card": {"slices": 3}}
URGENT = 9


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster, and who wants in."""

    nodes: tuple[Node, ...]
    devices: Mapping[str, tuple[PoolDevice, ...]]
    pods: tuple[Pod, ...]
    claims: tuple[ResourceClaim, ...]
    wish: Pod

    def desk(self) -> Desk:
        slices = [a_slice(name, found, counters=COUNTERS) for name, found in self.devices.items()]
        return a_desk(*slices, claims=self.claims)

    def quay(self) -> Shown:
        return Shown(self.nodes, self.pods, self.desk())


@st.composite
def some_devices(draw: st.DrawFn, name: str) -> tuple[PoolDevice, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        attributes = {"zone": draw(st.integers(0, 1))}
        uses = {"card": {"slices": draw(st.integers(1, 2))}} if draw(st.booleans()) else {}
        found.append(a_device(f"{name}-{number}", attributes, uses=uses))
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """One to three nodes whose pods hold devices by claims of their own or shared ones, and CPU."""
    nodes, devices, pods, claims = [], {}, [], []
    for number in range(draw(st.integers(1, 3))):
        name = f"n{number}"
        nodes.append(a_node(name, gpus=0, milli_cpu=6000))
        devices[name] = draw(some_devices(name))
        free, drawn = list(devices[name]), 0
        for place in range(draw(st.integers(0, 4))):
            users = []
            for twin in range(draw(st.sampled_from((1, 1, 1, 2)))):
                words = {"pod_labels": {"app": "a"}} if draw(st.booleans()) else {}
                pod = a_pod(
                    f"{name}-{place}{twin}",
                    node=name,
                    milli_cpu=draw(st.sampled_from((500, 1000))),
                    priority=draw(st.sampled_from((0, 0, 5, URGENT))),
                    is_terminating=draw(st.integers(0, 7)) == 0,
                    created_at_s=float(place),
                    **words,
                )
                users.append(pod.uid)
                pods.append(pod)
            device = next((one for one in free if drawn + slices_of(one) <= 3), None)
            if device is None or draw(st.integers(0, 4)) == 0:
                continue
            free.remove(device)
            drawn += slices_of(device)
            # A pod that is gone already may still stand in a claim that nobody has freed yet.
            reserved = draw(st.sampled_from((users, users, users, [*users, "gone"], ["gone"], [])))
            claims.append(a_claim(f"of-{name}-{place}", **has(name, device.name, pods=reserved)))
    constraints = [agree("zone")] if draw(st.booleans()) else []
    wanted = a_request("dev", draw(st.integers(1, 2)))
    claims.append(a_claim("wanted", wanted, constraints=constraints))
    wish = a_claimant("urgent", "wanted", cores=draw(st.integers(0, 3)), priority=URGENT)
    return Case(nodes=tuple(nodes), devices=devices, pods=tuple(pods), claims=tuple(claims), wish=wish)


def slices_of(device: PoolDevice) -> int:
    return sum(amount for _, amounts in device.uses for _, amount in amounts) // 10**9


def is_free_then(claim: ResourceClaim, gone: Collection[str]) -> bool:
    return bool(claim.reserved_for) and all(one.uid in gone for one in claim.reserved_for)


def could_be_seated(case: Case, quay: Shown, node: Node, gone: Collection[str]) -> bool:
    """Try every combination of devices, with the verifier of choices as the judge."""
    held = [one for uid, one in quay.staying(node.name).items() if uid not in gone]
    if missing(case.wish, account(node, held).state):
        return False
    known = {pod.uid for pod in case.pods if not pod.is_terminating}
    leaving = {one.uid for claim in case.claims for one in claim.reserved_for} - known
    after = [
        replace(claim, allocation=None, reserved_for=()) if is_free_then(claim, {*gone, *leaving}) else claim
        for claim in case.claims
    ]
    (request,) = case.claims[-1].demand.requests
    published = replace(quay.desk.published([node.name]), claims={claim.uid: claim for claim in after})
    for chosen in combinations(case.devices[node.name], request.options[0].count):
        results = tuple(DeviceResult(request="dev", driver=DRIVER, pool=node.name, device=one.name) for one in chosen)
        choice = ClaimChoice(claim_uid="wanted", allocation=Allocation(results=results))
        berth = Berth(node=node.name, choices=(choice,))
        fresh = replace(published, slices=tuple(quay.desk.pools.slices()))
        if not check_claims(Plan(placements=(Placement(pod_uid=case.wish.uid, berth=berth),)), [case.wish], fresh):
            return True
    return False


def budgets(allowed: int) -> list[DisruptionBudget]:
    selector = Selector(requirements=(Requirement(key="app", operator="In", values=("a",)),))
    return [DisruptionBudget(namespace="default", name="of-a", selector=selector, allowed=allowed)]


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(0, 1), st.booleans())
def test_a_seat_by_claim_is_what_brute_force_finds_cheapest(case: Case, allowed: int, may_break: bool) -> None:
    quay = case.quay()

    def covering(pod: Pod) -> list[DisruptionBudget]:
        return [one for one in budgets(allowed) if one.covers(pod)]

    best = None
    for node in case.nodes:
        able = [pod for pod in case.pods if pod.node_name == node.name and not pod.is_terminating]
        able = [pod for pod in able if pod.priority < URGENT]
        for count in range(len(able) + 1):
            for chosen in combinations(able, count):
                if could_be_seated(case, quay, node, {pod.uid for pod in chosen}):
                    cost = price(chosen, covering)
                    if (may_break or not cost[0]) and (best is None or cost < best):
                        best = cost
    found = propose([case.wish], quay, covering, may_break=may_break)
    assert (found is None) == (best is None)
    if found is not None:
        assert price(found.victims, covering) == best
        assert violations(quay, found) == ()


def violations(quay: Shown, found: Proposal) -> tuple[object, ...]:
    nodes = {berth.node: node for _, berth in found.seats if (node := quay.open_node(berth.node)) is not None}
    going = {one.uid for claim in quay.desk.claims.values() for one in claim.reserved_for if quay.leaves(one.uid)}
    published = quay.desk.published(nodes, going)
    return check_seats(found.seats, found.victims, nodes, {name: quay.staying(name) for name in nodes}, published)


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_a_seat_is_free_once_its_victims_and_their_claims_are_gone_and_never_before(
    case: Case, data: st.DataObject
) -> None:
    """Whoever leaves in whatever order, nobody is asked beside those that the seat was proven with."""
    quay = case.quay()
    found = propose([case.wish], quay, lambda pod: (), may_break=True)
    if found is None:
        return
    ((_, berth),) = found.seats
    node = quay.ledger.node(berth.node)
    assert node is not None
    seated = replace(case.wish, seat=Berth(node=berth.node))
    quay.desk.keep(seated.uid, berth.choices)
    going = {pod.uid for pod in found.victims}
    leaving = {pod.uid for pod in case.pods if pod.is_terminating} | going
    steps = data.draw(st.permutations([*(("pod", uid) for uid in sorted(leaving)), *case_claims(case, leaving)]))
    for kind, name in [("nothing", ""), *steps]:
        if kind == "pod":
            quay.ledger.remove_pod(name)
            quay.tenants.gone(name)
        elif kind == "claim":
            quay.desk.set_claim(replace(quay.desk.claims[name], allocation=None, reserved_for=()))
        floor = Floor(node, quay.desk, leaves=lambda uid: uid in going or quay.leaves(uid), apart=[seated.uid])
        held = dict(quay.ledger.holdings_on(node.name))
        (standing,) = settle(floor, held, quay.tenants, [seated], lambda pod: (), leaving=going)
        assert standing.victims == ()
        assert standing.seating in (Seating.FREE, Seating.LEAVING)
        if standing.seating is Seating.FREE:
            choices = standing.choices
            plan = Plan(placements=(Placement(pod_uid=seated.uid, berth=replace(berth, choices=choices)),))
            assert quay.desk.violations(plan, [seated]) == ()
    assert standing.seating is Seating.FREE


@settings(max_examples=300, deadline=None)
@given(cases(), st.data())
def test_what_is_cut_out_of_all_that_is_published_says_the_same_of_any_seats(case: Case, data: st.DataObject) -> None:
    """Right ones or wrong ones, of claims or of cards that claims hold as well."""
    driver = data.draw(st.sampled_from((DRIVER, "gpu.example.com")))
    desk = a_desk(*(a_slice(name, found, counters=COUNTERS, driver=driver) for name, found in case.devices.items()))
    for claim in case.claims:
        desk.set_claim(driven(claim, driver))
    cells = [(name, one.name) for name, found in case.devices.items() for one in found]
    name = data.draw(st.sampled_from(sorted(case.devices)))
    cards = [device for node, device in cells if node == name]
    nodes = {name: a_node(name, gpus=cards, milli_cpu=6000)}
    if data.draw(st.booleans()):
        chosen = data.draw(st.lists(st.sampled_from(cells), max_size=2))
        results = tuple(DeviceResult(request="dev", driver=driver, pool=pool, device=device) for pool, device in chosen)
        uid = data.draw(st.sampled_from(("wanted", "unknown", case.claims[0].uid)))
        choices = (ClaimChoice(claim_uid=uid, allocation=Allocation(results=results)),) if chosen else ()
        seats = [(case.wish, Berth(node=name, choices=choices))]
    else:
        seats = [(a_pod("urgent", whole=1, priority=URGENT), Berth(node=name, devices=(cards[0],)))]
    if data.draw(st.booleans()):
        kept = DeviceResult(request="dev", driver=driver, pool=cells[0][0], device=cells[0][1])
        desk.keep("other", [ClaimChoice(claim_uid="others", allocation=Allocation(results=(kept,)))])
    quay = Shown(nodes.values(), [pod for pod in case.pods if pod.node_name == name], desk)
    victims = data.draw(st.lists(st.sampled_from(case.pods), unique_by=lambda pod: pod.uid)) if case.pods else []
    users = {one.uid for claim in case.claims for one in claim.reserved_for}
    published = desk.published(nodes, going={uid for uid in users if quay.leaves(uid)})
    staying = {name: quay.staying(name)}
    part = Excerpts(published).about(nodes, seats)
    assert check_seats(seats, victims, nodes, staying, part) == check_seats(seats, victims, nodes, staying, published)


def driven(claim: ResourceClaim, driver: str) -> ResourceClaim:
    """Return a claim with the devices that it has from another driver."""
    if claim.allocation is None:
        return claim
    results = tuple(replace(one, driver=driver) for one in claim.allocation.results)
    return replace(claim, allocation=replace(claim.allocation, results=results))


def case_claims(case: Case, leaving: Collection[str]) -> list[tuple[str, str]]:
    known = {pod.uid for pod in case.pods}
    gone = {*leaving, *({one.uid for claim in case.claims for one in claim.reserved_for} - known)}
    return [("claim", claim.uid) for claim in case.claims if is_free_then(claim, gone)]


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_seats_of_a_gang_with_claims_break_no_rule(case: Case, data: st.DataObject) -> None:
    """Claims of their own, or one that they share: its device is then chosen once."""
    is_shared = data.draw(st.booleans())
    claims = [claim for claim in case.claims if claim.uid != "wanted"]
    wanted = [replace(case.claims[-1], uid=name, name=name) for name in (("a",) if is_shared else ("a", "b"))]
    case = replace(case, claims=(*claims, *wanted))
    gang = [
        replace(a_claimant(f"g{name}", "a" if is_shared else name, priority=URGENT), gang="g", gang_size=2)
        for name in ("a", "b")
    ]
    quay = case.quay()
    found = propose(gang, quay, lambda pod: ())
    if found is None:
        return
    assert violations(quay, found) == ()
    assert len([choice for _, berth in found.seats for choice in berth.choices]) == len(wanted)
    assert all(victim.priority < URGENT for victim in found.victims)


def test_looking_for_devices_to_free_ends_soon_however_many_nodes_there_are() -> None:
    """1,000 nodes of eight devices, all held by claims of less important pods: half a second on one core."""
    names = [f"n{number:04}" for number in range(1000)]
    pods = [a_pod(f"{name}-{i}", node=name, milli_cpu=100, priority=i % 3) for name in names for i in range(8)]
    claims = [a_claim(pod.name, **has(pod.node_name, f"d{pod.name[-1]}", pods=[pod.uid])) for pod in pods]
    desk = a_desk(
        *(a_slice(name, [a_device(f"d{i}") for i in range(8)]) for name in names),
        claims=[*claims, a_claim("wanted", a_request("dev", 4))],
    )
    quay = Shown([a_node(name, gpus=0, milli_cpu=64_000) for name in names], pods, desk)
    began = time.thread_time()
    found = propose([a_claimant("urgent", "wanted", priority=URGENT)], quay, lambda pod: ())
    assert time.thread_time() - began < 5
    assert found is not None
    assert sorted(victim.priority for victim in found.victims) == [0, 0, 0, 1]
