"""What autoscalers say will be needed and by when, as nodes that a pool should have warm in time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from warmpool.controller.objects import NeedObject, ScalerObject

# A need that is as likely as not to come is not ordered for; the forecast of draws sees to it.
_LEAST_CONFIDENCE = 0.5
_MOST_REPLICAS = 100_000


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


def nodes_needed(needs: Iterable[Needs], replicas_per_node: float, wall_s: float, horizon_s: float) -> int:
    """Return the nodes that autoscalers say will be drawn within the horizon: Σ ⌈max(0, need − current) / k⌉.

    Args:
        needs: Of the workloads that the pool serves.
        replicas_per_node: k, how many replicas share a node, at least 1.
        wall_s: Time since the epoch: deadlines are told on that clock.
        horizon_s: What is ordered now is warm by then.
    """
    total = 0
    for one in needs:
        near = [
            need.replicas
            for need in one.needs
            if need.by_s <= wall_s + horizon_s and need.confidence_ratio >= _LEAST_CONFIDENCE
        ]
        extra = max(near, default=0) - one.current
        if extra > 0:
            total += math.ceil(extra / max(1.0, replicas_per_node))
    return total


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
