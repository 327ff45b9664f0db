"""Objects and values of the scaler's world, each as short as a test can say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from scaler.balancer.values import BackendSecond, ServerSecond
from scaler.controller.objects import AutoscalerObject, ReplicaObject, WorkloadObject
from scaler.controller.pods import Pod
from scaler.seen import Phase


def a_pod(name: str, phase: Phase = Phase.READY, since_s: float = 0.0, **changes: Any) -> Pod:
    pod = Pod(
        namespace="n",
        name=name,
        uid=f"uid-{name}",
        address="",
        phase=phase,
        is_ended=False,
        since_s=since_s,
        ready_at_s=since_s if phase is Phase.READY else None,
        scheduled_at_s=since_s,
        is_seen_born=True,
        version="v1",
        node="",
        cost="",
        owner=("ReplicaSet", "shop-v1"),
        tags={},
    )
    return replace(pod, **changes)


def a_spec(**parts: Any) -> dict[str, Any]:
    return {
        "targetRef": {"kind": "Deployment", "name": "shop"},
        "maxReplicas": 10,
        "targetConcurrency": {"initial": 5},
        "signals": {"balancer": {"name": "main", "backend": "shop"}},
    } | parts


def read(kind: type[Any], obj: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)


def a_replica(name: str = "shop-abc-1", **changes: Any) -> ReplicaObject:
    obj: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": f"uid-{name}",
            "labels": {"app": "shop", "pod-template-hash": "abc"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "shop-abc", "uid": "r", "controller": True}],
            "creationTimestamp": "2026-11-30T09:00:00Z",
        }
        | changes.pop("metadata", {}),
        "spec": {"nodeName": "node"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    found: ReplicaObject = read(ReplicaObject, obj | changes)
    return found


def an_autoscaler(
    name: str = "a", generation: int = 1, created: str = "2026-01-01T00:00:00Z", **spec: Any
) -> AutoscalerObject:
    meta = {
        "name": name,
        "namespace": "n",
        "uid": f"uid-{name}",
        "generation": generation,
        "creationTimestamp": created,
    }
    found: AutoscalerObject = read(AutoscalerObject, {"metadata": meta, "spec": a_spec(**spec)})
    return found


def a_deployment(replicas: int | None = 3, version: str = "10", revision: str = "1") -> WorkloadObject:
    meta = {
        "name": "shop",
        "namespace": "n",
        "resourceVersion": version,
        "annotations": {"deployment.kubernetes.io/revision": revision},
    }
    found: WorkloadObject = read(WorkloadObject, {"metadata": meta, "spec": {"replicas": replicas}})
    return found


def starting(reason: str | None = None) -> dict[str, Any]:
    waiting = [{"state": {"waiting": {"reason": reason}}}] if reason else None
    return {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": waiting}


def a_second(servers: Sequence[ServerSecond] = (), **more: Any) -> BackendSecond:
    usual = {"arrivals": 5.0, "completions": 5.0, "in_flight": 24.0, "queued": 0.0, "errors": 0.0}
    return BackendSecond(name="shop", at_s=7.0, servers=tuple(servers), **(usual | more))
