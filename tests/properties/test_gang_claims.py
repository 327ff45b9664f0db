"""Gangs with resource claims on small worlds: placed exactly where brute force finds a way, held by the verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.check import check
from binpack.dra.desk import Desk
from binpack.dra.shown import recorded_on, with_held
from binpack.fit import missing, usable
from binpack.gangs.claims import GangClaims, clashes
from binpack.gangs.place import Refusal, place
from binpack.gangs.room import booked
from binpack.gangs.search import seek
from binpack.state import NodeState
from fleet.constraints import NodeConstraints, NodeTerm, Requirement
from fleet.dra import Allocation, ClaimChoice, DeviceResult, PoolDevice, ResourceClaim, Where
from fleet.plan import Placement, Plan
from fleet.pod import Berth, Pod
from tests.support.berths import card, chosen, seat, share
from tests.support.devices import DRIVER, a_claim, a_claimant, a_desk, a_device, a_request, a_slice, agree, an_index
from tests.support.devices import given as has

GPU_DRIVER = "gpu.example.com"
NODES = ("n0", "n1", "n2")
KINDS = ("a", "b")
COUNTERS = {"card": {"slices": 2}}


@st.composite
def node_devices(draw: st.DrawFn, node: str) -> list[PoolDevice]:
    found: list[PoolDevice] = []
    for number in range(draw(st.integers(0, 3))):
        attributes = {"kind": draw(st.sampled_from(KINDS)), "zone": draw(st.integers(0, 1))}
        uses = {"card": {"slices": draw(st.integers(1, 2))}} if draw(st.booleans()) else {}
        found.append(a_device(f"{node}-{number}", attributes, uses=uses))
    return found


@st.composite
def demanded(draw: st.DrawFn, name: str) -> ResourceClaim:
    requests = []
    for number in range(draw(st.sampled_from((1, 1, 2)))):
        kind = draw(st.sampled_from((None, *KINDS)))
        selectors = () if kind is None else (f'device.attributes["{DRIVER}"].kind == "{kind}"',)
        requests.append(a_request(f"r{number}", draw(st.sampled_from((1, 1, 2))), selectors=selectors))
    constraints = [replace(agree("zone"), is_distinct=draw(st.booleans()))] if draw(st.booleans()) else []
    return a_claim(name, *requests, constraints=constraints)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Desk, list[NodeState], list[Pod]]:
    """Up to three nodes with few cores, devices of their own and of the network, and up to four members."""
    names = NODES[: draw(st.integers(1, 3))]
    slices = [a_slice(name, draw(node_devices(name)), counters=COUNTERS) for name in names]
    if draw(st.booleans()):
        afar = [a_device("afar", {"kind": draw(st.sampled_from(KINDS)), "zone": 0})]
        slices.append(a_slice("net", afar, where=Where(is_everywhere=True)))
    shared = [draw(demanded(f"s{number}")) for number in range(draw(st.integers(0, 2)))]
    claims, pods = list(shared), []
    alike = draw(demanded("like"))
    for number in range(draw(st.integers(1, 4))):
        own: list[str] = []
        if draw(st.booleans()):
            name = f"c{number}"
            claims.append(replace(alike, uid=name, name=name) if draw(st.booleans()) else draw(demanded(name)))
            own.append(name)
        own += [claim.name for claim in shared if draw(st.booleans())]
        pods.append(a_claimant(f"p{number}", *own, cores=draw(st.integers(1, 2))))
    if draw(st.booleans()) and slices[0].devices:
        claims.append(a_claim("other", **has(names[0], slices[0].devices[0].name, pods=["somebody"])))
    desk = a_desk(*slices, claims=claims, nodes=names)
    states = [seat(name, cpu=draw(st.integers(1, 4))) for name in names]
    return desk, states, pods


def allocations(desk: Desk, claim: ResourceClaim, node: str) -> Iterator[Allocation]:
    """Yield every set of devices that could be meant, most of them wrong: the verifier judges."""
    cells = desk.pools.reach(node).cells
    only = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=(node,)),))
    by_request = []
    for request in claim.demand.requests:
        option = request.options[0]
        able = [
            cell
            for cell in cells
            if all(f'"{cell.device.attributes[f"{DRIVER}/kind"]}"' in text for text in option.selectors)
        ]
        by_request.append([(request.name, combination) for combination in combinations(able, option.count)])
    for chosen_cells in product(*by_request):
        flat = [(name, cell) for name, combination in chosen_cells for cell in combination]
        if len({cell.id for _, cell in flat}) < len(flat):
            continue
        results = tuple(
            DeviceResult(request=name, driver=cell.id[0], pool=cell.id[1], device=cell.id[2]) for name, cell in flat
        )
        is_bound = any(cell.where.node for _, cell in flat)
        yield Allocation(results=results, terms=(only,) if is_bound else None)


def brute(
    desk: Desk, states: Mapping[str, NodeState], pods: Sequence[Pod], placed: tuple[Placement, ...], all_pods: list[Pod]
) -> bool:
    if placed and desk.violations(Plan(placements=placed), all_pods):
        return False
    if not pods:
        return True
    first, rest = pods[0], pods[1:]
    given_to = {choice.claim_uid for placement in placed for choice in placement.berth.choices}
    open_claims = [c for c in desk.claims_of(first) if c.allocation is None and c.uid not in given_to]
    for name, state in states.items():
        if missing(first, state):
            continue
        for found in product(*(list(allocations(desk, claim, name)) for claim in open_claims)):
            choices = tuple(
                ClaimChoice(claim_uid=claim.uid, allocation=one) for claim, one in zip(open_claims, found, strict=True)
            )
            for devices in device_sets(first, state):
                berth = Berth(node=name, devices=devices, choices=choices)
                now = {**states, name: booked(first, berth, state)}
                placement = Placement(pod_uid=first.uid, berth=berth)
                if brute(desk, now, rest, (*placed, placement), all_pods):
                    return True
    return False


def device_sets(pod: Pod, state: NodeState) -> list[tuple[str, ...]]:
    if pod.ask is None:
        return [()]
    able = [device.device.id for device in state.devices if usable(pod.ask, device)]
    return list(combinations(able, pod.ask.count))


@settings(max_examples=250, deadline=None)
@given(worlds())
def test_a_gang_with_claims_is_placed_exactly_where_brute_force_finds_a_way(
    world: tuple[Desk, list[NodeState], list[Pod]],
) -> None:
    desk, states, pods = world
    index, by_name = an_index(desk, *states), {state.node.name: state for state in states}
    books = {cell.id: desk.books.holders(cell.id) for name in by_name for cell in desk.pools.reach(name).cells}
    answer = place(index, by_name.get, pods)
    assert {device: desk.books.holders(device) for device in books} == books
    if isinstance(answer, Refusal):
        assert not brute(desk, by_name, pods, (), pods)
        return
    plan = Plan(placements=answer)
    assert check(by_name, pods, plan, together=[{pod.uid for pod in pods}]) == ()
    assert desk.violations(plan, pods) == ()


@settings(max_examples=250, deadline=None)
@given(worlds())
def test_the_search_alone_finds_a_way_exactly_where_there_is_one(
    world: tuple[Desk, list[NodeState], list[Pod]],
) -> None:
    desk, states, pods = world
    by_name = {state.node.name: state for state in states}
    books = {cell.id: desk.books.holders(cell.id) for name in by_name for cell in desk.pools.reach(name).cells}
    sought = seek(pods, states, 20_000, GangClaims(desk, pods))
    assert {device: desk.books.holders(device) for device in books} == books
    if not sought.berths:
        assert sought.is_proven
        assert not brute(desk, by_name, pods, (), pods)
        return
    plan = Plan(placements=tuple(Placement(pod_uid=pod.uid, berth=berth) for pod, berth in sought.berths))
    assert check(by_name, pods, plan, together=[{pod.uid for pod in pods}]) == ()
    assert desk.violations(plan, pods) == ()


@st.composite
def card_worlds(draw: st.DrawFn) -> tuple[Desk, list[NodeState], list[Pod]]:
    """Sharing nodes whose cards are given by record and by claim."""
    names = NODES[: draw(st.integers(1, 2))]
    cards = {name: [f"g{number}" for number in range(draw(st.integers(1, 3)))] for name in names}
    slices = [
        a_slice(
            name, [a_device(card, {"kind": draw(st.sampled_from(KINDS))}) for card in cards[name]], driver=GPU_DRIVER
        )
        for name in names
    ]
    claims, pods = [], []
    for number in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            kind = draw(st.sampled_from((None, *KINDS)))
            selectors = () if kind is None else (f'device.attributes["{DRIVER}"].kind == "{kind}"',)
            claims.append(a_claim(f"c{number}", a_request("r", draw(st.integers(1, 2)), selectors=selectors)))
            pods.append(a_claimant(f"p{number}", f"c{number}"))
        else:
            ask = draw(st.sampled_from((chosen(1), chosen(2), share(500), share(700))))
            pods.append(a_claimant(f"p{number}", ask=ask))
    states = [
        seat(name, devices=[card(one, draw(st.sampled_from((1000, 1000, 400)))) for one in cards[name]])
        for name in names
    ]
    desk = a_desk(*slices, claims=claims)
    for state in states:
        desk.set_node(state.node.name, {}, recorded_on(state))
    return desk, states, pods


def brute_cards(
    desk: Desk, states: Mapping[str, NodeState], pods: Sequence[Pod], placed: tuple[Placement, ...], all_pods: list[Pod]
) -> bool:
    """As `brute`, where a card that any claim has is in use for the others and the other way round."""
    if placed and desk.violations(Plan(placements=placed), all_pods):
        return False
    if not pods:
        return True
    first, rest = pods[0], pods[1:]
    for name, state in states.items():
        for devices in device_sets(first, state) if not missing(first, state) else []:
            for choices in claim_sets(desk, first, name, state):
                berth = Berth(node=name, devices=devices, choices=choices)
                used = frozenset(result.device for choice in choices for result in choice.allocation.results)
                now = {**states, name: with_held(booked(first, berth, state), used)}
                if brute_cards(desk, now, rest, (*placed, Placement(pod_uid=first.uid, berth=berth)), all_pods):
                    return True
    return False


def claim_sets(desk: Desk, pod: Pod, node: str, state: NodeState) -> list[tuple[ClaimChoice, ...]]:
    untouched = {device.device.id for device in state.devices if not device.users}
    found: list[tuple[ClaimChoice, ...]] = [()]
    for claim in desk.claims_of(pod):
        found = [
            (*before, ClaimChoice(claim_uid=claim.uid, allocation=one))
            for before in found
            for one in allocations(desk, claim, node)
            if {result.device for result in one.results} <= untouched
        ]
    return found


@settings(max_examples=200, deadline=None)
@given(card_worlds())
def test_cards_that_members_hold_by_record_are_no_claims_and_the_other_way_round(
    world: tuple[Desk, list[NodeState], list[Pod]],
) -> None:
    desk, states, pods = world
    index, by_name = an_index(desk, *states), {state.node.name: state for state in states}
    for state in states:
        desk.set_node(state.node.name, {}, recorded_on(state))
    answer = place(index, by_name.get, pods)
    if isinstance(answer, Refusal):
        assert not brute_cards(desk, by_name, pods, (), pods)
        return
    assert not clashes(answer)
    plan = Plan(placements=answer)
    assert check(by_name, pods, plan, together=[{pod.uid for pod in pods}]) == ()
    assert desk.violations(plan, pods) == ()


def test_a_shared_claim_is_tried_elsewhere_where_not_all_who_share_it_have_room() -> None:
    slices = [a_slice(name, [a_device("d")]) for name in NODES[:2]]
    desk = a_desk(*slices, claims=[a_claim("s")])
    states = [seat("n0", cpu=3), seat("n1", cpu=4)]
    pods = [a_claimant(f"p{number}", "s", cores=2) for number in range(2)]
    sought = seek(pods, states, 1_000, GangClaims(desk, pods))
    assert {berth.node for _, berth in sought.berths} == {"n1"}


def test_nodes_differ_where_what_others_hold_draws_on_the_same_card() -> None:
    cards = [
        a_device("a", {"kind": "a"}, uses={"card": {"slices": 1}}),
        a_device("b", {"kind": "b"}, uses={"card": {"slices": 2}}),
    ]
    selector = f'device.attributes["{DRIVER}"].kind == "a"'
    claims = [a_claim("c", a_request("r", selectors=(selector,))), a_claim("other", **has("n0", "b", pods=["x"]))]
    desk = a_desk(*(a_slice(name, cards, counters=COUNTERS) for name in NODES[:2]), claims=claims)
    sought = seek(
        [a_claimant("p", "c")], [seat(name) for name in NODES[:2]], 1_000, GangClaims(desk, [a_claimant("p", "c")])
    )
    assert [berth.node for _, berth in sought.berths] == ["n1"]


def test_where_a_shared_claim_was_tried_is_forgotten_once_others_are_seated_otherwise() -> None:
    """One member goes first to the only node where the two that share have room; all tries beside it lead nowhere."""
    names = ("n0", "n1", "n2", "n3")
    desk = a_desk(*(a_slice(name, [a_device("d")]) for name in names), claims=[a_claim("s")])
    zones = {"n0": {"zone": "a"}, "n1": {"zone": "a"}}
    states = [seat("n0", cpu=6, labels=zones["n0"])]
    states += [seat(name, cpu=7, slots=1, labels=zones.get(name)) for name in names[1:]]
    first = a_claimant("x", cores=2, constraints=NodeConstraints(node_selector=(("zone", "a"),)))
    pods = [first, *(a_claimant(f"p{number}", "s", cores=3) for number in range(2))]
    sought = seek(pods, states, 1_000, GangClaims(desk, pods))
    assert {pod.name: berth.node for pod, berth in sought.berths} == {"x": "n1", "p0": "n0", "p1": "n0"}
