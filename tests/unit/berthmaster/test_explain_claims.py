"""`explain` of pods with resource claims: their devices, and the places that there are with them."""

from __future__ import annotations

from berthmaster.commands.explain.pod import show
from berthmaster.explain import explain
from berthmaster.explain_claims import own
from binpack.index import Index
from fleet.dra import Where
from tests.support.devices import a_claim, a_claimant, a_desk, a_device, a_request, a_slice, an_index, cores, given

NODES = ("n0", "n1", "n2")


def told(desk, pod, *states, most=10):
    """Explain the pod with itself lifted out, as the command does."""
    states = states or tuple(cores(name) for name in NODES)
    index = an_index(desk, *states)
    desk.give_back(own(desk, pod))
    return explain(pod, index, {state.node.name: state for state in states}, most)


def slices(**devices):
    return [a_slice(name, [a_device(f"d{i}") for i in range(many)]) for name, many in devices.items()]


def test_the_devices_of_each_place_are_named():
    found = told(
        a_desk(*slices(n0=1, n1=2), claims=[a_claim("c", a_request(count=2))], nodes=NODES), a_claimant("p", "c")
    )
    assert [(option.node, option.devices) for option in found.options] == [("n1", ("d0", "d1"))]
    assert found.needs == "1 core and devices for its resource claims"


def test_nodes_whose_devices_do_not_do_are_not_feasible():
    claims = [a_claim("c"), a_claim("other", **given("n1", "d0", pods=["somebody"]))]
    found = told(a_desk(*slices(n0=1, n1=1), claims=claims, nodes=NODES), a_claimant("p", "c"))
    assert found.feasible_nodes == len(found.options) == 1
    assert dict(found.excluded) == {
        "lacks free devices for its resource claims": 1,
        "no such devices for its resource claims": 1,
    }


def test_a_bound_pod_has_its_devices_and_other_places():
    claims = [a_claim("c", **given("n1", "d0", pods=["p"]))]
    found = told(a_desk(*slices(n0=1, n1=2, n2=1), claims=claims), a_claimant("p", "c", gates=(), node_name="n1"))
    assert (found.berth.node, found.berth.devices) == ("n1", ("d0",))
    assert {option.node for option in found.options} == set(NODES)
    assert [option.node for option in found.options if option.is_taken] == ["n1"]
    assert all(option.devices for option in found.options)
    assert found.feasible_nodes == 3
    assert "cost" in found.why


def test_a_claim_that_others_use_keeps_the_pod_where_its_devices_are():
    claims = [a_claim("s", **given("n1", "d0", pods=["p", "friend"])), a_claim("c")]
    found = told(a_desk(*slices(n0=1, n1=2, n2=1), claims=claims), a_claimant("p", "s", "c"))
    assert [(option.node, option.devices) for option in found.options] == [("n1", ("d0", "d1"))]
    assert found.excluded == (("a claim that it shares has its devices elsewhere", 2),)


def test_devices_of_the_network_are_named_with_their_pool():
    afar = a_slice("net", [a_device("afar")], where=Where(is_everywhere=True))
    found = told(a_desk(afar, claims=[a_claim("c")], nodes=NODES), a_claimant("p", "c"))
    assert {option.devices for option in found.options} == {("net/afar",)}


def test_claims_that_are_not_there_yet_are_no_reason_of_a_node():
    found = told(a_desk(*slices(n0=1), nodes=NODES), a_claimant("p", "absent"))
    assert found.feasible_nodes == 0
    assert found.excluded == (("its resource claims are not ready", 3),)
    assert found.reason == "ClaimPending"


def test_as_many_places_are_listed_as_were_asked():
    names = [f"n{number:03}" for number in range(200)]
    desk = a_desk(*slices(**dict.fromkeys(names, 1)), claims=[a_claim("c")])
    found = told(desk, a_claimant("p", "c"), *(cores(name) for name in names), most=150)
    assert (len(found.options), found.feasible_nodes) == (150, 200)


def test_without_a_desk_claims_do_not_count():
    assert explain(a_claimant("p", "c"), Index([cores("n0")]), {"n0": cores("n0")}, 3).feasible_nodes == 1


def test_one_node_is_told_as_one(capsys):
    states = (cores("n0"), cores("n1", 0))
    show(told(a_desk(*slices(n0=1), claims=[a_claim("c")]), a_claimant("p", "c"), *states))
    text = capsys.readouterr().out
    assert "feasible on 1 node; the cheapest berths:" in text
    assert "1 node excluded: lacks CPU" in text
