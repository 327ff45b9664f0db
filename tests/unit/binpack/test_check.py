"""Every hard rule, broken once: the verifier names pod, node, rule and amounts."""

from dataclasses import replace

import pytest

from binpack.check import Rule, check
from binpack.check_nodes import NodeRule
from fleet.constraints import NodeConstraints, NodeTerm, Requirement, Taint, Toleration
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth
from tests.support.berths import GIB, card, chosen, classic, plan_of, pod, seat, share


def verdict(states, pods, berths):
    return check({state.node.name: state for state in states}, pods, plan_of(berths))


def rules(states, pods, berths):
    return [violation.rule for violation in verdict(states, pods, berths)]


def at(node, *devices):
    return Berth(node=node, devices=devices)


def test_a_good_plan_has_no_violation():
    states = [seat("n1", [1000, 600, 1000], cpu=8), seat("cpu", cpu=4)]
    pods = [
        pod("a", cpu=4, ask=share(600)),
        pod("b", cpu=4, ask=chosen(1)),
        pod("c", cpu=4),
        pod("d", ask=share(400)),
    ]
    assert not verdict(states, pods, {"a": at("n1", "1"), "b": at("n1", "0"), "c": at("cpu"), "d": None})


def test_another_scheduler_took_the_cpu():
    """Case another-scheduler-took-the-cpu (kai-scheduler/KAI-Scheduler#1454): a plan holds against the state it saw."""
    n1, n2 = seat("n1", [1000], cpu=8, gib=32), seat("n2", [1000], cpu=8, gib=32)
    pods = [pod("p", cpu=4, ask=chosen(1))]
    planned = {"p": at("n1", "0")}
    assert not verdict([n1, n2], pods, planned)
    n1_later = seat("n1", [1000], cpu=2, gib=32)
    (violation,) = verdict([n1_later, n2], pods, planned)
    assert (violation.pod_uid, violation.node, violation.rule) == ("p", "n1", "milli_cpu")
    assert (violation.wanted, violation.free) == (4000, 2000)


def test_every_pod_stands_in_the_plan_exactly_once():
    states = {"n1": seat("n1")}
    pods = [pod("a"), pod("b")]
    plan = Plan(
        placements=(
            Placement(pod_uid="a", berth=at("n1")),
            Placement(pod_uid="ghost", berth=at("n1")),
        ),
        unplaced=(Unplaced(pod_uid="a", reason=Reason.INSUFFICIENT),),
    )
    found = {(violation.pod_uid, violation.rule) for violation in check(states, pods, plan)}
    assert found == {("a", Rule.POD_TWICE), ("ghost", Rule.POD_UNKNOWN), ("b", Rule.POD_MISSING)}


def test_a_node_that_is_gone():
    assert rules([], [pod("a")], {"a": at("n1")}) == [Rule.NODE_UNKNOWN]


def test_an_unreadable_pod_is_never_placed():
    assert rules([seat("n1")], [pod("a", problems=("gpu-fraction: 'x'",))], {"a": at("n1")}) == [Rule.POD_UNREADABLE]


def test_amounts_add_up_over_the_batch_and_the_late_pod_is_named():
    state = seat("n1", cpu=3, gib=8, slots=2, extended={"example.com/x": 1})
    pods = [pod("a", cpu=2, gib=7), pod("b", cpu=2, gib=2), pod("c", extended={"example.com/x": 2}), pod("d", cpu=0)]
    found = verdict([state], pods, dict.fromkeys("abcd", at("n1")))
    assert [(v.pod_uid, v.rule, v.wanted, v.free) for v in found] == [
        ("b", "milli_cpu", 2000, 1000),
        ("b", "memory_bytes", 2 * GIB, GIB),
        ("c", "example.com/x", 2, 1),
    ]


def test_an_over_committed_node_still_takes_a_pod_that_asks_nothing_of_what_is_short():
    state = replace(seat("n1"), free=replace(seat("n1").free, milli_cpu=-500))
    assert not verdict([state], [pod("a", cpu=0)], {"a": at("n1")})
    assert rules([state], [pod("a", cpu=0.1)], {"a": at("n1")}) == [Rule.MILLI_CPU]


def test_pod_slots():
    assert rules([seat("n1", slots=1)], [pod("a"), pod("b")], {"a": at("n1"), "b": at("n1")}) == [Rule.POD_SLOTS]


@pytest.mark.parametrize(
    ("ask", "devices", "expected"),
    [
        (share(400), ("0",), []),
        (share(700), ("1",), [Rule.MILLI_GPU]),
        (share(400), (), [Rule.DEVICE_COUNT]),
        (share(400), ("0", "2"), [Rule.DEVICE_COUNT]),
        (share(400, count=2), ("0", "0"), [Rule.DEVICE_TWICE]),
        (share(400), ("9",), [Rule.DEVICE_UNKNOWN]),
        (share(400), ("3",), [Rule.DEVICE_SICK]),
        (share(400, models=("G3",)), ("0",), [Rule.DEVICE_MODEL]),
        (share(0, mib=9000), ("0",), [Rule.GPU_MEMORY_MIB]),
        (share(0, mib=9000), ("2",), []),
        (chosen(1), ("0",), []),
        (chosen(2), ("0", "2"), []),
        (chosen(1), ("1",), [Rule.DEVICE_TOUCHED]),
        (chosen(1), ("3",), [Rule.DEVICE_SICK]),
        (chosen(1, mib=9000), ("0",), [Rule.GPU_MEMORY_MIB]),
        (classic(1), (), [Rule.WRONG_BOOKS]),
        (None, ("0",), [Rule.DEVICES_UNASKED]),
    ],
)
def test_device_rules(ask, devices, expected):
    state = seat(
        "n1",
        devices=[
            card("0", memory_mib=8000),
            card("1", 600, memory_mib=8000),
            card("2"),
            card("3", is_healthy=False),
        ],
    )
    assert rules([state], [pod("a", ask=ask)], {"a": at("n1", *devices)}) == expected


def test_shares_of_one_card_add_up_and_spoil_it_as_a_whole():
    state = seat("n1", devices=[card("0", memory_mib=10_000)])
    pods = [
        pod("a", ask=share(400, mib=6000)),
        pod("b", ask=share(400, mib=6000)),
        pod("c", ask=share(700)),
        pod("d", ask=chosen(1)),
    ]
    found = verdict([state], pods, dict.fromkeys("abcd", at("n1", "0")))
    assert [(v.pod_uid, v.rule, v.wanted, v.free) for v in found] == [
        ("b", Rule.GPU_MEMORY_MIB, 6000, 4000),
        ("c", Rule.MILLI_GPU, 700, 600),
        ("d", Rule.DEVICE_TOUCHED, 0, 1),
    ]


@pytest.mark.parametrize(("memory_mib", "rule"), [(10_000, Rule.GPU_MEMORY_MIB), (None, Rule.MILLI_GPU)])
def test_a_whole_card_leaves_nothing_to_a_share_of_memory_alone(memory_mib, rule):
    state = seat("n1", devices=[card("0", memory_mib=memory_mib)])
    pods = [pod("a", ask=chosen(1)), pod("b", ask=share(0, mib=1))]
    assert rules([state], pods, dict.fromkeys("ab", at("n1", "0"))) == [rule]


def test_classic_nodes_keep_counts():
    state = seat("n1", [1000, 1000, 0], is_sharing=False, extended={"nvidia.com/gpu": 2})
    pods = [pod(name, ask=classic(1), extended={"nvidia.com/gpu": 1}) for name in "abc"]
    found = verdict([state], pods, dict.fromkeys("abc", at("n1")))
    assert {(v.pod_uid, v.rule) for v in found} == {("c", "nvidia.com/gpu"), ("c", Rule.DEVICE_COUNT)}
    assert rules([state], [pod("a", ask=classic(1))], {"a": at("n1", "0")}) == [Rule.DEVICES_UNASKED]
    assert rules([state], [pod("a", ask=share(100))], {"a": at("n1", "0")}) == [Rule.WRONG_BOOKS]
    assert rules([state], [pod("a", ask=classic(1, models=("H100",)))], {"a": at("n1")}) == [Rule.DEVICE_COUNT]


@pytest.mark.parametrize(
    ("wanted", "model", "is_given"),
    [
        ("H100", "NVIDIA-H100-80GB-HBM3", True),
        ("h100 80gb", "NVIDIA-H100-80GB-HBM3", True),
        ("H10", "NVIDIA-H100-80GB-HBM3", False),
        ("H100-HBM3", "NVIDIA-H100-80GB-HBM3", False),
        ("", "G2", False),
        ("G2", "", False),
    ],
)
def test_a_model_is_wanted_by_whole_words(wanted, model, is_given):
    state = seat("n1", devices=[card("0", model=model)])
    found = rules([state], [pod("a", ask=share(1, models=(wanted,)))], {"a": at("n1", "0")})
    assert found == ([] if is_given else [Rule.DEVICE_MODEL])


def test_a_blocked_node_gives_no_device_but_still_takes_cpu_pods():
    state = seat("n1", [1000], blocked=("pod x: devices annotation cannot be read",))
    pods = [pod("a", ask=share(100)), pod("b")]
    assert rules([state], pods, {"a": at("n1", "0"), "b": at("n1")}) == [Rule.DEVICES_BLOCKED]


ZONE_A = NodeTerm(labels=(Requirement(key="zone", operator="In", values=("a",)),))
BIG = NodeTerm(labels=(Requirement(key="cores", operator="Gt", values=("32",)),))
NAMED = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),))


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (NodeConstraints(node_selector=(("zone", "a"),)), []),
        (NodeConstraints(node_selector=(("zone", "b"),)), [NodeRule.SELECTOR]),
        (NodeConstraints(terms=()), [NodeRule.AFFINITY]),
        (NodeConstraints(terms=(NodeTerm(),)), [NodeRule.AFFINITY]),
        (NodeConstraints(terms=(ZONE_A,)), []),
        (NodeConstraints(terms=(BIG,)), [NodeRule.AFFINITY]),
        (NodeConstraints(terms=(BIG, NAMED)), []),
        (
            NodeConstraints(
                terms=(NodeTerm(fields=(Requirement(key="spec.x", operator="NotIn", values=("n2",)),)),),
            ),
            [NodeRule.AFFINITY],
        ),
        (
            NodeConstraints(terms=(NodeTerm(labels=(Requirement(key="cores", operator="Lt", values=("3_2",)),)),)),
            [NodeRule.AFFINITY],
        ),
        (NodeConstraints(terms=(NodeTerm(labels=(Requirement(key="gone", operator="NotIn", values=("x",)),)),)), []),
    ],
)
def test_selector_and_affinity(wish, expected):
    state = seat("n1", labels={"zone": "a", "cores": "16"})
    assert rules([state], [pod("a", constraints=wish)], {"a": at("n1")}) == expected


@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        ((Taint(key="gpu"),), (), [NodeRule.TAINT]),
        ((Taint(key="gpu", effect="NoExecute"),), (), [NodeRule.TAINT]),
        ((Taint(key="gpu", effect="PreferNoSchedule"),), (), []),
        ((Taint(key="gpu", value="x"),), (Toleration(key="gpu", value="x"),), []),
        ((Taint(key="gpu", value="x"),), (Toleration(key="gpu", value="y"),), [NodeRule.TAINT]),
        ((Taint(key="gpu"),), (Toleration(key="gpu", operator="Exists", effect="NoExecute"),), [NodeRule.TAINT]),
        ((Taint(key="gpu"), Taint(key="b")), (Toleration(operator="Exists"),), []),
        ((Taint(key="gpu"),), (Toleration(),), [NodeRule.TAINT]),
        ((Taint(key="rank", value="5"),), (Toleration(key="rank", operator="Gt", value="3"),), []),
    ],
)
def test_taints(taints, tolerations, expected):
    wish = NodeConstraints(tolerations=tolerations)
    assert rules([seat("n1", taints=taints)], [pod("a", constraints=wish)], {"a": at("n1")}) == expected


def test_a_cordoned_node():
    state = seat("n1", is_cordoned=True)
    tolerant = NodeConstraints(tolerations=(Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),))
    assert rules([state], [pod("a")], {"a": at("n1")}) == [NodeRule.TAINT]
    assert rules([state], [pod("a", constraints=tolerant)], {"a": at("n1")}) == []


def test_a_gang_of_which_only_a_part_is_placed():
    states = [seat("n1", [1000] * 2)]
    pods = [pod(name, ask=chosen(1)) for name in ("a", "b", "c")]
    by_name = {state.node.name: state for state in states}
    torn = plan_of({"a": at("n1", "0"), "b": at("n1", "1"), "c": None})
    found = check(by_name, pods, torn, together=[{"a", "b", "c"}])
    assert [(one.pod_uid, one.node, one.rule, one.wanted, one.free) for one in found] == [
        ("a", "n1", Rule.GANG_TORN, 3, 2),
        ("b", "n1", Rule.GANG_TORN, 3, 2),
    ]
    assert check(by_name, pods, torn, together=[{"a", "b"}, {"c"}]) == ()
