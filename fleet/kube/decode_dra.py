"""ResourceSlices, DeviceClasses, DeviceTaintRules and ResourceClaims to the values of fleet/dra.py.

Nothing that cannot be read becomes zero or absent: a slice says so and closes its pool, a claim says so and is planned
for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from fleet import quantity
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import (
    Allocation,
    AttributeValue,
    Capacity,
    Config,
    Counters,
    DeviceClass,
    DeviceConstraint,
    DeviceDemand,
    DeviceOption,
    DeviceRequest,
    DeviceResult,
    DeviceSlice,
    DeviceTaint,
    DeviceToleration,
    PoolDevice,
    RequestPolicy,
    Reserver,
    ResourceClaim,
    TaintRule,
    Version,
    Where,
)
from fleet.errors import QuantityError
from fleet.kube.dra_objects import (
    AllocationObject,
    ConfigObject,
    DeviceClassObject,
    DeviceTaintRuleObject,
    DeviceTolerationObject,
    OptionObject,
    RequestObject,
    ResourceClaimObject,
    ResultObject,
    SelectorObject,
)
from fleet.kube.objects import (
    AttributeObject,
    CapacityObject,
    DeviceObject,
    NodeSelectorObject,
    Quantities,
    RequestPolicyObject,
    ResourceSliceObject,
    TaintObject,
)


def slice_from(obj: ResourceSliceObject) -> DeviceSlice:
    """Return the slice; what cannot be read stands in `problem`."""
    spec, name = obj.spec, obj.metadata.name
    where = _where(spec.node_name, spec.node_selector, spec.all_nodes)
    try:
        return DeviceSlice(
            name=name,
            driver=spec.driver,
            pool=spec.pool.name,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            where=where if not spec.per_device_node_selection else None,
            devices=tuple(
                _device(entry, spec.driver, bool(spec.per_device_node_selection)) for entry in spec.devices or ()
            ),
            counter_sets=tuple((one.name, _counters(one.counters)) for one in spec.shared_counters or ()),
            problem="" if where or spec.per_device_node_selection else "it does not say for which nodes it is",
        )
    except QuantityError as error:
        return DeviceSlice(
            name=name,
            driver=spec.driver,
            pool=spec.pool.name,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            where=where,
            problem=str(error),
        )


def class_from(obj: DeviceClassObject) -> DeviceClass:
    """Return the device class."""
    return DeviceClass(
        name=obj.metadata.name,
        selectors=_selectors(obj.spec.selectors),
        config=_configs(obj.spec.config),
        extended_resource=obj.spec.extended_resource_name or "",
    )


def taint_rule_from(obj: DeviceTaintRuleObject) -> TaintRule:
    """Return the rule; without a selector it concerns no device."""
    chosen = obj.spec.device_selector
    return TaintRule(
        name=obj.metadata.name,
        taint=_taint(obj.spec.taint),
        driver=(chosen.driver or "") if chosen else "",
        pool=(chosen.pool or "") if chosen else "",
        device=(chosen.device or "") if chosen else "",
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
        capacity=_amounts(wanted),
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
        terms=_terms(obj.node_selector),
    )


def _result(obj: ResultObject, *, is_exact: bool) -> DeviceResult:
    return DeviceResult(
        request=obj.request,
        driver=obj.driver,
        pool=obj.pool,
        device=obj.device,
        is_admin=bool(obj.admin_access),
        share_id=obj.share_id or "",
        consumed=_amounts(obj.consumed_capacity) if is_exact else (),
    )


def _device(obj: DeviceObject, driver: str, says_where: bool) -> PoolDevice:
    unknown = ""
    if obj.node_allocatable_resources:
        unknown = "it takes of the node's allocatable resources"
    elif any(one.compatibility_groups for one in obj.consumes_counters or ()):
        unknown = "it has compatibility groups"
    return PoolDevice(
        name=obj.name,
        attributes=_attributes(obj.attributes, driver),
        capacity={
            name: Capacity(value=_nano(one.value), policy=_policy(one.request_policy))
            for name, one in (obj.capacity or {}).items()
        },
        uses=tuple((one.counter_set, _counters(one.counters)) for one in obj.consumes_counters or ()),
        taints=tuple(_taint(one) for one in obj.taints or ()),
        is_multiple=bool(obj.allow_multiple_allocations),
        where=_where(obj.node_name or "", obj.node_selector, obj.all_nodes) if says_where else None,
        binds_to_node=bool(obj.binds_to_node),
        binding_conditions=obj.binding_conditions or (),
        binding_failure_conditions=obj.binding_failure_conditions or (),
        unknown=unknown,
    )


def qualified(name: str, driver: str) -> str:
    """Return the fully qualified name of an attribute or capacity: without a domain it is in its driver's."""
    return name if "/" in name else f"{driver}/{name}"


def _attributes(objects: Mapping[str, AttributeObject] | None, driver: str) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for name, obj in (objects or {}).items():
        value: AttributeValue | None = obj.string
        if value is None:
            value = obj.integer
        if value is None:
            value = obj.boolean
        if value is None and obj.version is not None:
            value = Version(text=obj.version)
        if value is not None:
            found[qualified(name, driver)] = value
    return found


def _policy(obj: RequestPolicyObject | None) -> RequestPolicy | None:
    if obj is None:
        return None
    span = obj.valid_range
    return RequestPolicy(
        default=_maybe(obj.default),
        valid_values=tuple(_nano(value) for value in obj.valid_values or ()),
        least=_maybe(span.min) if span is not None else None,
        most=_maybe(span.max) if span is not None else None,
        step=_maybe(span.step) if span is not None else None,
    )


def _counters(objects: Mapping[str, CapacityObject] | None) -> Counters:
    return tuple((name, _nano(one.value)) for name, one in sorted((objects or {}).items()))


def _amounts(amounts: Quantities | None) -> tuple[tuple[str, int], ...]:
    return tuple((name, _nano(value)) for name, value in sorted((amounts or {}).items()))


def _maybe(value: str | int | float | None) -> int | None:
    return None if value is None else _nano(value)


def _nano(value: str | int | float | None) -> int:
    if value is None:
        raise QuantityError("an amount is missing")
    return quantity.nano(str(value))


def _taint(obj: TaintObject) -> DeviceTaint:
    return DeviceTaint(key=obj.key, value=obj.value or "", effect=obj.effect or "")


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


def _where(node: str, selector: NodeSelectorObject | None, everywhere: bool | None) -> Where | None:
    if node:
        return Where(node=node)
    if everywhere:
        return Where(is_everywhere=True)
    return Where(terms=_terms(selector)) if selector is not None else None


@lru_cache(maxsize=16384)
def _terms(selector: NodeSelectorObject | None) -> tuple[NodeTerm, ...] | None:
    if selector is None:
        return None
    return tuple(
        NodeTerm(
            labels=tuple(
                Requirement(key=r.key, operator=r.operator, values=r.values or ()) for r in term.match_expressions or ()
            ),
            fields=tuple(
                Requirement(key=r.key, operator=r.operator, values=r.values or ()) for r in term.match_fields or ()
            ),
        )
        for term in selector.node_selector_terms or ()
    )
