"""The fields of Kubernetes objects that we read, as msgspec structs; every other field is skipped while parsing.

Types are as loose as JSON written by any client may be: a quantity is text or a number, a list or a map may be null.
Parts that serve as cache keys are frozen and hold tuples, so that equal parts of different objects are decoded once.
None of these values can contain itself, so the garbage collector need not look at them (`gc=False`).
"""

from __future__ import annotations

import msgspec

Quantities = dict[str, str | int | float]


class Object(msgspec.Struct, rename="camel", gc=False):
    """Base of the parts we read once and drop."""


class Key(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """Base of the parts that are hashed."""


class Present(Key, frozen=True):
    """An object of which only the presence matters."""


class OwnerReferenceObject(Object):
    """metadata.ownerReferences[]."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class MetaObject(Object):
    """metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReferenceObject] | None = None


class RequirementObject(Key, frozen=True):
    """matchExpressions[] or matchFields[] of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class TermObject(Key, frozen=True):
    """One node selector term."""

    match_expressions: tuple[RequirementObject, ...] | None = None
    match_fields: tuple[RequirementObject, ...] | None = None


class NodeSelectorObject(Key, frozen=True):
    """requiredDuringSchedulingIgnoredDuringExecution of a node affinity."""

    node_selector_terms: tuple[TermObject, ...] | None = None


class PreferredNodesObject(Key, frozen=True):
    """preferredDuringSchedulingIgnoredDuringExecution[] of a node affinity."""

    weight: int = 0
    preference: TermObject | None = None


class NodeAffinityObject(Key, frozen=True):
    """spec.affinity.nodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelectorObject | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodesObject, ...] | None = None


class LabelSelectorObject(Object):
    """A label selector of metav1."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[RequirementObject, ...] | None = None


class PodTermObject(Object):
    """One term of a pod affinity or anti-affinity. Its matchLabelKeys are in the selector already, says the API."""

    topology_key: str = ""
    label_selector: LabelSelectorObject | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelectorObject | None = None


class WeightedPodTermObject(Object):
    """One preferred term of a pod affinity or anti-affinity."""

    weight: int = 0
    pod_affinity_term: PodTermObject = msgspec.field(default_factory=PodTermObject)


class PodAffinityObject(Object):
    """spec.affinity.podAffinity and podAntiAffinity."""

    required_during_scheduling_ignored_during_execution: list[PodTermObject] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodTermObject] | None = None


class AffinityObject(Object):
    """spec.affinity."""

    node_affinity: NodeAffinityObject | None = None
    pod_affinity: PodAffinityObject | None = None
    pod_anti_affinity: PodAffinityObject | None = None


class TolerationObject(Key, frozen=True):
    """spec.tolerations[]."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class GateObject(Key, frozen=True):
    """spec.schedulingGates[]."""

    name: str = ""


class PortObject(Key, frozen=True):
    """containers[].ports[]: only what can clash on a node."""

    host_port: int | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class ResourcesObject(Object):
    """resources of a container or of a pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerObject(Object):
    """spec.containers[] and spec.initContainers[]."""

    name: str = ""
    image: str | None = None
    resources: ResourcesObject | None = None
    ports: tuple[PortObject, ...] | None = None
    restart_policy: str | None = None


class ClaimSourceObject(Key, frozen=True):
    """spec.volumes[].persistentVolumeClaim."""

    claim_name: str = ""


class VolumeObject(Key, frozen=True):
    """spec.volumes[]: the kinds that tie a pod to some nodes."""

    name: str = ""
    persistent_volume_claim: ClaimSourceObject | None = None
    ephemeral: Present | None = None
    aws_elastic_block_store: Present | None = None
    gce_persistent_disk: Present | None = None
    iscsi: Present | None = None
    rbd: Present | None = None


class SpreadObject(Object):
    """spec.topologySpreadConstraints[]."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = ""
    label_selector: LabelSelectorObject | None = None
    match_label_keys: tuple[str, ...] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class SchedulingGroupObject(Key, frozen=True):
    """spec.schedulingGroup of a pod (KEP-4671, served from Kubernetes 1.36 on with the feature GenericWorkload)."""

    pod_group_name: str | None = None


class PodClaimObject(Key, frozen=True):
    """spec.resourceClaims[] and status.resourceClaimStatuses[] of a pod."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpecObject(Object):
    """spec of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    scheduling_gates: tuple[GateObject, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: AffinityObject | None = None
    tolerations: tuple[TolerationObject, ...] | None = None
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    overhead: Quantities | None = None
    resources: ResourcesObject | None = None
    volumes: tuple[VolumeObject, ...] | None = None
    topology_spread_constraints: list[SpreadObject] | None = None
    resource_claims: tuple[PodClaimObject, ...] | None = None
    scheduling_group: SchedulingGroupObject | None = None
    preemption_policy: str | None = None
    workload_ref: Present | None = None


class ConditionObject(Object):
    """status.conditions[] of a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class PodStatusObject(Object):
    """status of a pod."""

    phase: str | None = None
    conditions: list[ConditionObject] | None = None
    resource_claim_statuses: tuple[PodClaimObject, ...] | None = None


class ManagerObject(Object):
    """metadata.managedFields[]: how somebody wrote, not what."""

    operation: str = ""


class PodMetaObject(MetaObject):
    """metadata of a pod."""

    managed_fields: list[ManagerObject] | None = None


class PodObject(Object):
    """A v1 Pod."""

    metadata: PodMetaObject = msgspec.field(default_factory=PodMetaObject)
    spec: PodSpecObject = msgspec.field(default_factory=PodSpecObject)
    status: PodStatusObject | None = None


class TaintObject(Key, frozen=True):
    """spec.taints[] of a node and taints[] of a device."""

    key: str = ""
    value: str | None = None
    effect: str | None = None


class NodeSpecObject(Object):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: tuple[TaintObject, ...] | None = None


class NodeStatusObject(Object):
    """status of a node."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None


class NodeObject(Object):
    """A v1 Node."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: NodeSpecObject | None = None
    status: NodeStatusObject | None = None


class AttributeObject(Object):
    """attributes of a device: exactly one of these is set by the driver; other kinds tell us nothing."""

    string: str | None = None
    integer: int | None = msgspec.field(name="int", default=None)
    boolean: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None


class RangeObject(Object):
    """validRange of a request policy."""

    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class RequestPolicyObject(Object):
    """requestPolicy of a capacity that several claims may share."""

    default: str | int | float | None = None
    valid_values: list[str | int | float] | None = None
    valid_range: RangeObject | None = None


class CapacityObject(Object):
    """capacity of a device, and counters of a pool."""

    value: str | int | float | None = None
    request_policy: RequestPolicyObject | None = None


class CounterSetObject(Object):
    """sharedCounters[] of a slice, and consumesCounters[] of a device, which names the set it draws from."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, CapacityObject] | None = None
    compatibility_groups: tuple[str, ...] | None = None


class DeviceObject(Object):
    """spec.devices[] of a resource slice."""

    name: str = ""
    attributes: dict[str, AttributeObject] | None = None
    capacity: dict[str, CapacityObject] | None = None
    taints: tuple[TaintObject, ...] | None = None
    consumes_counters: list[CounterSetObject] | None = None
    allow_multiple_allocations: bool | None = None
    node_name: str | None = None
    node_selector: NodeSelectorObject | None = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    node_allocatable_resources: dict[str, Present] | None = None


class PoolObject(Object):
    """spec.pool of a resource slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpecObject(Object):
    """spec of a resource slice."""

    driver: str = ""
    node_name: str = ""
    pool: PoolObject = msgspec.field(default_factory=PoolObject)
    devices: list[DeviceObject] | None = None
    node_selector: NodeSelectorObject | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSetObject] | None = None


class ResourceSliceObject(Object):
    """A resource.k8s.io/v1 ResourceSlice."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: SliceSpecObject = msgspec.field(default_factory=SliceSpecObject)


class LeaseSpecObject(Object):
    """spec of a lease; fields that are None stay out of what we write."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseObject(Object):
    """A coordination.k8s.io/v1 Lease."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: LeaseSpecObject = msgspec.field(default_factory=LeaseSpecObject)
