"""What autoscalers say will be needed and by when, as nodes that a pool should have warm in time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fleet import labels
from fleet.device import WHOLE_MILLI
from fleet.kube.requests import Requests
from warmpool.controller.objects import NeedObject, ScalerObject
from warmpool.values import Shape

# A need that is as likely as not to come is not ordered for; the forecast of draws sees to it.
_LEAST_CONFIDENCE = 0.5
_MOST_REPLICAS = 100_000
_LEAST_SHARE = 0.001
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Replicas needed by a time since the epoch."""

    replicas: int
    by_s: float
    confidence_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one autoscaler says.

    Attributes:
        namespace: Of autoscaler and workload.
        kind: Of the workload.
        name: Of the workload.
        current: Replicas that are Ready or starting.
        needs: Soonest first.
    """

    namespace: str
    kind: str
    name: str
    current: int
    needs: tuple[Need, ...]

    def owns(self, namespace: str, owner: tuple[str, str]) -> bool:
        """Return True if a pod with this owner is a replica: a ReplicaSet is named for its Deployment."""
        kind, name = owner
        if namespace != self.namespace:
            return False
        if self.kind == "Deployment":
            return kind == "ReplicaSet" and name.rpartition("-")[0] == self.name
        return (kind, name) == (self.kind, self.name)


def needs_of(obj: ScalerObject) -> Needs | None:
    """Return what an autoscaler that acts says; None where it says nothing that can be read."""
    status, target = obj.status, obj.spec.target_ref
    if status is None or not status.need or obj.spec.mode == "observe":
        return None
    needs = tuple(need for told in status.need if (need := _need(told)) is not None)
    current = status.current_replicas
    if not needs or isinstance(current, bool) or not isinstance(current, int):
        return None
    return Needs(
        namespace=obj.metadata.namespace,
        kind=target.kind,
        name=target.name,
        current=current,
        needs=tuple(sorted(needs, key=lambda need: need.by_s)),
    )


def share_of(requests: Requests, shape: Shape) -> float:
    """Return the part of one node that a pod takes: max over resources of request / allocatable, above 0, at most 1.

    What the shape does not tell limits nothing; a pod that takes nothing told still takes a little.
    """
    offered = dict(shape.allocatable.extended)
    if shape.devices:
        offered[shape.device_resource] = shape.devices
    asked = dict(requests.resources.extended)
    parts = [
        _part(requests.resources.milli_cpu, shape.allocatable.milli_cpu),
        _part(requests.resources.memory_bytes, shape.allocatable.memory_bytes),
        *(_part(amount, offered.get(name, 0)) for name, amount in asked.items()),
    ]
    # Devices of our own choosing, and shares of one: they stand in no node's allocatable.
    for name, amount in requests.devices:
        if name == labels.GPU:
            parts.append(_part(amount, shape.devices))
        elif name == labels.GPU_MILLI:
            parts.append(_part(amount, shape.devices * WHOLE_MILLI))
    return min(1.0, max(_LEAST_SHARE, *parts))


def nodes_for(shares: Iterable[float]) -> int:
    """Return how many nodes pods need at least, given the part of a node that each takes: ⌈Σ share⌉."""
    return math.ceil(sum(shares) - _ROUNDING)


def nodes_needed(needs: Iterable[tuple[Needs, float]], wall_s: float, horizon_s: float) -> int:
    """Return the nodes that autoscalers say will be drawn within the horizon: Σ ⌈max(0, need − current) × share⌉.

    Args:
        needs: Of the workloads that the pool serves, each with the part of a node that one replica takes.
        wall_s: Time since the epoch: deadlines are told on that clock.
        horizon_s: What is ordered now is warm by then.
    """
    total = 0
    for one, share in needs:
        near = [
            need.replicas
            for need in one.needs
            if need.by_s <= wall_s + horizon_s and need.confidence_ratio >= _LEAST_CONFIDENCE
        ]
        extra = max(near, default=0) - one.current
        if extra > 0:
            total += nodes_for([share * extra])
    return total


def _part(asked: int, offered: int) -> float:
    return asked / offered if offered > 0 else 0.0


def _need(told: NeedObject) -> Need | None:
    replicas, by, confidence = told.replicas, told.by, told.confidence
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= _MOST_REPLICAS:
        return None
    if not isinstance(by, str):
        return None
    try:
        by_s = datetime.fromisoformat(by.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool) and 0 <= confidence <= 1
    return Need(replicas=replicas, by_s=by_s, confidence_ratio=float(confidence) if is_number else 1.0)
