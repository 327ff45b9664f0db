"""Devices for claims, against brute force and the independent verifier.

1. On small worlds a choice is found exactly where one exists.
2. Whatever is chosen, claim after claim, with others going, breaks no rule that the verifier knows.
3. Books are a function of the claims: the order of events does not matter.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.dra.check import Published, check_claims
from binpack.dra.choose import Chosen
from binpack.dra.desk import Desk
from binpack.dra.wishes import Wish
from fleet.dra import Allocation, Capacity, ClaimChoice, DeviceResult, PoolDevice, RequestPolicy, ResourceClaim
from fleet.plan import Placement, Plan, Violation
from fleet.pod import Berth
from tests.support.devices import (
    CLASS,
    DRIVER,
    NANO,
    a_claim,
    a_claimant,
    a_desk,
    a_device,
    a_request,
    a_slice,
    agree,
)

NODE = "n"
COUNTERS = {"card": {"slices": 4, "engines": 2}}


@st.composite
def devices(draw: st.DrawFn) -> list[PoolDevice]:
    """Up to six devices: plain, drawing on counters, or shared by capacity."""
    found: list[PoolDevice] = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["plain", "counted", "shared"]))
        attributes = {"zone": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
        if kind == "plain":
            found.append(a_device(f"d{number}", attributes))
        elif kind == "counted":
            uses = {"card": {"slices": draw(st.integers(0, 3)), "engines": draw(st.integers(0, 2))}}
            found.append(a_device(f"d{number}", attributes, uses=uses))
        else:
            policy = RequestPolicy(default=NANO, least=NANO, step=NANO)
            size = draw(st.integers(1, 4)) * NANO
            capacity = {"memory": Capacity(value=size, policy=policy)}
            uses = {"card": {"slices": draw(st.integers(1, 3))}} if draw(st.booleans()) else {}
            found.append(a_device(f"d{number}", attributes, capacity=capacity, uses=uses, is_multiple=True))
    return found


@st.composite
def demands(draw: st.DrawFn, name: str) -> ResourceClaim:
    requests = []
    for number in range(draw(st.integers(1, 2))):
        amount = draw(st.integers(0, 2))
        capacity = (("memory", amount * NANO),) if amount else ()
        requests.append(a_request(f"r{number}", draw(st.integers(1, 2)), capacity=capacity))
    constraints = []
    if draw(st.booleans()):
        constraints.append(replace(agree("zone"), is_distinct=draw(st.booleans())))
    return a_claim(name, *requests, constraints=constraints)


def published(desk: Desk) -> Published:
    return Published(claims=dict(desk.claims), slices=desk.pools.slices(), classes=desk.classes, node_labels={NODE: {}})


def violations(desk: Desk, choices: tuple[ClaimChoice, ...], *claims: str) -> tuple[Violation, ...]:
    berth = Berth(node=NODE, choices=choices)
    plan = Plan(placements=(Placement(pod_uid="p", berth=berth),))
    return check_claims(plan, [a_claimant("p", *claims)], published(desk))


def consumption(device: PoolDevice, wanted: dict[str, int]) -> tuple[tuple[str, int], ...] | None:
    """Return what is used of a shared device, by hand: at least one unit, whole units."""
    capacity = device.capacity
    if any(name not in capacity for name in wanted):
        return None
    amounts = tuple((name, max(NANO, wanted.get(name, NANO))) for name in capacity)
    return amounts if all(amount <= capacity[name].value for name, amount in amounts) else None


def exists(desk: Desk, claim: ResourceClaim, all_devices: list[PoolDevice]) -> bool:
    """Try every combination of devices for every request."""
    by_request = []
    for request in claim.demand.requests:
        option = request.options[0]
        options = []
        for combination in combinations(all_devices, option.count):
            results = []
            for device in combination:
                used = consumption(device, dict(option.capacity))
                if used is None:
                    break
                is_multiple = device.is_multiple
                share = {"share_id": f"s{request.name}", "consumed": used} if is_multiple else {}
                name = device.name
                results.append(DeviceResult(request=request.name, driver=DRIVER, pool=NODE, device=name, **share))
            else:
                options.append(tuple(results))
        by_request.append(options)
    for chosen in product(*by_request):
        flat = tuple(result for results in chosen for result in results)
        whole = [result.id for result in flat if not result.share_id]
        if len(set(whole)) < len(whole):
            continue
        choice = ClaimChoice(claim_uid=claim.uid, allocation=Allocation(results=flat))
        if not violations(desk, (choice,), claim.name):
            return True
    return False


@settings(max_examples=150, deadline=None)
@given(devices(), st.data())
def test_a_choice_is_found_exactly_where_one_exists(found: list[PoolDevice], data: st.DataObject) -> None:
    desk = a_desk(a_slice(NODE, found, counters=COUNTERS))
    for number in range(3):
        claim = data.draw(demands(f"c{number}"))
        desk.set_claim(claim)
        wish = desk.wish(a_claimant("p", claim.name))
        assert isinstance(wish, Wish)
        answer = desk.offer(NODE, wish)
        assert isinstance(answer, Chosen) == exists(desk, claim, found)
        if isinstance(answer, Chosen):
            assert violations(desk, answer.choices, claim.name) == ()
            desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))


@settings(max_examples=100, deadline=None)
@given(devices(), st.data())
def test_books_do_not_depend_on_the_order_of_events(found: list[PoolDevice], data: st.DataObject) -> None:
    one = a_slice(NODE, found, counters=COUNTERS)
    desk = a_desk(one)
    for number in range(4):
        claim = data.draw(demands(f"c{number}"))
        desk.set_claim(claim)
        answer = desk.offer(NODE, desk.wish(a_claimant("p", claim.name)))
        if isinstance(answer, Chosen):
            if data.draw(st.booleans()):
                desk.take(answer.choices)
                desk.give_back(answer.choices)
            desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
        if data.draw(st.booleans()):
            desk.remove_claim(f"c{data.draw(st.integers(0, number))}")
    claims = list(desk.claims.values())
    random.Random(data.draw(st.integers(0, 9))).shuffle(claims)
    fresh = Desk()
    fresh.is_synced = True
    for claim in claims:
        fresh.set_claim(claim)
    for name in (NODE,):
        fresh.set_node(name, {}, ())
    fresh.set_slice(one)
    fresh.set_class(desk.classes[CLASS])
    for device in found:
        key = (DRIVER, NODE, device.name)
        assert fresh.books.holders(key) == desk.books.holders(key)
        assert fresh.books.consumed(key) == desk.books.consumed(key)
    assert {k: v for k, v in fresh.books.counters((DRIVER, NODE)).items() if v} == {
        k: v for k, v in desk.books.counters((DRIVER, NODE)).items() if v
    }
