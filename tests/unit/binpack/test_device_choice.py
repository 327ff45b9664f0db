"""Devices for claims: which are chosen, and which rules hold."""

from __future__ import annotations

from dataclasses import replace

from binpack.dra.choose import Chosen, Obstacle, Refused
from fleet.dra import (
    Capacity,
    Config,
    DeviceClass,
    DeviceConstraint,
    DeviceOption,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    RequestPolicy,
    TaintRule,
    Where,
)
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
    given,
)

GIB = 2**30


def names(answer) -> list[str]:
    assert isinstance(answer, Chosen)
    return [result.device for choice in answer.choices for result in choice.allocation.results]


def offer(desk, claim, node="n"):
    desk.set_claim(claim)
    return desk.offer(node, desk.wish(a_claimant("p", claim.name)))


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
