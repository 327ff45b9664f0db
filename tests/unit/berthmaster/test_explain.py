"""`explain`: where a pod stands, why there, and what else there was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from berthmaster.explain import Said, Standing, berth_of, explain, standing
from berthmaster.said import said_in
from binpack.index import Index
from fleet import labels
from fleet.company import Guest, PodTerm, Selector
from fleet.constraints import NodeConstraints, Requirement, Taint
from fleet.kube.patches import condition_patch
from fleet.pod import Berth, Phase
from tests.support.builders import a_node, a_pod, a_state


def told(pod, *states, most=10):
    return explain(pod, Index(states), {state.node.name: state for state in states}, most)


@pytest.mark.parametrize(
    ("pod", "expected", "berth"),
    [
        pytest.param(a_pod(), Standing.WAITING, None, id="gated"),
        pytest.param(a_pod(pin="n1", devices=("0",)), Standing.PINNED, Berth(node="n1", devices=("0",)), id="pinned"),
        pytest.param(
            replace(a_pod(pin="n1"), gates=("other.io/g",)), Standing.WAITING, None, id="pinned by hand behind a gate"
        ),
        pytest.param(a_pod(candidates=(Berth(node="n1"),)), Standing.STEERED, None, id="steered"),
        pytest.param(
            a_pod(node="n2", candidates=(Berth(node="n1"), Berth(node="n2", devices=("3",)))),
            Standing.BOUND,
            Berth(node="n2", devices=("3",)),
            id="bound to a candidate",
        ),
        pytest.param(a_pod(node="n9"), Standing.BOUND, Berth(node="n9"), id="bound without a record"),
        pytest.param(a_pod(node="n1", phase=Phase.SUCCEEDED), Standing.FINISHED, Berth(node="n1"), id="finished"),
    ],
)
def test_where_a_pod_stands(pod, expected, berth):
    assert standing(pod) is expected
    assert berth_of(pod) == berth


def test_a_rule_between_pods_is_counted_among_the_reasons():
    web = Selector(requirements=(Requirement(key="app", operator="In", values=("web",)),))
    alone = PodTerm(key="zone", selector=web, namespaces=("default",))
    guest = Guest(labels=(("app", "web"),), anti=(alone,))
    there = replace(a_pod("there", node="n0"), guest=guest)
    states = [
        a_state(a_node("n0", labels={"zone": "a"}), there),
        a_state(a_node("n1", labels={"zone": "a"})),
        a_state(a_node("n2", labels={"zone": "b"})),
        a_state(a_node("n3", is_cordoned=True, labels={"zone": "a"})),
    ]
    found = told(replace(a_pod("p"), guest=guest, claims=("data",)), *states)
    assert found.feasible_nodes == 1
    assert found.excluded == (("pod anti-affinity over zone", 2), ("cordoned", 1))
    assert found.why == "it could go to n2 now, but for its volume claims, which its condition tells of"


def test_the_options_are_ranked_and_the_taken_one_marked():
    states = [
        a_state(
            a_node(f"n{i}", gpus=2, milli_cpu=8000),
            *([a_pod("o", milli=500, node="n1", devices=("0",))] if i == 1 else []),
        )
        for i in range(3)
    ]
    pod = a_pod(milli=500, node="n1", devices=("0",))
    found = told(pod, *states)
    assert found.feasible_nodes == 3
    assert [option.cost for option in found.options] == sorted(option.cost for option in found.options)
    assert [option.node for option in found.options if option.is_taken] == ["n1"]
    assert found.options[0].node == "n1", "the started card costs least"
    assert "no berth costs less" in found.why


def test_a_dearer_berth_is_told_with_the_cheaper_one():
    states = [
        a_state(a_node("n1", gpus=2)),
        a_state(a_node("n2", gpus=2), a_pod("o", milli=500, node="n2", devices=("0",))),
    ]
    found = told(a_pod(milli=500, node="n1", devices=("0",)), *states)
    assert "cheaper is n2" in found.why


def test_a_berth_beyond_the_listed_ones_is_not_called_cheapest():
    states = [a_state(a_node(f"n{i}", gpus=1)) for i in range(4)]
    found = told(a_pod(whole=1, node="n3", devices=("0",)), *states, most=2)
    assert len(found.options) == 2
    assert "not among the cheapest" in found.why


def test_every_node_is_feasible_or_excluded_for_one_reason():
    states = [
        a_state(a_node("fits", gpus=1)),
        a_state(a_node("tainted", gpus=1, taints=(Taint(key="t"),))),
        a_state(a_node("cordoned", gpus=1, is_cordoned=True)),
        a_state(a_node("taken", gpus=1), a_pod("o", whole=1, node="taken", devices=("0",))),
        a_state(a_node("small", gpus=1, milli_cpu=10)),
        a_state(a_node("none")),
        a_state(a_node("classic", gpus=1, is_sharing=False)),
    ]
    found = told(a_pod(whole=1, milli_cpu=1000), *states)
    assert found.feasible_nodes + sum(nodes for _, nodes in found.excluded) == len(states)
    assert dict(found.excluded) == {"taint": 1, "cordoned": 1, "lacks free devices": 3, "lacks CPU": 1}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param(replace(a_pod(), problems=("gpu-milli: -5",)), "cannot be read: gpu-milli: -5", id="malformed"),
        pytest.param(a_pod(whole=9), "none of 1 allowed nodes has 9", id="no such device"),
        pytest.param(a_pod(milli_cpu=9000), "best node n1 lacks 1 core", id="the smallest change"),
        pytest.param(a_pod(), "could go to n1 now", id="about to be placed"),
        pytest.param(
            a_pod(constraints=NodeConstraints(node_selector=(("zone", "a"),))), "no node is allowed", id="selector"
        ),
    ],
)
def test_why_a_pod_waits(pod, words):
    found = told(pod, a_state(a_node(gpus=1, milli_cpu=8000)))
    assert words in found.why
    assert found.berth is None


def test_an_empty_cluster_is_told():
    assert told(a_pod()).why == "the cluster has no nodes"
    assert told(a_pod()).excluded == ()


def test_a_seat_and_a_gang_are_told_of():
    state = a_state(a_node("n1", gpus=1))
    index = Index([state])
    seated = a_pod("p", whole=1, seat=Berth(node="n9", devices=("0",)))
    assert "a berth on n9 is kept for it" in explain(seated, index, {"n1": state}, 3).why
    member = a_pod("p", whole=1, gang="train", gang_size=2)
    assert "its gang train is placed as a whole" in explain(member, index, {"n1": state}, 3).why


def test_what_was_said_is_told_with_what_helps():
    state = a_state(a_node("n1", gpus=1))
    said = Said(reason="GangDoesNotFit", text="3 of 4 members fit", since="2026-01-01T00:00:00Z")
    member = a_pod("p", whole=1, gang="train", gang_size=4)
    found = explain(member, Index([state]), {"n1": state}, 3, said)
    assert (found.said, found.reason) == (said, "GangDoesNotFit")
    assert "do not all fit at once" in found.means
    assert "room in the pieces asked" in found.helps


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(a_pod(milli_cpu=9000), "Insufficient", id="waits"),
        pytest.param(replace(a_pod(), problems=("odd",)), "Malformed", id="cannot be read"),
        pytest.param(a_pod(node="n1"), "", id="has a berth"),
        pytest.param(a_pod(), "", id="is about to be placed"),
    ],
)
def test_where_nothing_was_said_the_reason_is_found(pod, reason):
    found = told(pod, a_state(a_node(gpus=1, milli_cpu=8000)))
    assert found.reason == reason
    assert bool(found.means) is bool(found.helps) is bool(reason)


def test_a_reason_of_a_newer_planner_is_told_as_it_is():
    state = a_state(a_node("n1"))
    found = explain(a_pod(), Index([state]), {"n1": state}, 3, Said(reason="OfAnotherDay", text="x", since=""))
    assert (found.reason, found.means, found.helps) == ("OfAnotherDay", "", "")


def test_the_condition_is_read_as_it_was_written():
    patch = condition_patch(
        labels.WAITING_CONDITION, status=True, reason="SeatAwaited", message="x", at="2026-01-01T00:00:00Z", uid="u"
    )
    assert said_in(patch) == Said(reason="SeatAwaited", text="x", since="2026-01-01T00:00:00Z")
    placed = condition_patch(labels.WAITING_CONDITION, status=False, reason="Placed", message="", at="", uid="u")
    assert said_in(placed) is None
    assert said_in(b'{"status": {"conditions": null}}') is None
    assert said_in(b"{}") is None
