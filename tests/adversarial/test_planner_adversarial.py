"""Pods and nodes of every hostile kind, in any order of events: the planner has no fault, and loses nobody."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import labels
from fleet.kube.decode import node_from, pod_from
from tests.support.builders import node_json, node_object, pod_json, pod_object
from tests.support.clock import settle
from tests.support.planning import Bridge, running

NAMES = st.sampled_from(["n1", "n2", "n3"])
number = st.sampled_from(["0", "-1", "9" * 5000, "1.5", "٣", "", "x"])
operator = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like", ""])
requirement = st.fixed_dictionaries(
    {"key": st.sampled_from(["zone", "app", "🏷", ""]), "operator": operator},
    optional={"values": st.lists(number | st.sampled_from(["a", "b", ".*", "a" * 300]), max_size=3)},
)
selector = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(st.sampled_from(["app", "zone"]), st.sampled_from(["a", "b", ".*"]), max_size=2),
        "matchExpressions": st.lists(requirement, max_size=3),
    },
)
term = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(["zone", labels.HOSTNAME, "", "nowhere"]), "labelSelector": selector},
    optional={
        "namespaces": st.lists(st.sampled_from(["default", "other", ""]), max_size=2),
        "namespaceSelector": selector,
        "matchLabelKeys": st.lists(st.sampled_from(["app", "none"]), max_size=2),
        "mismatchLabelKeys": st.just(["app"]),
    },
)
required = "requiredDuringSchedulingIgnoredDuringExecution"
preferred = "preferredDuringSchedulingIgnoredDuringExecution"
weight = st.sampled_from([1, 100, 0, -5, 2**31 - 1])
company = st.fixed_dictionaries(
    {},
    optional={
        required: st.lists(term, max_size=2),
        preferred: st.lists(st.fixed_dictionaries({"weight": weight, "podAffinityTerm": term}), max_size=2),
    },
)
node_terms = st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(requirement, max_size=2)}), max_size=2
)
affinity = st.fixed_dictionaries(
    {},
    optional={
        "podAffinity": company,
        "podAntiAffinity": company,
        "nodeAffinity": st.fixed_dictionaries({required: st.fixed_dictionaries({"nodeSelectorTerms": node_terms})}),
    },
)
spread = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(["zone", labels.HOSTNAME, ""]),
        "maxSkew": st.sampled_from([1, 2, 0, -3, 2**31 - 1]),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway", "Perhaps"]),
        "labelSelector": selector,
    },
    optional={
        "minDomains": st.sampled_from([0, 1, 3, 2**31 - 1]),
        "matchLabelKeys": st.lists(st.sampled_from(["app", "none"]), max_size=2),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore", "?"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore", "?"]),
    },
)
port = st.fixed_dictionaries(
    {"hostPort": st.sampled_from([0, 80, 65536, -1])},
    optional={
        "protocol": st.sampled_from(["TCP", "UDP", "X"]),
        "hostIP": st.sampled_from(["0.0.0.0", "::", "10.0.0.1"]),
    },
)
note = st.one_of(
    st.sampled_from(
        ["", ",", "n1=0", "n2=0,1", "n9=0", "n1", "n1=0;n2=1", "🚢", "A100=1@2", "1g.10gb", "required", "0.5"]
    ),
    st.text(max_size=10),
)
notes = st.dictionaries(
    st.sampled_from(
        [
            labels.GPU_MODELS,
            labels.MIG_PROFILE,
            labels.SAME_ISLAND,
            labels.SEAT,
            labels.MOVING_TO,
            labels.MOVING_BY,
            labels.MOVED_FROM,
            labels.DEVICES,
            labels.CANDIDATES,
            labels.PINNED,
            labels.DRAW,
            labels.KAI_GPU_FRACTION,
            labels.POD_DELETION_COST,
        ]
    ),
    note,
    max_size=3,
)
tags = st.dictionaries(
    st.sampled_from(["app", "zone", labels.GANG, labels.GANG_SIZE]),
    st.sampled_from(["a", "b", "1", "2", "3", "-1", ""]),
)
# Most of a pod is well: what is refused at once shows little.
odd_amounts = st.dictionaries(
    st.sampled_from([labels.GPU, labels.GPU_MILLI, labels.GPU_MEMORY_MIB, labels.NVIDIA_GPU, "cpu"]),
    st.sampled_from(["1", "2", "300m", "500", "1000", "99999999999", "0"]),
    max_size=2,
)
asks = [
    {labels.GPU: "1"},
    {labels.GPU: "2"},
    {labels.GPU_MILLI: "500"},
    {labels.GPU_MILLI: "300"},
    {labels.GPU: "4"},
    {},
]
amounts = st.one_of(*[st.just(ask) for ask in asks], odd_amounts)
gangs = st.sampled_from([{labels.GANG: name, labels.GANG_SIZE: size} for name in "ab" for size in "23"])
owners = st.sampled_from([[], [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]])


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from([f"p{i}" for i in range(6)]))
    is_gated = draw(st.integers(0, 3)) > 0
    metadata: dict[str, Any] = {
        "labels": draw(st.one_of(st.just({"app": "a"}), tags, gangs)),
        "ownerReferences": draw(owners),
    }
    if draw(st.integers(0, 5)) == 0:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    main = {"name": "m", "resources": {"requests": draw(amounts)}, "ports": draw(st.lists(port, max_size=2))}
    return pod_json(
        name,
        annotations=draw(st.one_of(st.just({}), st.just({}), notes)),
        metadata=metadata,
        node=None if is_gated else draw(NAMES),
        containers=[main],
        affinity=draw(st.one_of(st.none(), st.none(), affinity)),
        topologySpreadConstraints=draw(st.one_of(st.just([]), st.lists(spread, max_size=2))),
        priority=draw(st.sampled_from([0, 5, -(2**31), 2**31 - 1])),
        preemptionPolicy=draw(st.sampled_from(["Never", "PreemptLowerPriority"])),
        **({"schedulingGates": [{"name": labels.PLAN_GATE}]} if is_gated else {}),
    )


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    found = {
        labels.DEVICE_SHARING: draw(st.sampled_from(["true", "true", "false"])),
        labels.GPU_PRODUCT: "NVIDIA-A100-SXM4-80GB",
    }
    found |= {labels.GPU_MEMORY: "81920", "zone": draw(st.sampled_from(["a", "b"]))}
    said = {
        labels.MIG_DEVICES: draw(
            st.sampled_from(["", "all", "0", "0=1g.10gb@0,7g.80gb@0", "0=1g.10gb@0,1g.10gb@1", "?"])
        ),
        labels.ISLANDS: draw(st.sampled_from(["", "0,1", "0;0", "0,1;2,3"])),
        labels.SPARE: draw(st.sampled_from(["", "true", "yes"])),
        labels.UNHEALTHY_DEVICES: draw(st.sampled_from(["", "0", "0,,1"])),
    }
    taints = draw(
        st.sampled_from([[], [{"key": "k", "effect": "PreferNoSchedule"}], [{"key": "k", "effect": "NoSchedule"}]])
    )
    return node_json(draw(NAMES), gpus=draw(st.sampled_from([0, 1, 4])), labels=found, annotations=said, taints=taints)


events = st.one_of(
    st.tuples(st.just("see"), pods()),
    st.tuples(st.just("see"), pods()),
    st.tuples(st.just("node"), nodes()),
    st.tuples(st.sampled_from(["catch up", "pass"]), st.just({})),
    st.tuples(st.just("lose"), st.sampled_from([f"uid-p{i}" for i in range(6)])),
    st.tuples(st.just("lose node"), NAMES),
)


async def happen(bridge: Bridge, verb: str, what: Any) -> None:
    match verb:
        case "see":
            bridge.see(pod_from(pod_object(what)))
        case "node":
            bridge.add_nodes(node_from(node_object(what), []))
        case "lose":
            bridge.lose(what)
        case "lose node":
            bridge.lose_node(what)
        case "catch up":
            bridge.catch_up()
        case _:
            await bridge.pass_s(11)
    await settle(5)


@given(st.lists(events, min_size=4, max_size=24))
@settings(deadline=None, max_examples=120)
async def test_no_pod_and_no_node_is_a_fault_of_the_planner(happened: list[tuple[str, Any]]) -> None:
    first = node_json("n1", gpus=4, labels={labels.DEVICE_SHARING: "true", "zone": "a"})
    async with running([node_from(node_object(first), [])]) as bridge:
        for verb, what in happened:
            await happen(bridge, verb, what)
        await bridge.pass_s(40)
        for where in ("plan", "turn", "write", "gang", "housekeeping", "move"):
            assert bridge.value("berthmaster_faults_total", where=where) == 0, where
        for uid, pod in bridge.writer.pods.items():
            if labels.PLAN_GATE in pod.gates and pod.is_live and not pod.is_terminating and uid in bridge.world.pods:
                is_known = uid in bridge.world.queue or uid in bridge.world.away or bridge.world.waiting.get(uid)
                assert is_known or pod.seat or bridge.world.together.seated.get(uid), f"{pod.name} is nowhere"


def test_more_rules_than_are_read_are_left_to_kube_scheduler() -> None:
    def pod(count: int) -> Any:
        rules = [{"topologyKey": f"k{i}", "labelSelector": {"matchLabels": {"app": "a"}}} for i in range(count)]
        return pod_from(pod_object(pod_json(affinity={"podAntiAffinity": {required: rules}})))

    assert pod(128).unmodelled == ()
    assert len(pod(128).guest.anti) == 128
    assert pod(129).unmodelled == ("more than 128 rules about other pods",)
    assert pod(129).guest.anti == ()
