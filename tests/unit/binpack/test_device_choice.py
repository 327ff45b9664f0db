"""Devices for claims: which are chosen, which rules hold, and what is said where none can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.dra.amounts import consumed
from binpack.dra.choose import Chosen, Obstacle, Refused
from binpack.dra.selectors import Selectors, Trouble
from binpack.dra.versions import compare, parse
from binpack.dra.wishes import Pending
from fleet.dra import (
    Capacity,
    Config,
    DeviceClass,
    DeviceConstraint,
    DeviceOption,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    PodClaim,
    RequestPolicy,
    Reserver,
    TaintRule,
    Version,
    Where,
)
from fleet.plan import Placement, Reason, Unplaced
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
    an_index,
    cores,
    given,
)

GIB = 2**30


def names(answer) -> list[str]:
    assert isinstance(answer, Chosen)
    return [result.device for choice in answer.choices for result in choice.allocation.results]


def offer(desk, claim, node="n"):
    desk.set_claim(claim)
    return desk.offer(node, desk.wish(a_claimant("p", claim.name)))


# -- selectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ('device.driver == "dev.example.com"', True),
        ('device.attributes["dev.example.com"].model == "A100"', True),
        ('device.attributes["dev.example.com"].model.startsWith("H")', False),
        ('device.attributes["dev.example.com"].index < 4', True),
        ('device.attributes["dev.example.com"].fast', True),
        ('device.attributes["other.com"].rack == "r1"', True),
        ('device.capacity["dev.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["dev.example.com"].memory.isLessThan(quantity("80Gi"))', False),
        ('device.capacity["dev.example.com"].memory == quantity("81920Mi")', True),
        ('device.capacity["dev.example.com"].memory.sub(quantity("1Gi")).asInteger() == 84825604096', True),
        ('device.attributes["dev.example.com"].version.isGreaterThan(semver("1.2.9"))', True),
        ('device.attributes["dev.example.com"].version.major() == 1', True),
        ('isSemver("1.0.0-rc.1") && !isSemver("01.0.0") && isQuantity("1Gi") && !isQuantity("1Xi")', True),
        ('"absent" in device.attributes["dev.example.com"]', False),
        ('"absent" in device.attributes["nowhere.com"]', False),
        ('has(device.attributes["nowhere.com"].x)', False),
        ('device.attributes["dev.example.com"].?absent.orValue("x") == "x"', True),
        ('cel.bind(own, device.attributes["dev.example.com"], own.model == "A100" && own.index == 3)', True),
        ("device.allowMultipleAllocations", False),
        ('["A100", "H100"].exists(m, m == device.attributes["dev.example.com"].model)', True),
        ('device.attributes["dev.example.com"].model.lowerAscii() == "a100"', True),
    ],
)
def test_a_selector_is_judged_as_kubernetes_judges_it(expression, verdict) -> None:
    attributes = {"model": "A100", "index": 3, "fast": True, "version": Version(text="1.3.0")}
    device = a_device("d", attributes, capacity={"memory": 80 * GIB})
    device = replace(device, attributes={**device.attributes, "other.com/rack": "r1"})
    selectors = Selectors()
    assert selectors.judge(expression, DRIVER, device) is verdict
    assert selectors.judge(expression, DRIVER, device) is verdict


def test_devices_alike_in_what_is_read_are_judged_once_and_others_apart() -> None:
    selectors = Selectors()
    expression = 'device.attributes["dev.example.com"].size == 1'
    for value, verdict in ((1, True), (2, False), (True, False), (1, True)):
        assert selectors.judge(expression, DRIVER, a_device("d", {"size": value, "uuid": f"{value}"})) is verdict


@pytest.mark.parametrize(
    ("expression", "is_unmodelled"),
    [
        ("sets.contains([1], [1])", True),
        ("device.(", True),
        ('device.attributes["dev.example.com"].absent == 1', False),
        ("1 + 1", False),
        ('device.capacity["dev.example.com"].memory.compareTo(quantity("nonsense")) > 0', False),
    ],
)
def test_an_expression_that_cannot_be_judged_says_so(expression, is_unmodelled) -> None:
    found = Selectors().judge(expression, DRIVER, a_device("d", capacity={"memory": 1}))
    assert isinstance(found, Trouble)
    assert found.is_unmodelled is is_unmodelled


def test_versions_are_ordered_as_the_standard_says() -> None:
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
    texts += ["1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "2.0.0"]
    versions = [parse(text) for text in texts]
    for place, version in enumerate(versions):
        assert [compare(version, other) for other in versions] == [
            (place > other) - (place < other) for other in range(len(versions))
        ]


# -- amounts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "wanted", "amount"),
    [
        (None, None, 10),
        (None, 3, 3),
        (None, 11, None),
        (RequestPolicy(default=2), None, 2),
        (RequestPolicy(default=1, least=2, step=3), 1, 2),
        (RequestPolicy(default=1, least=2, step=3), 3, 5),
        (RequestPolicy(default=1, least=2, step=3, most=4), 3, None),
        (RequestPolicy(default=2, least=2, most=4), 4, 4),
        (RequestPolicy(default=1, valid_values=(1, 4, 8)), 2, 4),
        (RequestPolicy(default=1, valid_values=(1, 4)), 5, None),
    ],
)
def test_an_amount_is_rounded_up_to_what_the_policy_allows(policy, wanted, amount) -> None:
    device = a_device("d", capacity={"memory": Capacity(value=10, policy=policy)})
    found = consumed(device, (("memory", wanted),) if wanted is not None else ())
    assert found == (None if amount is None else {"memory": amount})


def test_what_a_device_does_not_have_cannot_be_asked_of_it() -> None:
    assert consumed(a_device("d"), (("memory", 1),)) is None


# -- choices ---------------------------------------------------------------------------------------------------


def test_the_smallest_device_that_will_do_is_given() -> None:
    sizes = {"big": 80, "small": 16, "middle": 40}
    desk = a_desk(a_slice("n", [a_device(one, capacity={"memory": size * GIB}) for one, size in sizes.items()]))
    at_least = 'device.capacity["dev.example.com"].memory.compareTo(quantity("20Gi")) >= 0'
    assert names(offer(desk, a_claim("c", a_request(selectors=(at_least,))))) == ["middle"]
    assert names(offer(desk, a_claim("c", a_request()))) == ["small"]


def mig(card: str) -> list:
    """A card of seven slices with the starts that its profiles may have."""
    starts = {7: [0], 4: [0], 3: [0, 4], 2: [0, 2, 4], 1: range(7)}
    memory = {7: 8, 4: 4, 3: 4, 2: 2, 1: 1}
    return [
        a_device(
            f"{card}-{size}-{start}",
            {"size": size},
            uses={card: {f"memory-{at}": 1 for at in range(start, start + memory[size])}},
        )
        for size, places in starts.items()
        for start in places
    ]


CARD = {f"memory-{at}": 1 for at in range(8)}


def of_size(size: int) -> tuple[str, ...]:
    return (f'device.attributes["dev.example.com"].size == {size}',)


def test_a_partition_goes_beside_others_and_where_larger_ones_stay_possible() -> None:
    cards = [a_slice("n", mig("a") + mig("b"), counters={"a": CARD, "b": CARD})]
    first = a_claim("first", a_request(selectors=of_size(1)))
    desk = a_desk(*cards)
    answer = offer(desk, first)
    (device,) = names(answer)
    assert device[2:] == "1-6"  # beside the place that no larger partition could use
    desk.set_claim(replace(first, allocation=answer.choices[0].allocation))
    assert names(offer(desk, a_claim("second", a_request(selectors=of_size(3))))) == [f"{device[0]}-3-0"]


def test_counters_are_never_overdrawn_within_one_claim_either() -> None:
    desk = a_desk(a_slice("n", mig("a"), counters={"a": CARD}))
    both = a_claim("c", a_request("x", selectors=of_size(4)), a_request("y", selectors=of_size(4)))
    assert isinstance(offer(desk, both), Refused)
    pair = a_claim("c", a_request("x", selectors=of_size(4)), a_request("y", selectors=of_size(3)))
    assert names(offer(desk, pair)) == ["a-4-0", "a-3-4"]


def test_an_earlier_request_makes_way_for_a_later_one() -> None:
    desk = a_desk(a_slice("n", [a_device("a", {"kind": 1}), a_device("b", {"kind": 2})]))
    only_a = ('device.attributes["dev.example.com"].kind == 1',)
    assert names(offer(desk, a_claim("c", a_request("any"), a_request("first", selectors=only_a)))) == ["b", "a"]


def test_what_a_choice_drew_is_given_back_when_it_is_undone() -> None:
    devices = [
        a_device("cheap", uses={"card": {"slices": 2}}),
        a_device("wanted", {"kind": 1}, uses={"card": {"slices": 3}}),
        a_device("dear", capacity={"memory": 80 * GIB}),
    ]
    desk = a_desk(a_slice("n", devices, counters={"card": {"slices": 4}}))
    only = ('device.attributes["dev.example.com"].?kind.orValue(0) == 1',)
    assert names(offer(desk, a_claim("c", a_request("any")))) == ["cheap"]
    assert names(offer(desk, a_claim("c", a_request("any"), a_request("this", selectors=only)))) == ["dear", "wanted"]


def test_a_shared_device_draws_on_counters_once_however_many_share_it() -> None:
    policy = RequestPolicy(default=NANO, least=NANO)
    memory = {"memory": Capacity(value=4 * NANO, policy=policy)}
    shared = a_device("shared", capacity=memory, uses={"card": {"slices": 3}}, is_multiple=True)
    desk = a_desk(
        a_slice("n", [shared, a_device("part", uses={"card": {"slices": 2}})], counters={"card": {"slices": 4}})
    )
    of_memory = (("memory", NANO),)
    for name in ("c0", "c1", "c2"):
        claim = a_claim(name, a_request(capacity=of_memory))
        answer = offer(desk, claim)
        assert names(answer) == ["shared"]
        desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
    rest = a_claim("rest", a_request(selectors=("!device.allowMultipleAllocations",)))
    assert offer(desk, rest).obstacle is Obstacle.IN_USE
    for name in ("c0", "c1", "c2"):
        desk.remove_claim(name)
    answer = offer(desk, rest)
    desk.set_claim(replace(rest, allocation=answer.choices[0].allocation))
    assert offer(desk, a_claim("late", a_request(capacity=of_memory))).obstacle is Obstacle.IN_USE


def test_the_order_of_a_list_counts_before_any_price() -> None:
    desk = a_desk(
        a_slice("n", [a_device("a", {"kind": "x"}, capacity={"memory": 80 * GIB}), a_device("b", {"kind": "y"})])
    )

    def way(name: str, kind: str) -> DeviceOption:
        return DeviceOption(name=name, class_name=CLASS, selectors=(f'device.attributes["{DRIVER}"].kind == "{kind}"',))

    claim = a_claim("c", DeviceRequest(name="gpu", options=(way("best", "x"), way("other", "y"))))
    answer = offer(desk, claim)
    assert [result.request for result in answer.choices[0].allocation.results] == ["gpu/best"]
    desk.set_claim(a_claim("holder", **given("n", "a")))
    answer = offer(desk, claim)
    assert [result.request for result in answer.choices[0].allocation.results] == ["gpu/other"]
    assert answer.cost > 100_000  # so that a node that can give the better way is always preferred


def test_a_constraint_may_name_some_requests_alone() -> None:
    desk = a_desk(a_slice("n", [a_device("a", {"numa": 0}), a_device("b", {"numa": 1}), a_device("c", {"numa": 1})]))
    claim = a_claim("c", a_request("x"), a_request("y"), a_request("z"), constraints=[agree("numa", "y", "z")])
    assert sorted(names(offer(desk, claim))[1:]) == ["b", "c"]
    differ = DeviceConstraint(attribute=f"{DRIVER}/numa", is_distinct=True)
    assert len(names(offer(desk, a_claim("d", a_request(count=2), constraints=[differ])))) == 2
    assert isinstance(offer(desk, a_claim("e", a_request(count=3), constraints=[differ])), Refused)
    assert isinstance(offer(desk, a_claim("f", a_request(), constraints=[agree("absent")])), Refused)


def test_an_administrator_has_access_beside_the_holder_and_holds_nothing() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]), claims=[a_claim("holder", **given("n", "a"))])
    claim = a_claim("c", a_request(is_admin=True))
    answer = offer(desk, claim)
    assert [(result.device, result.is_admin) for result in answer.choices[0].allocation.results] == [("a", True)]
    desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
    desk.remove_claim("holder")
    assert names(offer(desk, a_claim("next"))) == ["a"]


def test_taints_of_devices_and_of_rules_keep_claims_away() -> None:
    taint = DeviceTaint(key="sick", effect="NoSchedule")
    desk = a_desk(a_slice("n", [a_device("a", taints=(taint,)), a_device("b")]))
    assert names(offer(desk, a_claim("c"))) == ["b"]
    desk.set_rule(TaintRule(name="r", taint=DeviceTaint(key="x", effect="NoExecute"), pool="n", device="b"))
    assert offer(desk, a_claim("c")).obstacle is Obstacle.NONE_MATCH
    brave = (DeviceToleration(key="sick", operator="Exists"),)
    assert names(offer(desk, a_claim("c", a_request(tolerations=brave)))) == ["a"]
    desk.set_rule(TaintRule(name="r", taint=DeviceTaint(key="x", effect="None"), pool="n", device="b"))
    assert names(offer(desk, a_claim("c"))) == ["b"]


def test_nothing_is_given_from_pools_that_are_incomplete_or_contradict_themselves() -> None:
    claim = a_claim("c")
    incomplete = a_slice("n", [a_device("a")], slice_count=2)
    answer = offer(a_desk(incomplete), claim)
    assert (answer.obstacle, answer.detail) == (
        Obstacle.POOL_CLOSED,
        "pool n of dev.example.com: 1 of 2 resource slices are here",
    )
    twice = a_slice("n", [a_device("a"), a_device("a")])
    assert offer(a_desk(twice), claim).obstacle is Obstacle.POOL_CLOSED
    adrift = a_slice("n", [a_device("a", uses={"nowhere": {"x": 1}})])
    assert offer(a_desk(adrift), claim).obstacle is Obstacle.POOL_CLOSED
    older = a_slice("n", [a_device("a")], name="old", generation=1)
    newer = a_slice("n", [a_device("b")], name="new", generation=2)
    assert names(offer(a_desk(older, newer), claim)) == ["b"]


def test_all_devices_are_asked_of_sound_pools_alone() -> None:
    sound = a_slice("n", [a_device("a"), a_device("b")])
    broken = a_slice("n", [a_device("c")], driver="other.example.com", slice_count=2)
    claim = a_claim("c", a_request(count=0))
    assert names(offer(a_desk(sound), claim)) == ["a", "b"]
    assert offer(a_desk(sound, broken), claim).obstacle is Obstacle.POOL_CLOSED


def test_a_device_of_the_network_binds_the_pod_to_the_nodes_that_reach_it() -> None:
    desk = a_desk(nodes=["n", "m"])
    everywhere = a_slice("pool", [a_device("a")], name="wide", where=Where(is_everywhere=True))
    desk.set_slice(everywhere)
    claim = a_claim("c")
    answer = offer(desk, claim, "m")
    assert answer.choices[0].allocation.terms is None
    desk.set_slice(replace(everywhere, devices=(a_device("a", binds_to_node=True),)))
    assert offer(desk, claim, "m").choices[0].allocation.reaches("m", {})
    assert not offer(desk, claim, "m").choices[0].allocation.reaches("n", {})


def test_parameters_name_the_requests_they_are_for_unless_all() -> None:
    desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]))
    desk.set_class(DeviceClass(name="tuned", config=(Config(opaque=b"{}"),)))
    tuned = DeviceRequest(name="x", options=(DeviceOption(class_name="tuned"),))
    claim = a_claim("c", tuned, a_request("y"))
    claim = replace(
        claim,
        demand=replace(
            claim.demand,
            configs=(
                Config(opaque=b"1"),
                Config(opaque=b"2", requests=("y",)),
                Config(opaque=b"3", requests=("x", "y")),
            ),
        ),
    )
    allocation = offer(desk, claim).choices[0].allocation
    assert allocation.class_configs == (Config(opaque=b"{}", requests=("x",)),)
    assert allocation.claim_configs == (
        Config(opaque=b"1"),
        Config(opaque=b"2", requests=("y",)),
        Config(opaque=b"3"),
    )


def test_a_search_without_end_is_given_up() -> None:
    devices = [a_device(f"d{i:02}", {"n": i}) for i in range(32)]
    impossible = [replace(agree("n", "x", "y"), requests=("x", "y"))]
    desk = a_desk(a_slice("n", devices))
    claim = a_claim("c", a_request("w", count=16), a_request("x"), a_request("y"), constraints=impossible)
    answer = offer(desk, claim)
    assert answer.obstacle in (Obstacle.TOO_LONG, Obstacle.CONSTRAINT)


# -- books -----------------------------------------------------------------------------------------------------


def test_what_is_assumed_counts_until_it_shows_or_is_forgotten() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]))
    claim = a_claim("c")
    answer = offer(desk, claim)
    desk.assume("p", answer.choices)
    assert offer(desk, a_claim("d")).obstacle is Obstacle.IN_USE
    desk.set_claim(replace(claim, finalizers=("x",)))  # an older state of the claim changes nothing
    assert offer(desk, a_claim("d")).obstacle is Obstacle.IN_USE
    desk.forget("p")
    assert names(offer(desk, a_claim("d"))) == ["a"]
    desk.assume("p", answer.choices)
    desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
    desk.forget("p")
    assert offer(desk, a_claim("d")).obstacle is Obstacle.IN_USE
    desk.set_claim(claim)
    assert desk.take_room()
    assert names(offer(desk, a_claim("d"))) == ["a"]


def test_a_claim_of_the_same_name_made_anew_holds_nothing_of_the_old_one() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]), claims=[a_claim("c", **given("n", "a"))])
    desk.set_claim(replace(a_claim("c"), uid="other"))
    assert names(offer(desk, a_claim("d"))) == ["a"]


def test_two_claims_on_one_device_are_rivals() -> None:
    first, second = a_claim("c", **given("n", "a")), a_claim("d", **given("n", "a"))
    desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]), claims=[first, second])
    assert desk.rivals(first) == ("d",)
    desk.set_claim(a_claim("d", **given("n", "b")))
    assert desk.rivals(first) == ()


def test_gpus_that_pods_hold_by_record_are_no_claims_and_the_other_way_round() -> None:
    desk = a_desk(a_slice("n", [a_device("g0"), a_device("g1")], driver="gpu.example.com"))
    desk.set_node("n", {}, ("g0",))
    assert names(offer(desk, a_claim("c"))) == ["g1"]
    assert desk.held_on("n") == frozenset()
    holder = a_claim("h", **given("n", "g1"))
    result = replace(holder.allocation.results[0], driver="gpu.example.com")
    desk.set_claim(replace(holder, allocation=replace(holder.allocation, results=(result,))))
    assert desk.held_on("n") == {"g1"}
    assert isinstance(offer(desk, a_claim("c")), Refused)
    desk.set_node("n", {}, ())
    assert names(offer(desk, a_claim("c"))) == ["g0"]


# -- in the index ----------------------------------------------------------------------------------------------


def test_the_index_places_where_room_and_devices_are_and_fills_begun_nodes() -> None:
    desk = a_desk(*(a_slice(node, [a_device(f"{node}{i}") for i in range(4)]) for node in ("a", "b", "c")))
    index = an_index(desk, cores("a", 1), cores("b", 8), cores("c", 8), cores("empty", 64))
    for number in range(3):
        desk.set_claim(a_claim(f"c{number}"))
    desk.set_claim(a_claim("holder", **given("c", "c0")))
    pods = [a_claimant(f"p{number}", f"c{number}", cores=2) for number in range(3)]
    for number, pod in enumerate(pods):
        answer = index.place(pod)
        assert isinstance(answer, Placement)
        assert answer.berth.node == "c"
        index.take(pod, answer.berth)
        assert answer.berth.choices[0].claim_uid == f"c{number}"
    desk.set_claim(a_claim("more"))
    assert index.place(a_claimant("p", "more", cores=2)).berth.node == "b"


def test_pods_of_one_plan_that_share_a_claim_go_to_one_node() -> None:
    desk = a_desk(*(a_slice(node, [a_device(f"{node}{i}")]) for node in ("a", "b") for i in range(1)))
    index = an_index(desk, cores("a"), cores("b"))
    desk.set_claim(a_claim("shared"))
    first, second = a_claimant("p", "shared"), a_claimant("q", "shared")
    answer = index.place(first)
    index.take(first, answer.berth)
    other = index.place(second)
    assert other.berth.node == answer.berth.node
    assert other.berth.choices == ()
    index.give_back(first, answer.berth)
    assert index.place(second).berth.choices


@pytest.mark.parametrize(
    ("claims", "pod", "reason", "words"),
    [
        ([], a_claimant("p", "absent"), Reason.CLAIM_PENDING, "claim absent does not exist"),
        (
            [],
            a_claimant("p", resource_claims=(PodClaim(name="gpu"),)),
            Reason.CLAIM_PENDING,
            "claim gpu is not made yet",
        ),
        ([a_claim("c", is_terminating=True)], a_claimant("p", "c"), Reason.CLAIM_PENDING, "being deleted"),
        ([a_claim("c", problem="bad")], a_claimant("p", "c"), Reason.CLAIM_PENDING, "cannot be read: bad"),
        ([a_claim("c", unmodelled="odd")], a_claimant("p", "c"), Reason.LEFT_TO_SCHEDULER, "odd"),
        (
            [a_claim("c", a_request(selectors=("sets.contains([1], [1])",)))],
            a_claimant("p", "c"),
            Reason.LEFT_TO_SCHEDULER,
            "cannot be evaluated",
        ),
        (
            [a_claim("c", DeviceRequest(name="x", options=(DeviceOption(class_name="none"),)))],
            a_claimant("p", "c"),
            Reason.CLAIM_PENDING,
            "no device class none",
        ),
        ([a_claim("c", a_request(count=3))], a_claimant("p", "c"), Reason.CLAIM_UNSATISFIED, "has 3 device(s) for dev"),
        (
            [a_claim("c", a_request(count=2)), a_claim("h", **given("n", "a"))],
            a_claimant("p", "c"),
            Reason.CLAIM_UNSATISFIED,
            "best node n has 1 free of 2 device(s) for dev",
        ),
        ([a_claim("c", **given("m", "a"))], a_claimant("p", "c"), Reason.CLAIM_UNSATISFIED, "allocated on a node"),
        ([a_claim("c")], a_claimant("p", "c", cores=99), Reason.INSUFFICIENT, "milli_cpu"),
        (
            [a_claim("c", a_request(selectors=('device.attributes["x.com"].y == 1',)))],
            a_claimant("p", "c"),
            Reason.CLAIM_UNSATISFIED,
            "fails on dev.example.com/a",
        ),
        (
            [
                replace(
                    a_claim("c", **given("n", "a")),
                    reserved_for=tuple(Reserver(uid=str(i), name=str(i)) for i in range(256)),
                )
            ],
            a_claimant("p", "c"),
            Reason.CLAIM_PENDING,
            "in use by 256 pods",
        ),
    ],
)
def test_a_pod_without_devices_says_why(claims, pod, reason, words) -> None:
    desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]), claims=claims)
    answer = an_index(desk, cores("n")).place(pod)
    assert isinstance(answer, Unplaced)
    assert answer.reason is reason
    assert words in answer.detail


def test_nothing_is_planned_before_all_claims_are_known() -> None:
    desk = a_desk(a_slice("n", [a_device("a")]), claims=[a_claim("c")])
    desk.is_synced = False
    found = desk.wish(a_claimant("p", "c"))
    assert isinstance(found, Pending)
    assert found.reason is Reason.CLAIM_PENDING


def test_a_pod_whose_template_wants_no_claim_is_like_any_other() -> None:
    desk = a_desk()
    pod = a_claimant("p", resource_claims=(PodClaim(name="gpu", is_none=True),))
    assert an_index(desk, cores("n")).place(pod).berth.node == "n"


def test_answers_follow_every_change_of_devices_claims_and_nodes() -> None:
    desk = a_desk(a_slice("a", [a_device("a0")]), nodes=["b"])
    index = an_index(desk, cores("a"), cores("b"))
    pod = a_claimant("p", "c")
    desk.set_claim(a_claim("c"))
    assert index.place(pod).berth.node == "a"
    desk.set_claim(a_claim("h", **given("a", "a0")))
    assert isinstance(index.place(pod), Unplaced)
    desk.set_slice(a_slice("b", [a_device("b0")]))
    assert index.place(pod).berth.node == "b"
    index.remove_node("b")
    assert isinstance(index.place(pod), Unplaced)
    index.set_node(cores("b"))
    assert index.place(pod).berth.node == "b"
    desk.remove_slice("b-dev.example.com")
    assert isinstance(index.place(pod), Unplaced)
    desk.remove_claim("h")
    assert index.place(pod).berth.node == "a"
    desk.set_class(DeviceClass(name=CLASS, selectors=("false",)))
    assert isinstance(index.place(pod), Unplaced)


def test_amounts_shared_by_claims_add_up() -> None:
    policy = RequestPolicy(default=NANO, least=NANO, step=NANO)
    card = a_device("a", capacity={"memory": Capacity(value=10 * NANO, policy=policy)}, is_multiple=True)
    desk = a_desk(a_slice("n", [card]))
    wanted = a_request(capacity=(("memory", 4 * NANO),))
    for name in ("c0", "c1"):
        claim = a_claim(name, wanted)
        answer = offer(desk, claim)
        assert answer.choices[0].allocation.results[0].consumed == (("memory", 4 * NANO),)
        desk.set_claim(replace(claim, allocation=answer.choices[0].allocation))
    assert offer(desk, a_claim("c2", wanted)).obstacle is Obstacle.IN_USE
    assert names(offer(desk, a_claim("c3"))) == ["a"]
    ids = {claim.allocation.results[0].share_id for claim in desk.claims.values() if claim.allocation}
    assert len(ids) == 2
