"""Gate, plan, pin on a real control plane: who is pinned, who is steered, who is held, and that all are sound."""

from __future__ import annotations

import asyncio
import signal

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import ApiError
from fleet.kube import paths
from tests.support.eventually import eventually, never
from tests.support.quay import POOL, REQUIRED, Quay, condition, gates_of, held, node_of, note, pins, terms_of

pytestmark = pytest.mark.contract

OTHER_GATE = "example.com/later"
GPU, MILLI, MIB, CLASSIC = labels.GPU, labels.GPU_MILLI, labels.GPU_MEMORY_MIB, labels.NVIDIA_GPU


async def sound(quay: Quay) -> None:
    count = await quay.recount()
    assert count.faults == ()


# -- pinned ----------------------------------------------------------------------------------------------------


async def test_a_deployments_pods_are_pinned_with_their_devices_and_bound(quay: Quay) -> None:
    template = quay.pod_json("any", {GPU: "1", "cpu": "1"})
    template["metadata"] = {"labels": {"app": "llm"}}
    deployment = {
        "metadata": {"name": "llm"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "llm"}}, "template": template},
    }
    del template["spec"]["terminationGracePeriodSeconds"]
    await quay.create(f"/apis/apps/v1/namespaces/{quay.namespace}/deployments", deployment)
    pods = await quay.all_bound(5)
    for pod in pods:
        assert gates_of(pod) == []
        assert pins(pod) == [[node_of(pod)]]
        assert note(pod, labels.CANDIDATES) == ""
    taken = held(pods)
    assert len(set(taken)) == len(taken) == 5
    await sound(quay)


async def test_shares_of_one_card_add_up_and_never_beyond_it(quay: Quay) -> None:
    quay.pool = "tight"
    for i in range(4):
        await quay.add_pod(f"share-{i}", {MILLI: "300"})
    pods = await quay.all_bound(3)
    assert {note(pod, labels.DEVICES) for pod in pods if node_of(pod)} == {"0"}
    (left,) = [pod["metadata"]["name"] for pod in pods if not node_of(pod)]
    assert "best node tight-0000 lacks 200 milli-GPU" in await quay.says(left, "Insufficient")
    await sound(quay)


async def test_a_pods_own_affinity_is_kept_and_every_term_is_pinned(quay: Quay) -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["deploy-0000"]}]
    terms = [
        {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["deploy", "elsewhere"]}]},
        {"matchExpressions": [{"key": "no-such-label", "operator": "Exists"}], "matchFields": fields},
        {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]}]},
    ]
    wish = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}
            ],
        },
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    }
    await quay.add_pod("picky", {"cpu": "1"}, affinity=wish)
    pod = await quay.bound("picky")
    node = node_of(pod)
    found = terms_of(pod)
    assert [term.get("matchExpressions") for term in found] == [term["matchExpressions"] for term in terms]
    assert pins(pod) == [[node], ["deploy-0000", node], [node]]
    assert pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]


async def test_classic_gpus_are_counted_on_classic_nodes_and_named_nowhere(quay: Quay) -> None:
    quay.pool = "classic"
    for i in range(3):
        await quay.add_pod(f"whole-{i}", {CLASSIC: "1"})
    pods = await quay.all_bound(3)
    assert {node_of(pod) for pod in pods} == {"classic-0000"}
    assert all(pins(pod) == [["classic-0000"]] for pod in pods)
    assert all(note(pod, labels.DEVICES) == "" for pod in pods)
    await sound(quay)


@pytest.mark.parametrize(
    ("requests", "annotations", "devices"),
    [
        pytest.param({}, {"gpu-fraction": "0.5"}, 1, id="kai fraction"),
        pytest.param({}, {"gpu-memory": "2000"}, 1, id="kai memory"),
        pytest.param({}, {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, 2, id="kai several"),
        pytest.param({CLASSIC: "1", "nvidia.com/gpumem": "3000"}, {}, 1, id="hami memory"),
        pytest.param({CLASSIC: "2", "nvidia.com/gpucores": "30", "nvidia.com/gpumem": "100"}, {}, 2, id="hami two"),
    ],
)
async def test_other_dialects_are_understood(
    quay: Quay, requests: dict[str, str], annotations: dict[str, str], devices: int
) -> None:
    quay.pool = "shown"
    await quay.add_pod("guest", requests, annotations=annotations)
    pod = await quay.bound("guest")
    assert len(held([pod])) == devices
    assert pins(pod) == [[node_of(pod)]]
    await sound(quay)


# -- gates -----------------------------------------------------------------------------------------------------


async def test_a_pod_with_another_gate_is_not_planned_until_that_is_gone_and_then_at_once(quay: Quay) -> None:
    await quay.add_pod("held", {"cpu": "1"}, schedulingGates=[{"name": OTHER_GATE}])
    assert OTHER_GATE in await quay.says("held", "ForeignGate")
    pod = await quay.pod("held")
    assert sorted(gates_of(pod)) == [labels.PLAN_GATE, OTHER_GATE]
    assert pins(pod) == []
    position = gates_of(pod).index(OTHER_GATE)
    await quay.patch_pod("held", [{"op": "remove", "path": f"/spec/schedulingGates/{position}"}])
    pod = await quay.bound("held", within_s=3.0)
    assert pins(pod) == [[node_of(pod)]]
    await eventually(
        lambda: quay.pod("held"),
        lambda pod: condition(pod).get("status") == "False",
        what="it says no more that it waits",
    )


async def test_pods_that_are_changed_all_the_time_are_placed_once_each(quay: Quay) -> None:
    """Annotations are written as fast as the API takes them while the pods are planned and pinned."""
    names = [f"restless-{i}" for i in range(6)]
    done = False

    async def hammer(name: str) -> int:
        beats = 0
        while not done:
            beats += 1
            await quay.patch_pod(name, {"metadata": {"annotations": {"beat": str(beats)}}})
        return beats

    for name in names:
        # Without annotations, the pin must make the map; the hammer makes it first.
        await quay.add_pod(name, {"cpu": "100m", MILLI: "50"}, annotations=None)
    hammers = [asyncio.create_task(hammer(name)) for name in names]
    try:
        pods = await quay.all_bound(len(names))
    finally:
        done = True
        beats = await asyncio.gather(*hammers)
    assert min(beats) >= 1
    assert len(held(pods)) == len(names)
    assert all(pins(pod) == [[node_of(pod)]] for pod in pods)
    await sound(quay)


# -- steered ---------------------------------------------------------------------------------------------------


async def test_a_bare_pod_is_steered_and_the_candidate_of_its_node_is_the_record(quay: Quay) -> None:
    quay.pool = "steer"
    await quay.add_pod("bare", {GPU: "1"}, is_owned=False)
    pod = await quay.bound("bare")
    assert pins(pod) == []
    assert note(pod, labels.DEVICES) == ""
    candidates = dict(part.split("=") for part in note(pod, labels.CANDIDATES).split(";"))
    assert set(candidates) <= {f"steer-{i:04d}" for i in range(3)}
    assert len(candidates) > 1
    assert node_of(pod) in candidates
    # The record counts: pods that fill the pool get every device but this one.
    for i in range(5):
        await quay.add_pod(f"rest-{i}", {GPU: "1"})
    pods = await quay.all_bound(6)
    assert (node_of(pod), candidates[node_of(pod)]) not in held(pods)
    await sound(quay)


async def test_a_jobs_pods_are_steered(quay: Quay) -> None:
    quay.pool = "steer"
    template = quay.pod_json("any", {GPU: "1"})
    template["metadata"] = {}
    template["spec"]["restartPolicy"] = "Never"
    job = {"metadata": {"name": "once"}, "spec": {"completions": 2, "parallelism": 2, "template": template}}
    await quay.create(f"/apis/batch/v1/namespaces/{quay.namespace}/jobs", job)
    pods = await eventually(
        quay.pods, lambda pods: len(pods) == 2 and all(map(node_of, pods)), what="the job's pods are bound"
    )
    for pod in pods:
        assert pins(pod) == []
        assert any(part.startswith(f"{node_of(pod)}=") for part in note(pod, labels.CANDIDATES).split(";"))


def _apart(kind: str, app: str) -> dict[str, object]:
    """Return a rule by which two pods of this app never share a node."""
    selector = {"matchLabels": {"app": app}}
    own = {"metadata": {"labels": {"app": app}}}
    match kind:
        case "host port":
            return {"container": {"ports": [{"containerPort": 80, "hostPort": 8080}]}}
        case "anti-affinity":
            term = {"topologyKey": labels.HOSTNAME, "labelSelector": selector}
            return {**own, "affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
        case _:
            spread = {"maxSkew": 1, "topologyKey": labels.HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
            return {**own, "topologySpreadConstraints": [{**spread, "labelSelector": selector}]}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("host port", "HostPortTaken"), ("anti-affinity", "PodAntiAffinity"), ("hard spread", "")],
)
async def test_rules_between_pods_are_planned_and_pinned(quay: Quay, kind: str, reason: str) -> None:
    """Three nodes: three pods of one batch go to one each; a fourth waits, but for the spread, which then allows it."""
    quay.pool = "steer"
    for i in range(3):
        await quay.add_pod(f"one-{i}", {MILLI: "300"}, **_apart(kind, "apart"))
    pods = await quay.all_bound(3)
    assert all(pins(pod) == [[node_of(pod)]] for pod in pods)
    assert len({node_of(pod) for pod in pods}) == 3
    await quay.add_pod("one-3", {MILLI: "300"}, **_apart(kind, "apart"))
    if reason:
        assert "3 of 3 nodes with room" in await quay.says("one-3", reason)
        await quay.delete_pod("one-1")
    await quay.all_bound(3 if reason else 4)
    await sound(quay)


async def test_a_rule_that_a_pin_would_empty_is_never_pinned(quay: Quay) -> None:
    """kube-scheduler keeps the constraint, the planner the devices: a pin would leave fewer domains than are asked."""
    quay.pool = "steer"
    spec = _apart("hard spread", "wide")
    (spread,) = spec["topologySpreadConstraints"]  # type: ignore[misc]
    spread["minDomains"] = 3
    for i in range(3):
        await quay.add_pod(f"one-{i}", {MILLI: "500"}, **spec)
        await quay.bound(f"one-{i}", within_s=40.0)
    pods = await quay.pods()
    assert all(pins(pod) == [] for pod in pods)
    assert len({node_of(pod) for pod in pods}) == 3
    await sound(quay)


async def test_replicas_of_one_deployment_stand_on_different_nodes(quay: Quay) -> None:
    quay.pool = "steer"
    template = quay.pod_json("any", {MILLI: "100"})
    template["metadata"] = {"labels": {"app": "llm"}}
    del template["spec"]["terminationGracePeriodSeconds"]
    await quay.create(
        f"/apis/apps/v1/namespaces/{quay.namespace}/deployments",
        {
            "metadata": {"name": "llm"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "llm"}}, "template": template},
        },
    )
    pods = await quay.all_bound(3)
    assert len({node_of(pod) for pod in pods}) == 3


# -- held ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "annotations"),
    [
        pytest.param({MILLI: "1001"}, {}, id="more than a device"),
        pytest.param({MILLI: "9223372036854775807"}, {}, id="int64"),
        pytest.param({GPU: "1", MILLI: "500"}, {}, id="two ways at once"),
        pytest.param({CLASSIC: "1", MILLI: "500"}, {}, id="classic and share"),
        pytest.param({}, {"gpu-fraction": "NaN"}, id="kai NaN"),
        pytest.param({}, {"gpu-fraction": "-0.5"}, id="kai negative"),
        pytest.param({}, {"gpu-fraction": "1.5"}, id="kai beyond one"),
        pytest.param({}, {"gpu-fraction": ""}, id="kai empty"),
        pytest.param({}, {"gpu-memory": "1e400"}, id="kai huge"),
        pytest.param({}, {"gpu-memory": "lots\x00"}, id="kai control character"),
        pytest.param({GPU: "1"}, {labels.GPU_MODELS: "=3"}, id="model without a name"),
        pytest.param({GPU: "1"}, {labels.GPU_MODELS: "A100=99999999999999999999"}, id="model with an absurd count"),
        pytest.param({"nvidia.com/gpumem-percentage": "101"}, {}, id="hami beyond the card"),
    ],
)
async def test_what_cannot_be_read_is_held_with_the_reason_and_never_placed(
    quay: Quay, requests: dict[str, str], annotations: dict[str, str]
) -> None:
    await quay.add_pod("odd", requests, annotations=annotations)
    assert (await quay.says("odd", "Malformed")).startswith("cannot be read: ")
    assert gates_of(await quay.pod("odd")) == [labels.PLAN_GATE]
    # The event follows the condition, in a write of its own.
    events = await eventually(lambda: quay.events("odd"), what="the event is recorded")
    assert [event["reason"] for event in events] == ["Malformed"]


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param({MILLI: "1e3"}, id="exponent"),
        pytest.param({MILLI: "1k"}, id="suffix"),
        pytest.param({"cpu": "1e-1", MILLI: "10"}, id="small exponent"),
        pytest.param({"memory": "1.5Gi", MILLI: "10"}, id="binary fraction"),
        pytest.param({"memory": "123456789123m", MILLI: "10"}, id="thousandths of bytes"),
    ],
)
async def test_odd_but_sound_quantities_are_placed(quay: Quay, requests: dict[str, str]) -> None:
    quay.pool = "shown"
    await quay.add_pod("odd", requests)
    await quay.bound("odd")
    await sound(quay)


async def test_a_malformed_pod_is_planned_as_soon_as_it_is_mended(quay: Quay) -> None:
    await quay.add_pod("odd", {MILLI: "10"}, annotations={labels.GPU_MODELS: "=3"})
    await quay.says("odd", "Malformed")
    await quay.patch_pod("odd", {"metadata": {"annotations": {labels.GPU_MODELS: "G2"}}})
    await quay.bound("odd", within_s=5.0)


async def test_nobody_but_the_planner_writes_records(quay: Quay) -> None:
    with pytest.raises(ApiError, match="only the planner"):
        await quay.add_pod("forged", {MILLI: "10"}, annotations={labels.DEVICES: "0"})


# -- names and nodes that come again ---------------------------------------------------------------------------


async def test_a_reused_statefulset_name_is_another_pod_and_waits_for_the_old_ones_devices(quay: Quay) -> None:
    """llm-0 with a finalizer goes slowly: while it is there its device is held, and the name is not free either."""
    quay.pool = "room"
    template = quay.pod_json("any", {GPU: "1"})
    template["metadata"] = {"labels": {"app": "llm"}, "finalizers": ["tests.berthmaster.dev/slow"]}
    stateful = {
        "metadata": {"name": "llm"},
        "spec": {
            "replicas": 1,
            "serviceName": "llm",
            "selector": {"matchLabels": {"app": "llm"}},
            "template": template,
        },
    }
    await quay.create(f"/apis/apps/v1/namespaces/{quay.namespace}/statefulsets", stateful)
    first = await quay.bound("llm-0")
    await quay.add_pod("rival", {GPU: "1"})
    await quay.says("rival", "Insufficient")
    await quay.delete_pod("llm-0")
    await never(lambda: quay.pod("rival"), node_of, for_s=1.0, what="the device is still held")
    await quay.patch_pod("llm-0", [{"op": "remove", "path": "/metadata/finalizers"}])
    second = await eventually(
        lambda: quay.pod("llm-0"),
        lambda pod: pod and pod["metadata"]["uid"] != first["metadata"]["uid"],
        what="the name is used again",
    )
    bound = await quay.all_bound(1, within_s=5.0)
    (winner,) = [pod["metadata"]["name"] for pod in bound if node_of(pod)]
    (loser,) = {"llm-0", "rival"} - {winner}
    await quay.says(loser, "Insufficient")
    assert note(await quay.pod(loser), labels.DEVICES) == ""
    await sound(quay)
    if winner == "rival":
        await quay.delete_pod("rival")
        third = await quay.bound("llm-0")
        assert third["metadata"]["uid"] == second["metadata"]["uid"]
        assert note(third, labels.DEVICES) == "0"


async def test_a_pinned_pod_whose_node_vanished_is_made_anew_elsewhere(quay: Quay, harbour: Cluster) -> None:
    """kube-scheduler stands still, so that the pod is pinned and not bound when its node is deleted."""
    quay.pool = "repair"
    template = quay.pod_json("any", {GPU: "2"})
    template["metadata"] = {"labels": {"app": "llm"}}
    replicas = {
        "metadata": {"name": "llm"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "llm"}}, "template": template},
    }
    harbour.kill("kube-scheduler", signal.SIGSTOP)
    try:
        await quay.create(f"/apis/apps/v1/namespaces/{quay.namespace}/replicasets", replicas)
        (first,) = await eventually(quay.pods, lambda pods: bool(pods) and bool(pins(pods[0])), what="it is pinned")
        ((node,),) = pins(first)
        await quay.client.delete(paths.node(node))
        (second,) = await eventually(
            quay.pods,
            lambda pods: len(pods) == 1 and pods[0]["metadata"]["uid"] != first["metadata"]["uid"],
            what="it was deleted and made anew",
        )
    finally:
        harbour.kill("kube-scheduler", signal.SIGCONT)
    placed = await quay.bound(second["metadata"]["name"])
    assert node_of(placed) != node
    await eventually(
        lambda: quay.events(first["metadata"]["name"]),
        lambda events: "PinnedNodeGone" in [event["reason"] for event in events],
        what="the event is recorded",
    )
