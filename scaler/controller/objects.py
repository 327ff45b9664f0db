"""The fields that the scaler reads of Kubernetes objects; every other field is skipped while parsing."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet.kube.objects import ConditionObject, MetaObject, Object


class GenerationMeta(MetaObject):
    """metadata with the generation of the spec."""

    generation: int = 0


class ToldConditionObject(Object):
    """status.conditions[] of an autoscaler, as far as it is needed again."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class ToldTargetObject(Object):
    """status.target: what outlives a restart."""

    learnt: Any = None
    validated: Any = None


class ToldStartObject(Object):
    """status.startTime: what outlives a restart."""

    seconds: Any = None


class ToldForecastObject(Object):
    """status.forecast: what outlives a restart."""

    history: Any = None


class ToldObject(Object):
    """status of an autoscaler: our own words, of which few are needed again; a thousand of them are kept."""

    conditions: list[ToldConditionObject] | None = None
    target: ToldTargetObject | None = None
    start_time: ToldStartObject | None = None
    forecast: ToldForecastObject | None = None
    service_seconds: Any = None


class AutoscalerObject(Object):
    """A ConcurrencyAutoscaler; its spec is read elsewhere, field by field."""

    metadata: GenerationMeta = msgspec.field(default_factory=GenerationMeta)
    spec: dict[str, Any] | None = None
    status: ToldObject | None = None


class WorkloadSpecObject(Object):
    """spec of a Deployment or StatefulSet."""

    replicas: int | None = None


class WorkloadStatusObject(Object):
    """status of a Deployment or StatefulSet."""

    update_revision: str | None = None


class WorkloadObject(Object):
    """A Deployment or StatefulSet."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: WorkloadSpecObject = msgspec.field(default_factory=WorkloadSpecObject)
    status: WorkloadStatusObject | None = None


class CrossReferenceObject(Object):
    """spec.scaleTargetRef."""

    kind: str = ""
    name: str = ""


class RivalSpecObject(Object):
    """spec of a HorizontalPodAutoscaler."""

    scale_target_ref: CrossReferenceObject = msgspec.field(default_factory=CrossReferenceObject)


class RivalObject(Object):
    """A HorizontalPodAutoscaler: only what it scales."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: RivalSpecObject = msgspec.field(default_factory=RivalSpecObject)


class WaitingObject(Object):
    """state.waiting of a container."""

    reason: str | None = None


class ContainerStateObject(Object):
    """state of a container."""

    waiting: WaitingObject | None = None


class ContainerStatusObject(Object):
    """status.containerStatuses[]."""

    state: ContainerStateObject | None = None


class ReplicaSpecObject(Object):
    """spec of a pod."""

    node_name: str | None = None


class ReplicaStatusObject(Object):
    """status of a pod."""

    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[ConditionObject] | None = None
    container_statuses: list[ContainerStatusObject] | None = None


class ReplicaObject(Object):
    """A pod, as far as a replica is concerned."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: ReplicaSpecObject | None = None
    status: ReplicaStatusObject | None = None


class NodeObject(Object):
    """A node: only its labels."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)


class ScaleSpecObject(Object):
    """spec of a Scale."""

    replicas: int | None = None


class ScaleStatusObject(Object):
    """status of a Scale."""

    selector: str | None = None


class ScaleObject(Object):
    """What a scale subresource answers."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: ScaleSpecObject = msgspec.field(default_factory=ScaleSpecObject)
    status: ScaleStatusObject | None = None


class ResourceObject(Object):
    """resources[] of a discovery answer."""

    name: str = ""
    kind: str = ""


class ResourceListObject(Object):
    """A discovery answer."""

    resources: list[ResourceObject] | None = None
