"""The objects of the traffic proof: a Deployment served by processes here, its autoscaler, the pods as read."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet import labels
from fleet.kube.objects import MetaObject

READY = "Ready"
APP = "app"
IMAGE = "example.invalid/model"


class ServedSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a pod, as far as a kubelet of processes needs it."""

    node_name: str | None = None


class ServedStatus(msgspec.Struct, rename="camel", gc=False):
    """status of a pod; conditions are kept as they are, because they are written back with ours added."""

    phase: str = ""
    conditions: list[dict[str, Any]] | None = None


class ServedPod(msgspec.Struct, rename="camel", gc=False):
    """A pod that a process on this machine stands for."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: ServedSpec = msgspec.field(default_factory=ServedSpec)
    status: ServedStatus = msgspec.field(default_factory=ServedStatus)

    @property
    def is_ours(self) -> bool:
        """Return whether its annotation gives it to a process here."""
        return (self.metadata.annotations or {}).get(labels.SERVED_LOCALLY) == "true"

    @property
    def is_leaving(self) -> bool:
        """Return whether its deletion was asked for."""
        return self.metadata.deletion_timestamp is not None


def deployment(
    name: str,
    namespace: str,
    *,
    replicas: int,
    is_served: bool = True,
    requests: dict[str, str] | None = None,
    node_selector: dict[str, str] | None = None,
    image: str = IMAGE,
    grace_s: int = 120,
) -> dict[str, Any]:
    """Return a Deployment.

    Args:
        name: Of the Deployment, its app label and its container.
        namespace: Where.
        replicas: At first.
        is_served: Whether processes on this machine stand for its pods; otherwise kwok plays them.
        requests: Of one replica, beside a little CPU and memory; extended resources become limits too.
        node_selector: Labels of the nodes that may take them.
        image: Of its container; never pulled.
        grace_s: What a replica has to finish its requests.
    """
    asked = {"cpu": "100m", "memory": "64Mi"} | (requests or {})
    resources = {"requests": asked, "limits": {key: value for key, value in asked.items() if "/" in key}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {APP: name}},
            "template": {
                "metadata": {
                    "labels": {APP: name},
                    "annotations": {labels.SERVED_LOCALLY: "true"} if is_served else {},
                },
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": grace_s if is_served else 0,
                    "nodeSelector": node_selector or {},
                    "containers": [{"name": name, "image": image, "resources": resources}],
                },
            },
        },
    }


def namespace(name: str, *, is_managed: bool) -> dict[str, Any]:
    """Return a namespace, opted in to Berthmaster's planner or not."""
    marks = {labels.MANAGED_LABEL: "true"} if is_managed else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}


def autoscaler(
    name: str, namespace: str, *, balancer: str, backend: str, spec: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a ConcurrencyAutoscaler of the Deployment of the same name.

    Args:
        name: Of both.
        namespace: Where.
        balancer: Source of load, as the controller's settings name it.
        backend: Of that balancer.
        spec: Fields that differ from one replica at least, 64 at most and a target of 4 to start with.
    """
    return {
        "apiVersion": f"{labels.DOMAIN}/{labels.AUTOSCALER_VERSION}",
        "kind": labels.AUTOSCALER_KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 64,
            "targetConcurrency": {"initial": 4},
            "signals": {"balancer": {"name": balancer, "backend": backend}},
        }
        | (spec or {}),
    }


def running(pod: ServedPod, address: str, *, is_ready: bool, at: str) -> bytes:
    """Return the merge patch of a pod's status that a kubelet would write.

    Args:
        pod: As read.
        address: IP of its process.
        is_ready: Whether the process answers its health check.
        at: Now, RFC 3339.
    """
    said = "True" if is_ready else "False"
    ours = ("Initialized", READY, "ContainersReady")
    kept = [condition for condition in pod.status.conditions or () if condition.get("type") not in ours]
    conditions = [
        {"type": kind, "status": "True" if kind == "Initialized" else said, "lastTransitionTime": at} for kind in ours
    ]
    return msgspec.json.encode(
        {
            "metadata": {"uid": pod.metadata.uid},
            "status": {
                "phase": "Running",
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": kept + conditions,
            },
        }
    )
