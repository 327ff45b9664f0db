"""The fields that the controller reads of Kubernetes objects; every other field is skipped while parsing."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet.kube.objects import MetaObject, NodeAffinityObject, Object, TolerationObject


class PoolMeta(MetaObject):
    """metadata with the generation of the spec, and with what keeps the object."""

    generation: int = 0
    finalizers: list[str] | None = None


class ToldConditionObject(Object):
    """status.conditions[], as far as it is needed again."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class ToldPoolObject(Object):
    """status of a pool: our own words, of which few are needed again."""

    conditions: list[ToldConditionObject] | None = None


class PoolObject(Object):
    """A WarmPool; its spec is read elsewhere, field by field."""

    metadata: PoolMeta = msgspec.field(default_factory=PoolMeta)
    spec: dict[str, Any] | None = None
    status: ToldPoolObject | None = None


class AgentAffinityObject(Object):
    """spec.affinity of a pod template."""

    node_affinity: NodeAffinityObject | None = None


class AgentPodSpecObject(Object):
    """spec of a pod template, as far as it says which nodes it may run on."""

    tolerations: tuple[TolerationObject, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: AgentAffinityObject | None = None


class AgentTemplateObject(Object):
    """spec.template of a DaemonSet."""

    spec: AgentPodSpecObject = msgspec.field(default_factory=AgentPodSpecObject)


class AgentSpecObject(Object):
    """spec of a DaemonSet."""

    template: AgentTemplateObject = msgspec.field(default_factory=AgentTemplateObject)


class AgentObject(Object):
    """A DaemonSet: an agent that runs on every node it tolerates."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: AgentSpecObject = msgspec.field(default_factory=AgentSpecObject)


class TargetRefObject(Object):
    """spec.targetRef of an autoscaler."""

    kind: str = ""
    name: str = ""


class ScalerSpecObject(Object):
    """spec of an autoscaler."""

    target_ref: TargetRefObject = msgspec.field(default_factory=TargetRefObject)
    mode: Any = None


class NeedObject(Object):
    """status.need[]: replicas that will be needed, and by when."""

    replicas: Any = None
    by: Any = None
    confidence: Any = None


class ScalerStatusObject(Object):
    """status of an autoscaler."""

    current_replicas: Any = None
    need: list[NeedObject] | None = None


class ScalerObject(Object):
    """A ConcurrencyAutoscaler, as far as it says what will be needed."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: ScalerSpecObject = msgspec.field(default_factory=ScalerSpecObject)
    status: ScalerStatusObject | None = None
