"""Slices, classes, rules and claims: nothing unreadable becomes zero or absent, and what is written reads back."""

from __future__ import annotations

import json

import msgspec
import pytest

from fleet.constraints import NodeTerm, Requirement
from fleet.dra import (
    Allocation,
    Capacity,
    Config,
    DeviceResult,
    DeviceTaint,
    DeviceToleration,
    RequestPolicy,
    Reserver,
    TaintRule,
    Version,
    Where,
)
from fleet.kube.claim_patches import (
    allocation_json,
    allocation_patch,
    finalizer_patch,
    release_patch,
    reservation_patch,
)
from fleet.kube.decode_claim import claim_from, class_from
from fleet.kube.decode_dra import slice_from, taint_rule_from
from fleet.kube.decode_pod import pod_from
from fleet.kube.dra_objects import DeviceClassObject, DeviceTaintRuleObject, ResourceClaimObject
from fleet.kube.objects import PodObject, ResourceSliceObject
from fleet.quantity import nano, nano_text

NANO = 10**9


def read(value, kind):
    return msgspec.json.decode(json.dumps(value).encode(), type=kind)


def a_slice(**spec):
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 2}
    return slice_from(
        read({"metadata": {"name": "s"}, "spec": {"driver": "d.io", "pool": pool, **spec}}, ResourceSliceObject)
    )


def a_claim(*requests, status=None, **devices):
    spec = {"devices": {"requests": list(requests), **devices}}
    meta = {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7", "finalizers": ["mine"]}
    return claim_from(read({"metadata": meta, "spec": spec, "status": status}, ResourceClaimObject))


def test_a_device_is_read_whole() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "500m"}}
    device = {
        "name": "g0",
        "attributes": {"n": {"int": 3}, "o.io/b": {"bool": False}, "s": {"string": ""}, "v": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}, "o.io/x": {"value": 2}},
        "consumesCounters": [{"counterSet": "card", "counters": {"b": {"value": "2"}, "a": {"value": "1"}}}],
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
        "allowMultipleAllocations": True,
        "bindsToNode": True,
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["failed"],
    }
    (found,) = a_slice(nodeName="n", devices=[device]).devices
    assert found.attributes == {"d.io/n": 3, "o.io/b": False, "d.io/s": "", "d.io/v": Version(text="1.2.3")}
    assert found.capacity == {
        "memory": Capacity(
            value=40 * 2**30 * NANO,
            policy=RequestPolicy(default=2**30 * NANO, least=2**30 * NANO, most=8 * 2**30 * NANO, step=NANO // 2),
        ),
        "o.io/x": Capacity(value=2 * NANO),
    }
    assert found.uses == (("card", (("a", NANO), ("b", 2 * NANO))),)
    assert found.taints == (DeviceTaint(key="k", value="v", effect="NoExecute"),)
    assert (found.is_multiple, found.binds_to_node, found.where) == (True, True, None)
    assert (found.binding_conditions, found.binding_failure_conditions) == (("ready",), ("failed",))


def test_where_devices_are_reached_is_said_by_slice_or_device() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    assert a_slice(nodeName="n").where == Where(node="n")
    assert a_slice(allNodes=True).where == Where(is_everywhere=True)
    by_labels = a_slice(nodeSelector=selector).where
    assert by_labels is not None
    assert by_labels.reaches("n", {"zone": "a"})
    assert not by_labels.reaches("n", {"zone": "b"})
    each = a_slice(
        perDeviceNodeSelection=True, devices=[{"name": "a", "nodeName": "m"}, {"name": "b", "allNodes": True}]
    )
    assert each.where is None
    assert [device.where for device in each.devices] == [Where(node="m"), Where(is_everywhere=True)]
    assert a_slice().problem


@pytest.mark.parametrize(
    "device",
    [
        {"name": "a", "capacity": {"memory": {"value": "lots"}}},
        {"name": "a", "capacity": {"memory": {}}},
        {"name": "a", "consumesCounters": [{"counterSet": "s", "counters": {"x": {"value": "-1"}}}]},
    ],
)
def test_a_slice_with_an_amount_that_cannot_be_read_says_so(device) -> None:
    found = a_slice(nodeName="n", devices=[device])
    assert found.problem
    assert found.devices == ()
    assert (found.generation, found.slice_count) == (3, 2)


def test_features_of_devices_that_are_not_modelled_close_the_device() -> None:
    mapped = {"name": "a", "nodeAllocatableResources": {"cpu": {}}}
    grouped = {"name": "b", "consumesCounters": [{"counterSet": "s", "counters": {}, "compatibilityGroups": ["g"]}]}
    assert all(device.unknown for device in a_slice(nodeName="n", devices=[mapped, grouped]).devices)


def test_a_claim_is_read_whole() -> None:
    cel = [{"cel": {"expression": "true"}}]
    exactly = {
        "deviceClassName": "c",
        "selectors": cel,
        "count": 2,
        "capacity": {"requests": {"memory": "1Gi"}},
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    }
    listed = [{"name": "x", "deviceClassName": "c"}, {"name": "y", "deviceClassName": "c", "allocationMode": "All"}]
    admin = {"deviceClassName": "c", "adminAccess": True}
    found = a_claim(
        {"name": "a", "exactly": exactly},
        {"name": "b", "firstAvailable": listed},
        {"name": "z", "exactly": admin},
        constraints=[{"requests": ["a"], "matchAttribute": "d.io/n"}, {"distinctAttribute": "d.io/m"}],
        config=[{"requests": ["a"], "opaque": {"driver": "d.io", "parameters": {"k": [1, None]}}}],
    )
    first, second, third = found.demand.requests
    (option,) = first.options
    assert (option.count, option.selectors, option.capacity) == (2, ("true",), (("memory", 2**30 * NANO),))
    assert option.tolerations == (DeviceToleration(key="k", operator="Exists", effect="NoSchedule", seconds=5),)
    assert [(one.name, one.count) for one in second.options] == [("x", 1), ("y", 0)]
    assert second.title(second.options[1]) == "b/y"
    assert third.options[0].is_admin
    assert [(one.attribute, one.is_distinct, one.requests) for one in found.demand.constraints] == [
        ("d.io/n", False, ("a",)),
        ("d.io/m", True, ()),
    ]
    assert json.loads(found.demand.configs[0].opaque) == {"driver": "d.io", "parameters": {"k": [1, None]}}
    assert (found.key, found.finalizers, found.unmodelled, found.problem) == ("ns/c", ("mine",), "", "")


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "a"},
        {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "Later"}},
        {"name": "a", "exactly": {"deviceClassName": "c", "derivedAttributes": [{"name": "x"}]}},
        {"name": "a", "exactly": {"deviceClassName": "c", "selectors": [{"rego": "x"}]}},
    ],
)
def test_what_a_later_api_may_ask_is_not_modelled(request_) -> None:
    assert a_claim(request_).unmodelled


def test_a_claim_with_an_amount_that_cannot_be_read_still_holds_its_devices() -> None:
    asked = {"name": "a", "exactly": {"deviceClassName": "c", "capacity": {"requests": {"m": "lots"}}}}
    result = {"request": "a", "driver": "d", "pool": "p", "device": "x"}
    found = a_claim(asked, status={"allocation": {"devices": {"results": [result]}}})
    assert found.problem
    assert found.allocation is not None
    assert [one.device for one in found.allocation.results] == ["x"]


def test_classes_and_rules_are_read() -> None:
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "x.io/gpu"}
    found = class_from(read({"metadata": {"name": "c"}, "spec": spec}, DeviceClassObject))
    assert (found.selectors, found.extended_resource) == (("true",), "x.io/gpu")
    rule = {"deviceSelector": {"pool": "p"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    one = taint_rule_from(read({"metadata": {"name": "r"}, "spec": rule}, DeviceTaintRuleObject))
    assert one == TaintRule(name="r", taint=DeviceTaint(key="k", effect="NoSchedule"), pool="p")
    assert one.concerns("d", "p", "x")
    assert not one.concerns("d", "q", "x")
    empty = taint_rule_from(read({"metadata": {"name": "r"}, "spec": {"taint": {"key": "k"}}}, DeviceTaintRuleObject))
    assert not empty.concerns("d", "p", "x")


def test_a_pods_claims_are_named_by_spec_or_status() -> None:
    spec = {
        "schedulingGates": [{"name": "berthmaster.dev/plan"}],
        "resourceClaims": [
            {"name": "own", "resourceClaimName": "mine"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "coming", "resourceClaimTemplateName": "t"},
            {"name": "none", "resourceClaimTemplateName": "t"},
        ],
    }
    statuses = [{"name": "made", "resourceClaimName": "p-made-x1"}, {"name": "none"}]
    pod = pod_from(
        read({"metadata": {"name": "p"}, "spec": spec, "status": {"resourceClaimStatuses": statuses}}, PodObject)
    )
    assert [(one.name, one.claim, one.is_none, one.template) for one in pod.resource_claims] == [
        ("own", "mine", False, ""),
        ("made", "p-made-x1", False, "t"),
        ("coming", "", False, "t"),
        ("none", "", True, "t"),
    ]


ALLOCATION = Allocation(
    results=(
        DeviceResult(
            request="a/x",
            driver="d",
            pool="p",
            device="g",
            share_id="8a0cdf4e-5b1a-4c6e-9d57-0f0a3c1f4b11",
            consumed=(("memory", 3 * 2**30 * NANO),),
            tolerations=(DeviceToleration(key="k", operator="Exists", seconds=3),),
            binding_conditions=("ready",),
            binding_failure_conditions=("failed",),
        ),
        DeviceResult(request="b", driver="d", pool="p", device="h", is_admin=True),
    ),
    terms=(NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n",)),)),),
    class_configs=(Config(opaque=b'{"driver":"d"}', requests=("a/x",)),),
    claim_configs=(Config(opaque=b'{"driver":"e"}'),),
)


def test_an_allocation_is_written_as_it_is_read() -> None:
    written = json.loads(msgspec.json.encode(allocation_json(ALLOCATION)))
    assert written["devices"]["config"] == [
        {"source": "FromClass", "requests": ["a/x"], "opaque": {"driver": "d"}},
        {"source": "FromClaim", "opaque": {"driver": "e"}},
    ]
    first, second = written["devices"]["results"]
    assert first["consumedCapacity"] == {"memory": "3Gi"}
    assert first["tolerations"] == [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}]
    assert (first["bindingConditions"], first["bindingFailureConditions"]) == (["ready"], ["failed"])
    assert second == {"request": "b", "driver": "d", "pool": "p", "device": "h", "adminAccess": True}
    back = a_claim(status={"allocation": written}).allocation
    assert back is not None
    assert back.terms == ALLOCATION.terms
    assert [(one.id, one.share_id, one.consumed, one.is_admin) for one in back.results] == [
        (one.id, one.share_id, one.consumed, one.is_admin) for one in ALLOCATION.results
    ]


def test_every_patch_of_a_claim_is_for_the_claim_as_it_was_read() -> None:
    claim = a_claim(status={"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]})
    pod = Reserver(uid="2", name="q")
    patches = [
        finalizer_patch(claim),
        allocation_patch(claim, ALLOCATION, pod, at="2026-01-01T00:00:00Z"),
        reservation_patch(claim, pod),
        release_patch(claim),
    ]
    decoded = [json.loads(patch) for patch in patches]
    for patch in decoded:
        assert patch["metadata"]["uid"] == "u"
        assert patch["metadata"]["resourceVersion"] == "7"
    assert decoded[0]["metadata"]["finalizers"] == ["mine", "resource.kubernetes.io/delete-protection"]
    assert decoded[1]["status"]["allocation"]["allocationTimestamp"] == "2026-01-01T00:00:00Z"
    assert [one["name"] for one in decoded[1]["status"]["reservedFor"]] == ["p", "q"]
    assert [one["name"] for one in decoded[2]["status"]["reservedFor"]] == ["p", "q"]
    assert decoded[3]["status"] == {"allocation": None, "reservedFor": None}


@pytest.mark.parametrize(
    ("text", "again"),
    [("3Gi", "3Gi"), ("1024", "1Ki"), ("500m", "500000000n"), ("7", "7"), ("0", "0"), ("1500Mi", "1500Mi")],
)
def test_amounts_read_back_as_they_were(text, again) -> None:
    assert nano_text(nano(text)) == again
    assert nano(nano_text(nano(text))) == nano(text)
