"""Patches, applied to the object they were made from and to what it became meanwhile."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpack.ledger import Ledger
from fleet import labels
from fleet.constraints import Toleration
from fleet.errors import DecodeError
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from fleet.kube.patches import (
    candidates_patch,
    condition_patch,
    notes_patch,
    pin_patch,
    seat_patch,
    ungate_patch,
    unseat_patch,
)
from fleet.pod import Berth, Pod
from tests.support.json_patch import PatchFailed, apply

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMES = st.sampled_from(["a", "b", "x/y", "p~q", labels.DEVICES])
EXPRESSIONS = st.lists(
    st.fixed_dictionaries({"key": NAMES, "operator": st.just("In"), "values": st.just(["v"])}), min_size=1, max_size=2
)
FIELDS = st.lists(
    st.just({"key": "metadata.name", "operator": "NotIn", "values": ["bad-node"]}), min_size=1, max_size=2
)
TERMS = st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": EXPRESSIONS, "matchFields": FIELDS}), min_size=1, max_size=3
)
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
AFFINITY = st.one_of(
    st.just({}),
    st.just({"podAntiAffinity": {}}),
    st.just({"nodeAffinity": PREFERRED}),
    TERMS.map(lambda terms: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, **PREFERRED}}),
)
GATES = st.integers(0, 2).flatmap(
    lambda at: st.just([f"other.io/{i}" for i in range(2)]).map(
        lambda names: [*names[:at], labels.PLAN_GATE, *names[at:]]
    )
)
PODS = st.builds(
    lambda gates, meta, spec: {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-1", **meta},
        "spec": {"schedulingGates": [{"name": g} for g in gates], "containers": [{"name": "c"}], **spec},
    },
    GATES,
    st.fixed_dictionaries({}, optional={"annotations": st.dictionaries(NAMES, st.just("1"))}),
    st.fixed_dictionaries(
        {}, optional={"affinity": AFFINITY, "tolerations": st.just([{"key": "k", "operator": "Exists"}])}
    ),
)
BERTH = Berth(node="node-7", devices=("0", "3"))


def read(obj) -> Pod:
    return pod_from(msgspec.convert(obj, PodObject))


def terms_of(obj):
    return obj["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def has_only_empty_terms(obj):
    terms = obj["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms")
    return terms is not None and not any(terms)


@given(obj=PODS.filter(lambda obj: not has_only_empty_terms(obj)))
def test_a_pin_names_the_node_in_every_term_and_touches_nothing_else(obj):
    toleration = Toleration(key="pool", value="warm", effect="NoSchedule")
    after = apply(obj, pin_patch(read(obj), BERTH, annotations={"x/y": "new"}, tolerations=[toleration]))
    pod = read(after)
    assert labels.PLAN_GATE not in pod.gates
    assert pod.gates == tuple(g for g in read(obj).gates if g != labels.PLAN_GATE)
    assert pod.devices == BERTH.devices
    assert toleration in pod.constraints.tolerations
    assert set(read(obj).constraints.tolerations) <= set(pod.constraints.tolerations)
    wanted = {**obj["metadata"].get("annotations", {}), "x/y": "new", labels.DEVICES: "0,3"}
    wanted[labels.PINNED] = "node-7"
    assert pod.is_pin_ours
    assert after["metadata"]["annotations"] == wanted
    pin = {"key": "metadata.name", "operator": "In", "values": ["node-7"]}
    for term in terms_of(after):
        assert not term or term["matchFields"][-1] == pin
    if read(obj).affinity_depth == 3:
        for before, term in zip(terms_of(obj), terms_of(after), strict=True):
            assert term.get("matchExpressions") == before.get("matchExpressions")
            assert (term.get("matchFields") or [None])[:-1] == before.get("matchFields", [])
    if not any(not term for term in terms_of(after)):
        assert pod.pinned_node == "node-7"
    if "affinity" in obj["spec"]:
        assert after["spec"]["affinity"].get("podAntiAffinity") == obj["spec"]["affinity"].get("podAntiAffinity")


UPDATED = {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {}}}


@pytest.mark.parametrize(
    ("managers", "kept"),
    [
        (None, [{}]),
        ([UPDATED], [{}]),
        ([UPDATED, UPDATED | {"operation": "Apply"}], [UPDATED, UPDATED | {"operation": "Apply"}]),
    ],
)
def test_a_pin_ends_the_record_of_managers_unless_somebody_applied_the_pod(managers, kept):
    meta = {"name": "p", "uid": "u-1"} | ({"managedFields": managers} if managers else {})
    obj = {"metadata": meta, "spec": {"schedulingGates": [{"name": labels.PLAN_GATE}]}}
    assert apply(obj, pin_patch(read(obj), BERTH))["metadata"]["managedFields"] == kept


@given(obj=PODS)
def test_other_patches_change_only_what_they_say(obj):
    candidates = (Berth(node="n1", devices=("1",)), Berth(node="n2"))
    steered = apply(obj, candidates_patch(read(obj), candidates))
    assert read(steered).candidates == candidates
    assert steered["spec"].get("affinity") == obj["spec"].get("affinity")
    released = apply(obj, ungate_patch(read(obj)))
    assert released["metadata"] == obj["metadata"]
    for after in (steered, released):
        assert [g["name"] for g in after["spec"]["schedulingGates"]] == [
            g["name"] for g in obj["spec"]["schedulingGates"] if g["name"] != labels.PLAN_GATE
        ]


def _replaced(obj):
    obj["metadata"]["uid"] = "u-2"


def _ungated_before(obj):
    obj["spec"]["schedulingGates"] = obj["spec"]["schedulingGates"][1:]


def _annotated_meanwhile(obj):
    obj["metadata"]["annotations"] = {"theirs": "kept"}


PLAIN = {
    "metadata": {"name": "p", "uid": "u-1"},
    "spec": {"schedulingGates": [{"name": labels.PLAN_GATE}], "containers": []},
}


@pytest.mark.parametrize("change", [_replaced, _ungated_before, _annotated_meanwhile])
def test_a_pod_that_changed_meanwhile_is_left_alone(change):
    changed = copy.deepcopy(PLAIN)
    change(changed)
    with pytest.raises(PatchFailed):
        apply(changed, pin_patch(read(PLAIN), BERTH))


def test_tolerations_that_somebody_added_meanwhile_are_kept():
    changed = copy.deepcopy(PLAIN)
    changed["spec"]["tolerations"] = [{"key": "theirs"}]
    with pytest.raises(PatchFailed):
        apply(changed, pin_patch(read(PLAIN), BERTH, tolerations=[Toleration(key="ours")]))


def test_no_devices_no_record_of_devices():
    after = apply(PLAIN, pin_patch(read(PLAIN), Berth(node="n")))
    assert after["metadata"]["annotations"] == {labels.PINNED: "n"}


def test_a_pin_that_somebody_else_wrote_is_not_ours():
    after = apply(PLAIN, pin_patch(read(PLAIN), Berth(node="n")))
    del after["metadata"]["annotations"][labels.PINNED]
    assert (read(after).pinned_node, read(after).is_pin_ours) == ("n", False)
    after["metadata"]["annotations"][labels.PINNED] = "elsewhere"
    assert not read(after).is_pin_ours


def test_a_pod_without_our_gate_gets_no_patch():
    pod = Pod(uid="u", name="p", gates=("other.io/x",))
    for make in (ungate_patch, lambda p: pin_patch(p, BERTH), lambda p: candidates_patch(p, [BERTH])):
        with pytest.raises(DecodeError, match="default/p does not carry the gate"):
            make(pod)


@pytest.mark.parametrize("terms", [[], [{}], [{}, {}]])
def test_an_affinity_that_matches_no_node_is_never_pinned(terms):
    obj = copy.deepcopy(PLAIN)
    obj["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    with pytest.raises(DecodeError, match="matches no node"):
        pin_patch(read(obj), BERTH)


@pytest.mark.parametrize("annotations", [None, {"a/b": "kept"}])
def test_notes_are_set_once_and_never_over_those_of_another(annotations):
    obj = copy.deepcopy(PLAIN)
    obj["metadata"].pop("annotations", None)
    if annotations:
        obj["metadata"]["annotations"] = annotations
    patch = notes_patch(read(obj), {"x/y": "1"}, absent=["x/y"])
    after = apply(obj, patch)
    assert after["metadata"]["annotations"] == {**(annotations or {}), "x/y": "1"}
    with pytest.raises(PatchFailed):
        apply(after, patch)
    with pytest.raises(PatchFailed):
        apply({**obj, "metadata": {**obj["metadata"], "uid": "another"}}, patch)


def test_a_condition_says_what_it_is_given():
    patch = json.loads(
        condition_patch(
            "berthmaster.dev/Waiting", status=False, reason="Placed", message="m", at="2026-01-01T00:00:00Z"
        )
    )
    assert patch["status"]["conditions"] == [
        {
            "type": "berthmaster.dev/Waiting",
            "status": "False",
            "reason": "Placed",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]


@pytest.mark.parametrize("annotations", [None, {"x/y": "1"}])
def test_a_seat_can_be_written_again_after_it_was_taken_back(annotations):
    gated = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-1"},
        "spec": {"schedulingGates": [{"name": labels.PLAN_GATE}], "containers": [{"name": "c"}]},
    }
    if annotations:
        gated["metadata"]["annotations"] = annotations
    ledger, obj, other = Ledger(), gated, replace(BERTH, node="node-8")
    pod = read(obj)
    ledger.set_pod(pod)
    for seat in (BERTH, other):
        obj = apply(obj, seat_patch(pod, seat))
        pod = ledger.wrote_seat(pod, seat)
        assert read(obj).seat == pod.seat == seat
        obj = _stored(apply(obj, unseat_patch(pod)))
        ledger.set_pod(read(obj))
        pod = ledger.wrote_seat(pod, None)
    assert obj == gated


def _stored(obj):
    """Return an object as the API server keeps it: without annotations where there are none left."""
    if not obj["metadata"].get("annotations", True):
        del obj["metadata"]["annotations"]
    return obj
