"""What drivers and administrators say of devices: ResourceSlices and DeviceTaintRules to the values of fleet/dra.py.

Nothing that cannot be read becomes zero or absent: such a slice says so and closes its pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fleet import quantity
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import (
    AttributeValue,
    Capacity,
    Counters,
    DeviceSlice,
    DeviceTaint,
    PoolDevice,
    RequestPolicy,
    TaintRule,
    Version,
    Where,
)
from fleet.errors import QuantityError
from fleet.kube.dra_objects import (
    DeviceTaintRuleObject,
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


def amounts(quantities: Quantities | None) -> tuple[tuple[str, int], ...]:
    """Return (name, amount) of quantities, sorted.

    Raises:
        QuantityError: One of them cannot be read.
    """
    return tuple((name, _nano(value)) for name, value in sorted((quantities or {}).items()))


def _maybe(value: str | int | float | None) -> int | None:
    return None if value is None else _nano(value)


def _nano(value: str | int | float | None) -> int:
    if value is None:
        raise QuantityError("an amount is missing")
    return quantity.nano(str(value))


def _taint(obj: TaintObject) -> DeviceTaint:
    return DeviceTaint(key=obj.key, value=obj.value or "", effect=obj.effect or "")


def _where(node: str, selector: NodeSelectorObject | None, everywhere: bool | None) -> Where | None:
    if node:
        return Where(node=node)
    if everywhere:
        return Where(is_everywhere=True)
    return Where(terms=node_terms(selector)) if selector is not None else None


@lru_cache(maxsize=16384)
def node_terms(selector: NodeSelectorObject | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector, None = there is none."""
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
