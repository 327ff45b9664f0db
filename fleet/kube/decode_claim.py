"""ResourceClaims and DeviceClasses to the values of fleet/dra.py.

Nothing that cannot be read becomes zero or absent: such a claim says so and is planned for nobody, and what it has
stays held.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleet.dra import (
    Allocation,
    Config,
    DeviceClass,
    DeviceConstraint,
    DeviceDemand,
    DeviceOption,
    DeviceRequest,
    DeviceResult,
    DeviceToleration,
    Reserver,
    ResourceClaim,
)
from fleet.errors import QuantityError
from fleet.kube.decode_dra import amounts, node_terms
from fleet.kube.dra_objects import (
    AllocationObject,
    ConfigObject,
    DeviceClassObject,
    DeviceTolerationObject,
    OptionObject,
    RequestObject,
    ResourceClaimObject,
    ResultObject,
    SelectorObject,
)


def class_from(obj: DeviceClassObject) -> DeviceClass:
    """Return the device class."""
    return DeviceClass(
        name=obj.metadata.name,
        selectors=_selectors(obj.spec.selectors),
        config=_configs(obj.spec.config),
        extended_resource=obj.spec.extended_resource_name or "",
    )


def claim_from(obj: ResourceClaimObject) -> ResourceClaim:
    """Return the claim; what cannot be read stands in `problem`, what is not modelled in `unmodelled`."""
    meta, devices, status = obj.metadata, obj.spec.devices, obj.status
    problem, demand, allocation = "", DeviceDemand(), None
    try:
        if devices is not None:
            demand = DeviceDemand(
                requests=tuple(_request(one) for one in devices.requests or ()),
                constraints=tuple(
                    DeviceConstraint(
                        attribute=one.match_attribute or one.distinct_attribute or "",
                        is_distinct=not one.match_attribute,
                        requests=one.requests or (),
                    )
                    for one in devices.constraints or ()
                ),
                configs=_configs(devices.config),
            )
        if status is not None and status.allocation is not None:
            allocation = _allocation(status.allocation)
    except QuantityError as error:
        problem = str(error)
        if status is not None and status.allocation is not None:
            allocation = _allocation(status.allocation, is_exact=False)
    return ResourceClaim(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        demand=demand,
        allocation=allocation,
        reserved_for=tuple(
            Reserver(uid=one.uid, name=one.name, resource=one.resource, group=one.api_group or "")
            for one in (status.reserved_for if status is not None else None) or ()
        ),
        finalizers=tuple(meta.finalizers or ()),
        is_terminating=meta.deletion_timestamp is not None,
        unmodelled=_unmodelled(devices.requests or ()) if devices is not None else "",
        problem=problem,
    )


def _request(obj: RequestObject) -> DeviceRequest:
    if obj.exactly is not None:
        return DeviceRequest(name=obj.name, options=(_option(obj.exactly, name=""),))
    return DeviceRequest(name=obj.name, options=tuple(_option(one, name=one.name) for one in obj.first_available or ()))


def _option(obj: OptionObject, *, name: str) -> DeviceOption:
    wanted = obj.capacity.requests if obj.capacity is not None else None
    return DeviceOption(
        name=name,
        class_name=obj.device_class_name,
        selectors=_selectors(obj.selectors),
        count=0 if obj.allocation_mode == "All" else (1 if obj.count is None else obj.count),
        is_admin=bool(obj.admin_access),
        capacity=amounts(wanted),
        tolerations=_tolerations(obj.tolerations),
    )


def _unmodelled(requests: Iterable[RequestObject]) -> str:
    """Name what a later version of the API may ask and this one does not know."""
    for request in requests:
        options = [request.exactly] if request.exactly is not None else request.first_available or []
        if not options:
            return f"request {request.name} is of an unknown kind"
        for option in options:
            if option.derived_attributes:
                return f"request {request.name} has derived attributes"
            if option.allocation_mode not in (None, "", "ExactCount", "All"):
                return f"request {request.name} has allocation mode {option.allocation_mode}"
            if any(selector.cel is None for selector in option.selectors or ()):
                return f"request {request.name} has a selector that is not CEL"
    return ""


def _allocation(obj: AllocationObject, *, is_exact: bool = True) -> Allocation:
    results = obj.devices.results if obj.devices is not None else None
    return Allocation(
        results=tuple(_result(one, is_exact=is_exact) for one in results or ()),
        terms=node_terms(obj.node_selector),
    )


def _result(obj: ResultObject, *, is_exact: bool) -> DeviceResult:
    return DeviceResult(
        request=obj.request,
        driver=obj.driver,
        pool=obj.pool,
        device=obj.device,
        is_admin=bool(obj.admin_access),
        share_id=obj.share_id or "",
        consumed=amounts(obj.consumed_capacity) if is_exact else (),
    )


def _tolerations(objects: Iterable[DeviceTolerationObject] | None) -> tuple[DeviceToleration, ...]:
    return tuple(
        DeviceToleration(
            key=one.key or "",
            operator=one.operator or "Equal",
            value=one.value or "",
            effect=one.effect or "",
            seconds=one.toleration_seconds,
        )
        for one in objects or ()
    )


def _selectors(objects: Iterable[SelectorObject] | None) -> tuple[str, ...]:
    return tuple(one.cel.expression for one in objects or () if one.cel is not None)


def _configs(objects: Iterable[ConfigObject] | None) -> tuple[Config, ...]:
    return tuple(
        Config(opaque=bytes(one.opaque), requests=one.requests or ()) for one in objects or () if bytes(one.opaque)
    )
