"""The patches that allocate a resource claim, reserve it for a pod, and take both back. Pure.

Every patch names uid and resourceVersion: a claim that was changed, allocated or replaced meanwhile answers 409. The
API takes an allocation only whole, from none to one or from one to none; with `allocationTimestamp`, or the scheduler's
own write of `reservedFor` would fail for ever; and after the finalizer, so that an allocated claim cannot vanish
(resource.k8s.io/v1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fleet import labels
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import Allocation, Config, DeviceResult, DeviceToleration, Reserver, ResourceClaim
from fleet.quantity import nano_text

_encode = msgspec.json.encode
_FROM_CLASS = "FromClass"
_FROM_CLAIM = "FromClaim"


def finalizer_patch(claim: ResourceClaim) -> bytes:
    """Return the merge patch that adds the finalizer of allocated claims."""
    return _encode({"metadata": {**_guard(claim), "finalizers": [*claim.finalizers, labels.CLAIM_FINALIZER]}})


def allocation_patch(claim: ResourceClaim, allocation: Allocation, *reservers: Reserver, at: str) -> bytes:
    """Return the merge patch of /status that allocates the claim and reserves it.

    Args:
        claim: As it is now.
        allocation: What it is given.
        reservers: The pods that may use it.
        at: RFC 3339 time.
    """
    return _encode(
        {
            "metadata": _guard(claim),
            "status": {
                "allocation": {**allocation_json(allocation), "allocationTimestamp": at},
                "reservedFor": _reservers([*claim.reserved_for, *reservers]),
            },
        }
    )


def reservation_patch(claim: ResourceClaim, *reservers: Reserver) -> bytes:
    """Return the merge patch of /status that lets more pods use an allocated claim."""
    by_all = _reservers([*claim.reserved_for, *reservers])
    return _encode({"metadata": _guard(claim), "status": {"reservedFor": by_all}})


def release_patch(claim: ResourceClaim) -> bytes:
    """Return the merge patch of /status that takes allocation and reservations back."""
    return _encode({"metadata": _guard(claim), "status": {"allocation": None, "reservedFor": None}})


def allocation_json(allocation: Allocation) -> dict[str, Any]:
    """Return the allocation as the API writes it, without a time."""
    configs = [
        {"source": source, **({"requests": list(config.requests)} if config.requests else {}), "opaque": _raw(config)}
        for source, group in ((_FROM_CLASS, allocation.class_configs), (_FROM_CLAIM, allocation.claim_configs))
        for config in group
    ]
    found: dict[str, Any] = {"devices": {"results": [_result(one) for one in allocation.results]}}
    if configs:
        found["devices"]["config"] = configs
    if allocation.terms is not None:
        found["nodeSelector"] = {"nodeSelectorTerms": [_term(term) for term in allocation.terms]}
    return found


def _guard(claim: ResourceClaim) -> dict[str, str]:
    return {"uid": claim.uid, "resourceVersion": claim.resource_version}


def _reservers(reservers: Iterable[Reserver]) -> list[dict[str, str]]:
    return [
        {
            "uid": one.uid,
            "name": one.name,
            "resource": one.resource,
            **({"apiGroup": one.group} if one.group else {}),
        }
        for one in reservers
    ]


def _raw(config: Config) -> msgspec.Raw:
    return msgspec.Raw(config.opaque)


def _result(one: DeviceResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "request": one.request,
        "driver": one.driver,
        "pool": one.pool,
        "device": one.device,
    }
    if one.is_admin:
        found["adminAccess"] = True
    if one.share_id:
        found["shareID"] = one.share_id
    if one.consumed:
        found["consumedCapacity"] = {name: nano_text(amount) for name, amount in one.consumed}
    if one.tolerations:
        found["tolerations"] = [_toleration(toleration) for toleration in one.tolerations]
    if one.binding_conditions:
        found["bindingConditions"] = list(one.binding_conditions)
    if one.binding_failure_conditions:
        found["bindingFailureConditions"] = list(one.binding_failure_conditions)
    return found


def _toleration(one: DeviceToleration) -> dict[str, Any]:
    rows = (("key", one.key), ("operator", one.operator), ("value", one.value), ("effect", one.effect))
    found: dict[str, Any] = {name: text for name, text in rows if text}
    return found if one.seconds is None else {**found, "tolerationSeconds": one.seconds}


def _term(term: NodeTerm) -> dict[str, Any]:
    rows = (("matchExpressions", term.labels), ("matchFields", term.fields))
    return {name: [_requirement(one) for one in requirements] for name, requirements in rows if requirements}


def _requirement(one: Requirement) -> dict[str, Any]:
    found: dict[str, Any] = {"key": one.key, "operator": one.operator}
    return {**found, "values": list(one.values)} if one.values else found
