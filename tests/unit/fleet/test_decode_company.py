"""What a v1 Pod says about other pods, read field by field; and back from values written as JSON."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fleet.company import Guest, HostPort, PodTerm, Selector, Spread
from fleet.constraints import NodeTerm, Requirement
from fleet.kube.decode import pod_from
from fleet.pod import Pod
from tests.support.builders import pod_json, pod_object
from tests.support.company import a_guest
from tests.support.company_json import guest_json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = Selector(requirements=(Requirement(key="app", operator="In", values=("web",)),))


def read(metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    return pod_from(pod_object(pod_json("p", metadata=metadata or {}, **spec)))


def owner(kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": "o", "uid": "uid-o", "controller": True}]}


@pytest.mark.parametrize("seed", range(60))
def test_a_guest_written_as_json_is_read_back_equal(seed: int) -> None:
    guest = a_guest(Random(seed), 1.0)
    own, spec, container = guest_json(guest)
    found = read({"labels": own, "namespace": guest.namespace}, containers=[{"name": "c", **container}], **spec).guest
    # Two things cannot be written: an empty list of namespaces without a selector, and minDomains of a soft constraint.
    assert (found.labels, found.affinity, found.anti) == (guest.labels, guest.affinity, guest.anti)
    assert (found.preferred, found.repulsed) == (guest.preferred, guest.repulsed)
    assert set(found.ports) == set(guest.ports)
    assert [(s.key, s.max_skew, s.is_hard, s.selector) for s in found.spreads] == [
        (s.key, s.max_skew, s.is_hard, s.selector) for s in guest.spreads
    ]


def test_a_spread_has_the_defaults_of_the_api() -> None:
    hard = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    (spread,) = read(topologySpreadConstraints=[hard]).guest.spreads
    assert spread == Spread(key="zone", max_skew=2, is_hard=True, selector=None)
    assert spread.honors_affinity
    assert not spread.honors_taints
    assert spread.min_domains == 1


def test_label_keys_of_a_spread_select_the_pods_own_values_and_missing_ones_nothing() -> None:
    spread = {
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash", "absent"],
    }
    (found,) = read({"labels": {"pod-template-hash": "1f"}}, topologySpreadConstraints=[spread]).guest.spreads
    own = Requirement(key="pod-template-hash", operator="In", values=("1f",))
    assert found.selector == Selector(requirements=(*WEB.requirements, own))


def test_label_keys_add_nothing_twice_where_the_api_has_merged_them() -> None:
    spread = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [_in("hash", "1f")]},
        "matchLabelKeys": ["hash"],
    }
    (found,) = read({"labels": {"hash": "1f"}}, topologySpreadConstraints=[spread]).guest.spreads
    assert found.selector is not None
    assert len(found.selector.requirements) == 2


def test_a_term_without_namespaces_means_the_pods_own() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    pod = read({"namespace": "team"}, affinity={"podAntiAffinity": {REQUIRED: [term]}})
    assert pod.guest.anti == (PodTerm(key="zone", selector=WEB, namespaces=("team",)),)


def test_a_term_with_a_namespace_selector_means_those_alone() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
    pod = read(affinity={"podAffinity": {REQUIRED: [term]}})
    assert pod.guest.affinity == (PodTerm(key="zone", selector=Selector(), namespace_selector=Selector()),)


def test_ports_are_those_of_containers_and_sidecars() -> None:
    pod = read(
        containers=[{"name": "c", "ports": [{"hostPort": 80, "hostIP": "0.0.0.0"}, {"containerPort": 9}]}],
        initContainers=[
            {"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "::1"}]},
            {"name": "i", "ports": [{"hostPort": 81}]},
        ],
    )
    assert pod.guest.ports == (HostPort(port=53, protocol="UDP", ip="::1"), HostPort(port=80))


@pytest.mark.parametrize(
    ("kind", "uid"), [("ReplicaSet", "uid-o"), ("StatefulSet", "uid-o"), ("Job", ""), ("DaemonSet", "")]
)
def test_replicas_are_pods_of_sets(kind: str, uid: str) -> None:
    assert read(owner(kind)).guest.owner == uid


def test_a_pod_that_is_going_says_so() -> None:
    assert read({"deletionTimestamp": "2026-01-01T00:00:00Z"}).guest.is_leaving


def test_pods_of_one_template_are_one_guest() -> None:
    spec = guest_json(Guest(labels=(("app", "web"),), spreads=(Spread(key="zone", selector=WEB),)))[1]
    first, second = (read({"labels": {"app": "web"}}, **spec).guest for _ in range(2))
    assert first is second


def test_preferred_nodes_are_read_and_empty_preferences_are_none() -> None:
    wishes = [{"weight": 7, "preference": {"matchExpressions": [_in("zone", "a")]}}, {"weight": 9, "preference": {}}]
    zone = NodeTerm(labels=(Requirement(key="zone", operator="In", values=("a",)),))
    assert read(affinity={"nodeAffinity": {PREFERRED: wishes}}).preferred_nodes == ((7, zone),)


def test_claims_are_named_by_the_volume_or_made_of_pod_and_volume() -> None:
    volumes = [{"name": "v", "ephemeral": {}}, {"name": "w", "persistentVolumeClaim": {"claimName": "data"}}]
    gated = read(volumes=volumes, schedulingGates=[{"name": "g"}])
    assert gated.claims == ("data", "p-v")
    assert read(volumes=volumes).claims == ()


def _in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
