"""The verifier of device choices names each rule that breaks, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.dra.check import DeviceRule, Published, check_claims, claims_after
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import Allocation, ClaimChoice, DeviceClass, DeviceResult, DeviceTaint, TaintRule
from fleet.plan import Placement, Plan
from fleet.pod import Berth
from tests.support.devices import CLASS, DRIVER, NANO, a_claim, a_claimant, a_device, a_request, a_slice, agree, given

CARD = {"card": {"slices": 4}}
DEVICES = [
    a_device("plain", {"zone": 1}),
    a_device("other", {"zone": 2}),
    a_device("half", uses={"card": {"slices": 2}}),
    a_device("most", uses={"card": {"slices": 3}}),
    a_device("shared", capacity={"memory": 10}, is_multiple=True),
    a_device("sick", taints=(DeviceTaint(key="k", effect="NoSchedule"),)),
]
HERE = (NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n",)),)),)
THERE = (NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("m",)),)),)


def result(device, request="dev", **more):
    return DeviceResult(request=request, driver=DRIVER, pool="n", device=device, **more)


def part(amount, share="s"):
    return result("shared", share_id=share, consumed=(("memory", amount * NANO),))


def verdict(claim, *results, others=(), node="n", terms=HERE, rules=(), uid="c", classes=(CLASS,), claims=("c",)):
    choices = (ClaimChoice(claim_uid=uid, allocation=Allocation(results=results, terms=terms)),) if results else ()
    published = Published(
        claims={one.uid: one for one in (claim, *others)},
        slices=[a_slice("n", DEVICES, counters=CARD)],
        classes={name: DeviceClass(name=name) for name in classes},
        rules=rules,
        node_labels={"n": {}, "m": {}},
    )
    plan = Plan(placements=(Placement(pod_uid="p", berth=Berth(node=node, choices=choices)),))
    return {found.rule for found in check_claims(plan, [a_claimant("p", *claims)], published)}


ONE = a_claim("c")
TWO = a_claim("c", a_request(count=2))


@pytest.mark.parametrize(
    ("rule", "claim", "results", "words"),
    [
        (None, ONE, [result("plain")], {}),
        (None, TWO, [result("plain"), result("half")], {}),
        (None, ONE, [part(6)], {"others": [a_claim("h", **given("n", "shared", share_id="x"))]}),
        (None, a_claim("c", **given("n", "plain")), [], {}),
        (DeviceRule.CLAIM_UNKNOWN, ONE, [result("plain")], {"uid": "d", "claims": ()}),
        (DeviceRule.CLAIM_UNKNOWN, ONE, [result("plain")], {"claims": ("c", "absent")}),
        (DeviceRule.CLAIM_GIVEN, a_claim("c", **given("n", "plain")), [result("other")], {}),
        (DeviceRule.CLAIM_OPEN, ONE, [], {}),
        (DeviceRule.CLAIM_ELSEWHERE, a_claim("c", **given("m", "plain")), [], {}),
        (DeviceRule.CLAIM_ELSEWHERE, ONE, [result("plain")], {"terms": THERE}),
        (DeviceRule.DEVICE_UNKNOWN, ONE, [result("absent")], {}),
        (DeviceRule.DEVICE_UNREACHED, ONE, [result("plain")], {"node": "m", "terms": None}),
        (DeviceRule.DEVICE_HELD, ONE, [result("plain")], {"others": [a_claim("h", **given("n", "plain"))]}),
        (
            DeviceRule.DEVICE_HELD,
            ONE,
            [result("shared")],
            {"others": [a_claim("h", **given("n", "shared", share_id="x"))]},
        ),
        (DeviceRule.DEVICE_HELD, ONE, [part(1)], {"others": [a_claim("h", **given("n", "shared"))]}),
        (DeviceRule.DEVICE_TAINTED, ONE, [result("sick")], {}),
        (
            DeviceRule.DEVICE_TAINTED,
            ONE,
            [result("plain")],
            {"rules": [TaintRule(name="r", taint=DeviceTaint(key="k", effect="NoExecute"), device="plain")]},
        ),
        (DeviceRule.CAPACITY, ONE, [part(11)], {}),
        (DeviceRule.COUNTERS, TWO, [result("half"), result("most")], {}),
        (DeviceRule.COUNTERS, ONE, [result("most")], {"others": [a_claim("h", **given("n", "half"))]}),
        (DeviceRule.REQUESTS, TWO, [result("plain")], {}),
        (DeviceRule.REQUESTS, ONE, [result("plain", request="odd")], {}),
        (DeviceRule.REQUESTS, ONE, [result("plain"), result("half", request="odd")], {}),
        (DeviceRule.REQUESTS, ONE, [result("plain", is_admin=True)], {}),
        (DeviceRule.REQUESTS, ONE, [result("plain")], {"classes": ()}),
        (
            DeviceRule.CONSTRAINT,
            a_claim("c", a_request(count=2), constraints=[agree("zone")]),
            [result("plain"), result("other")],
            {},
        ),
        (DeviceRule.CONSTRAINT, a_claim("c", a_request(), constraints=[agree("zone")]), [result("half")], {}),
        (
            DeviceRule.CONSTRAINT,
            a_claim("c", a_request(count=2), constraints=[replace(agree("absent"), is_distinct=True)]),
            [result("plain"), result("other")],
            {},
        ),
    ],
)
def test_each_rule_is_found_where_it_breaks(rule, claim, results, words) -> None:
    assert verdict(claim, *results, **words) == ({rule} if rule is not None else set())


def test_claims_of_one_plan_count_against_each_other() -> None:
    first = Berth(node="n", choices=(ClaimChoice(claim_uid="c", allocation=Allocation(results=(result("plain"),))),))
    second = Berth(node="n", choices=(ClaimChoice(claim_uid="d", allocation=Allocation(results=(result("plain"),))),))
    published = Published(
        claims={"c": ONE, "d": a_claim("d")},
        slices=[a_slice("n", DEVICES, counters=CARD)],
        classes={CLASS: DeviceClass(name=CLASS)},
        node_labels={"n": {}},
    )
    plan = Plan(placements=(Placement(pod_uid="p", berth=first), Placement(pod_uid="q", berth=second)))
    found = check_claims(plan, [a_claimant("p", "c"), a_claimant("q", "d")], published)
    assert [(one.pod_uid, one.rule) for one in found] == [("q", DeviceRule.DEVICE_HELD)]


def test_a_card_that_the_plan_gives_by_record_is_no_claims() -> None:
    card = replace(result("card"), driver="gpu.example.com")
    published = Published(
        claims={"c": ONE},
        slices=[a_slice("n", [a_device("card")], driver="gpu.example.com")],
        classes={CLASS: DeviceClass(name=CLASS)},
        node_labels={"n": {}},
    )
    claimed = Berth(node="n", choices=(ClaimChoice(claim_uid="c", allocation=Allocation(results=(card,))),))
    for name, rules in (("card", {DeviceRule.DEVICE_HELD}), ("other", set())):
        recorded = Placement(pod_uid="q", berth=Berth(node="n", devices=(name,)))
        plan = Plan(placements=(Placement(pod_uid="p", berth=claimed), recorded))
        assert {one.rule for one in check_claims(plan, [a_claimant("p", "c"), a_claimant("q")], published)} == rules


@pytest.mark.parametrize(
    ("rule", "claim", "results", "kept"),
    [
        (DeviceRule.DEVICE_KEPT, ONE, [result("plain")], [result("plain")]),
        (None, ONE, [result("plain")], [result("other")]),
        (None, ONE, [result("plain")], [result("plain", is_admin=True)]),
        (None, ONE, [part(4)], [part(6, "x")]),
        (DeviceRule.CAPACITY, ONE, [part(5)], [part(6, "x")]),
        (DeviceRule.COUNTERS, ONE, [result("most")], [result("half")]),
    ],
)
def test_what_is_kept_for_a_seat_counts_against_everybody_else(rule, claim, results, kept) -> None:
    seat = ClaimChoice(claim_uid="k", allocation=Allocation(results=tuple(kept)))
    published = Published(
        claims={"c": claim},
        slices=[a_slice("n", DEVICES, counters=CARD)],
        classes={CLASS: DeviceClass(name=CLASS)},
        node_labels={"n": {}},
        kept={"seated": [seat]},
    )
    choice = ClaimChoice(claim_uid="c", allocation=Allocation(results=tuple(results), terms=HERE))
    plan = Plan(placements=(Placement(pod_uid="p", berth=Berth(node="n", choices=(choice,))),))
    found = {one.rule for one in check_claims(plan, [a_claimant("p", "c")], published)}
    assert found == ({rule} if rule is not None else set())


class Counted(frozenset):
    """Uids that count how often somebody goes through all of them."""

    times = 0

    def __iter__(self):
        type(self).times += 1
        return super().__iter__()


def test_what_is_free_after_many_have_gone_costs_as_much_as_there_are_claims_and_pods() -> None:
    claims = {f"c{i}": a_claim(f"c{i}", **given("n", "plain", pods=(f"p{i}",))) for i in range(50)}
    after = claims_after(claims, Counted(f"p{i}" for i in range(0, 50, 2)))
    assert [uid for uid, claim in after.items() if claim.allocation is None] == [f"c{i}" for i in range(0, 50, 2)]
    assert Counted.times == 1
