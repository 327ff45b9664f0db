"""The fields of resource claims, device classes and device taint rules that we read (resource.k8s.io/v1).

Opaque parameters of drivers stay JSON text: they are handed on, never understood.
"""

from __future__ import annotations

import msgspec

from fleet.kube.objects import MetaObject, NodeSelectorObject, Object, Present, Quantities, TaintObject


class CelObject(Object):
    """cel of a device selector."""

    expression: str = ""


class SelectorObject(Object):
    """selectors[] of a class or a request."""

    cel: CelObject | None = None


class DeviceTolerationObject(Object):
    """tolerations[] of a request and of a result."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class CapacityRequestObject(Object):
    """capacity of a request."""

    requests: Quantities | None = None


class OptionObject(Object):
    """exactly of a request, and firstAvailable[]."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[SelectorObject] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceTolerationObject] | None = None
    capacity: CapacityRequestObject | None = None
    derived_attributes: list[Present] | None = None


class RequestObject(Object):
    """spec.devices.requests[] of a claim."""

    name: str = ""
    exactly: OptionObject | None = None
    first_available: list[OptionObject] | None = None


class ConstraintObject(Object):
    """spec.devices.constraints[] of a claim."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ConfigObject(Object):
    """config[] of a class, a claim or an allocation."""

    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: msgspec.Raw = msgspec.Raw(b"")


class ClaimDevicesObject(Object):
    """spec.devices of a claim."""

    requests: list[RequestObject] | None = None
    constraints: list[ConstraintObject] | None = None
    config: list[ConfigObject] | None = None


class ClaimSpecObject(Object):
    """spec of a claim."""

    devices: ClaimDevicesObject | None = None


class ResultObject(Object):
    """status.allocation.devices.results[] of a claim."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: Quantities | None = None


class ResultsObject(Object):
    """status.allocation.devices of a claim."""

    results: list[ResultObject] | None = None


class AllocationObject(Object):
    """status.allocation of a claim."""

    devices: ResultsObject | None = None
    node_selector: NodeSelectorObject | None = None


class ReserverObject(Object):
    """status.reservedFor[] of a claim."""

    uid: str = ""
    name: str = ""
    resource: str = ""
    api_group: str | None = None


class ClaimStatusObject(Object):
    """status of a claim."""

    allocation: AllocationObject | None = None
    reserved_for: list[ReserverObject] | None = None


class ClaimMetaObject(MetaObject):
    """metadata of a claim."""

    finalizers: list[str] | None = None


class ResourceClaimObject(Object):
    """A ResourceClaim."""

    metadata: ClaimMetaObject = msgspec.field(default_factory=ClaimMetaObject)
    spec: ClaimSpecObject = msgspec.field(default_factory=ClaimSpecObject)
    status: ClaimStatusObject | None = None


class ClassSpecObject(Object):
    """spec of a device class."""

    selectors: list[SelectorObject] | None = None
    config: list[ConfigObject] | None = None
    extended_resource_name: str | None = None


class DeviceClassObject(Object):
    """A DeviceClass."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: ClassSpecObject = msgspec.field(default_factory=ClassSpecObject)


class TaintSelectorObject(Object):
    """spec.deviceSelector of a device taint rule."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpecObject(Object):
    """spec of a device taint rule."""

    device_selector: TaintSelectorObject | None = None
    taint: TaintObject = msgspec.field(default_factory=TaintObject)


class DeviceTaintRuleObject(Object):
    """A DeviceTaintRule."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: TaintRuleSpecObject = msgspec.field(default_factory=TaintRuleSpecObject)
