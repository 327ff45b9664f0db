"""Dynamic Resource Allocation in plain values: what drivers publish, what claims ask, what was allocated.

Amounts of capacities and counters are exact integers in billionths (nano), the finest a Kubernetes quantity goes, so
that nothing is rounded. Attribute names are fully qualified, `domain/name`. Source: KEP-4381 and its
extensions KEP-4815 (partitions), 4816 (lists), 5055 (taints), 5075 (consumable capacity); API resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.constraints import NodeTerm

# A claim's allocation names at most this many devices (resource.k8s.io/v1, AllocationResultsMaxSize).
MOST_RESULTS = 32
NODE_NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """An attribute that is a semantic version, as text."""

    text: str


AttributeValue = str | int | bool | Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """What may be asked of a capacity that several claims share; None or empty = no such rule.

    Attributes:
        default: What a claim that asks for no amount uses.
        valid_values: Allowed amounts, ascending; others are rounded up to the next.
        least: Lower end of an allowed range; smaller amounts are rounded up to it.
        most: Upper end.
        step: Amounts are rounded up to `least` plus a multiple of it.
    """

    default: int | None = None
    valid_values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """One capacity of a device."""

    value: int
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    """A taint of a device; only NoSchedule and NoExecute keep claims away."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToleration:
    """What a request tolerates; `seconds` is passed on to the allocation, and decides nothing here."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return True if this toleration covers the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("Equal", "") and bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """From which nodes a device can be reached: one, those of a selector, or all.

    Attributes:
        node: Its only node; "" = see the others.
        terms: A selector, any term of which suffices; None = none.
        is_everywhere: True = all nodes.
    """

    node: str = ""
    terms: tuple[NodeTerm, ...] | None = None
    is_everywhere: bool = False

    def reaches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return True if a pod on the node with this name and these labels can use it."""
        if self.node:
            return self.node == name
        if self.is_everywhere:
            return True
        return self.terms is not None and any(term.matches(name, labels) for term in self.terms)


Counters = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDevice:
    """One device as its driver publishes it.

    Attributes:
        attributes: By fully qualified name.
        capacity: By name as published: allocations and requests name it just so.
        uses: (counter set, counters) that it draws from the pool while anybody has it.
        is_multiple: Several claims may have it at once, each a part of its capacity.
        where: From where it is reached; None = as its slice says.
        binds_to_node: Once allocated it belongs to the node of its pod.
        binding_conditions: Passed on to the allocation: the pod is bound once they hold.
        binding_failure_conditions: Passed on as well.
        unknown: A feature of the device that this version does not model; such a device is never given. "" = none.
    """

    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    uses: tuple[tuple[str, Counters], ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    is_multiple: bool = False
    where: Where | None = None
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlice:
    """A ResourceSlice: a part of one pool.

    Attributes:
        where: From where its devices are reached; None = each device says so itself.
        counter_sets: (set, counters) that the pool's devices draw from.
        problem: Why it cannot be read; its whole pool then gives nothing. "" = fine.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 1
    where: Where | None = None
    devices: tuple[PoolDevice, ...] = ()
    counter_sets: tuple[tuple[str, Counters], ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Opaque parameters of a driver, which are handed on as they are (JSON text of `opaque`)."""

    opaque: bytes
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass.

    Attributes:
        selectors: CEL expressions that must all hold.
        config: Handed on with every allocation of this class.
        extended_resource: A resource name that pods may ask instead of a claim; "" = none.
    """

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[Config, ...] = ()
    extended_resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule:
    """A DeviceTaintRule: a taint on devices by driver, pool and name; "" = any. All empty = no device."""

    name: str
    taint: DeviceTaint
    driver: str = ""
    pool: str = ""
    device: str = ""

    def concerns(self, driver: str, pool: str, device: str) -> bool:
        """Return True if the rule taints this device."""
        wanted = ((self.driver, driver), (self.pool, pool), (self.device, device))
        return any(rule for rule, _ in wanted) and all(not rule or rule == have for rule, have in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOption:
    """One way to satisfy a request.

    Attributes:
        name: Of the subrequest in a prioritised list; "" = the request has this way only.
        class_name: DeviceClass.
        selectors: CEL expressions that must all hold, beside those of the class.
        count: How many devices; 0 = all that match.
        is_admin: Access beside whoever has the device.
        capacity: (name as published, amount) wanted of each device.
        tolerations: Of device taints.
    """

    name: str = ""
    class_name: str = ""
    selectors: tuple[str, ...] = ()
    count: int = 1
    is_admin: bool = False
    capacity: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A request of a claim: its ways in order of preference; exactly one of a plain request."""

    name: str
    options: tuple[DeviceOption, ...] = ()

    def title(self, option: DeviceOption) -> str:
        """Return how an allocation names this way: `request` or `request/subrequest`."""
        return f"{self.name}/{option.name}" if option.name else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConstraint:
    """All devices of the named requests (none named = of all) agree, or all differ, in an attribute.

    Attributes:
        attribute: Fully qualified name.
        is_distinct: True = all differ, False = all agree.
    """

    attribute: str
    is_distinct: bool = False
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResult:
    """One device of an allocation.

    Attributes:
        request: `request` or `request/subrequest`.
        share_id: Of a device that several claims may have; "" = it is given whole.
        consumed: (name as published, amount) of its capacity.
    """

    request: str
    driver: str
    pool: str
    device: str
    is_admin: bool = False
    share_id: str = ""
    consumed: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    @property
    def id(self) -> DeviceId:
        """Return which device it is."""
        return (self.driver, self.pool, self.device)


DeviceId = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a claim was given.

    Attributes:
        terms: Nodes from which it can be used, any term suffices; None = all.
        class_configs: Parameters of the classes, with the requests they are for.
        claim_configs: Parameters of the claim that are for what was chosen.
    """

    results: tuple[DeviceResult, ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    class_configs: tuple[Config, ...] = ()
    claim_configs: tuple[Config, ...] = ()

    def reaches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return True if a pod on this node can use it."""
        return self.terms is None or any(term.matches(name, labels) for term in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserver:
    """Who may use an allocated claim: a pod, or another object."""

    uid: str
    name: str
    resource: str = "pods"
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDemand:
    """What a claim asks: equal for all claims of one template."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    configs: tuple[Config, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaim:
    """A ResourceClaim.

    Attributes:
        allocation: What it was given; None = nothing yet.
        reserved_for: Who may use it.
        finalizers: What keeps the object while it is being deleted.
        unmodelled: What it asks that this version does not model, in words; "" = nothing.
        problem: Why it cannot be read; "" = fine.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    demand: DeviceDemand = DeviceDemand()
    allocation: Allocation | None = None
    reserved_for: tuple[Reserver, ...] = ()
    finalizers: tuple[str, ...] = ()
    is_terminating: bool = False
    unmodelled: str = ""
    problem: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name, for people."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """A pod's name for a claim, and the claim's own; "" = it is still to be made from its template.

    Attributes:
        is_none: The template says that the pod needs no claim after all.
        template: Name of the template that the claim is made from for this pod alone; "" = it was made by hand.
        like: Of a pod that is only thought of: the claim that was made from the same template for the pod it is like.
    """

    name: str
    claim: str = ""
    is_none: bool = False
    template: str = ""
    like: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChoice:
    """Devices chosen for a claim that has none yet."""

    claim_uid: str
    allocation: Allocation
