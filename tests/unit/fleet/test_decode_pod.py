from __future__ import annotations

from typing import Any

import pytest

from fleet import labels
from fleet.constraints import NodeTerm, Requirement, Toleration
from fleet.kube.decode import pod_from
from fleet.pod import Berth, Owner, Phase, Pod
from tests.support.builders import pod_json, pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def read(**words: Any) -> Pod:
    return pod_from(pod_object(pod_json(**words)))


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def named(*names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


def test_an_empty_object_is_a_pod() -> None:
    pod = pod_from(pod_object({}))
    assert (pod.uid, pod.phase, pod.scheduler_name, pod.requests.pod_slots) == (
        "",
        Phase.PENDING,
        "default-scheduler",
        1,
    )
    assert not pod.problems


def test_nulls_read_as_absent() -> None:
    nulls = {"containers": None, "initContainers": None, "nodeName": None, "affinity": None, "tolerations": None}
    obj = {"metadata": {"creationTimestamp": None, "labels": None, "annotations": None}, "spec": nulls, "status": {}}
    assert not pod_from(pod_object(obj)).problems


def test_identity_and_state() -> None:
    meta = {
        "uid": "u",
        "labels": {"app": "a"},
        "creationTimestamp": "2026-01-01T00:00:30Z",
        "deletionTimestamp": "2026-01-01T00:01:00Z",
        "ownerReferences": [
            {"kind": "Helper", "name": "h", "uid": "h"},
            {"kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": True},
        ],
    }
    pod = read(node="n1", phase="Running", metadata=meta, priority=7, schedulerName="other")
    assert (pod.key, pod.uid, pod.resource_version) == ("default/p1", "u", "1")
    assert (pod.node_name, pod.phase, pod.is_terminating, pod.priority) == ("n1", Phase.RUNNING, True, 7)
    assert (pod.created_at_s, pod.scheduler_name) == (1767225630.0, "other")
    assert pod.owner == Owner(kind="ReplicaSet", name="rs", uid="r")
    assert dict(pod.labels) == {"app": "a"}


@pytest.mark.parametrize("text", ["yesterday", "", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_the_oldest(text: str) -> None:
    assert read(metadata={"creationTimestamp": text}).created_at_s == 0.0


def test_an_unknown_phase_is_live() -> None:
    assert read(phase="Meditating").phase is Phase.UNKNOWN
    assert read(phase="Meditating").is_live
    assert not read(phase="Failed").is_live


def test_gates_keep_their_order() -> None:
    gates = [{"name": "other/gate"}, {"name": labels.PLAN_GATE}]
    assert read(schedulingGates=gates).gates == ("other/gate", labels.PLAN_GATE)


def test_unschedulable_is_what_the_scheduler_said_of_an_unbound_pod() -> None:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    for condition, node, expected in ((refused, None, True), (gated, None, False), (refused, "n1", False)):
        obj = pod_json(node=node)
        obj["status"]["conditions"] = [{"type": "Ready", "status": "False"}, condition]
        assert pod_from(pod_object(obj)).is_unschedulable is expected


def test_constraints_are_read_whole_and_shared_by_equal_pods() -> None:
    words: dict[str, Any] = {
        "nodeSelector": {"b": "2", "a": "1"},
        "affinity": affinity({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}),
        "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
    }
    constraints = read(**words).constraints
    assert constraints.node_selector == (("a", "1"), ("b", "2"))
    assert constraints.terms == (NodeTerm(labels=(Requirement(key="zone", operator="Exists"),)),)
    assert constraints.tolerations == (
        Toleration(operator="Exists"),
        Toleration(key="k", value="v", effect="NoSchedule"),
    )
    assert read(name="p2", **words).constraints is constraints


@pytest.mark.parametrize(
    ("terms", "pinned"),
    [
        ((named("n1"),), "n1"),
        ((named("n1"), named("n1") | {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), "n1"),
        ((named("n1"), named("n2")), ""),
        ((named("n1"), {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), ""),
        ((named("n1"), {}), "n1"),
        ((named("n1", "n2"),), ""),
        (({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},), ""),
        (({"matchExpressions": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},), ""),
        (({"matchExpressions": [{"key": labels.HOSTNAME, "operator": "In", "values": ["n1"]}]},), ""),
        ((), ""),
    ],
)
def test_a_pin_is_one_name_in_every_term(terms: tuple[dict[str, Any], ...], pinned: str) -> None:
    assert read(affinity=affinity(*terms)).pinned_node == pinned


@pytest.mark.parametrize(
    ("spec", "depth"),
    [({}, 0), ({"affinity": {}}, 1), ({"affinity": {"nodeAffinity": {}}}, 2), ({"affinity": affinity(named("n"))}, 3)],
)
def test_the_depth_of_the_affinity_is_known(spec: dict[str, Any], depth: int) -> None:
    assert read(**spec).affinity_depth == depth


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({"workloadRef": {"name": "w"}}, "gang"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}]},
            "hard topology spread with minDomains",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}}},
            labels.NAMESPACE_SELECTORS,
        ),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, "volume claims"),
        ({"volumes": [{"ephemeral": {}}]}, "volume claims"),
        ({"volumes": [{"rbd": {}}]}, "disk volumes"),
    ],
)
def test_what_is_not_modelled_is_named(words: dict[str, Any], name: str) -> None:
    (found,) = read(**words).unmodelled
    assert found.startswith(name)


def test_what_is_modelled_and_harmless_volumes_are_no_obstacle() -> None:
    pod = read(
        affinity={
            "podAffinity": {REQUIRED: [{"topologyKey": "zone", "namespaceSelector": {}}]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}], REQUIRED: []},
        },
        topologySpreadConstraints=[
            {"whenUnsatisfiable": "ScheduleAnyway"},
            {"whenUnsatisfiable": "DoNotSchedule"},
            {"whenUnsatisfiable": "DoNotSchedule", "minDomains": 3, "nodeAffinityPolicy": "Ignore"},
        ],
        volumes=[{"emptyDir": {}}, {"projected": {"sources": []}}, {"configMap": {"name": "c"}}],
        containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
        resourceClaims=[],
    )
    assert pod.unmodelled == ()


def test_records_are_parsed() -> None:
    pod = read(annotations={labels.DEVICES: "0,3", labels.CANDIDATES: "n1=0;n2=1,2;n3"})
    assert pod.devices == ("0", "3")
    assert pod.candidates == (
        Berth(node="n1", devices=("0",)),
        Berth(node="n2", devices=("1", "2")),
        Berth(node="n3"),
    )
    assert pod.has_annotations


@pytest.mark.parametrize("annotation", [{labels.DEVICES: "0,,1"}, {labels.DEVICES: ""}, {labels.CANDIDATES: "n1=0=1"}])
def test_a_record_that_cannot_be_read_is_no_record_and_a_problem(annotation: dict[str, str]) -> None:
    pod = read(annotations=annotation, requests={labels.GPU: "1"})
    assert (pod.devices, pod.candidates) == (None, ())
    assert pod.record_problem
    assert pod.problems == (pod.record_problem,)
    assert pod.ask is not None, "what it asks can still be read"


def test_absent_annotations_are_told_from_empty_ones() -> None:
    assert not read(annotations=None).has_annotations
    assert read(annotations={}).has_annotations
