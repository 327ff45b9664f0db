"""The trace's pods as API objects, owned by one object that stands for their controller."""

from __future__ import annotations

from typing import Any

from fleet import labels
from fleet.device import AskKind
from fleet.pod import Pod
from fleet.quantity import milli_text

NAMESPACE = "openb"
OWNER = "openb-replay"

namespace_object: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {labels.MANAGED_LABEL: "true"}},
}
owner_object: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": OWNER, "namespace": NAMESPACE},
    "data": {"about": "Owns the replayed pods; the replay makes a new one when a pod is deleted."},
}


def pod_object(pod: Pod, owner_uid: str) -> dict[str, Any]:
    """Return the v1 Pod to create: no scheduler name and no gate, the admission policy adds both.

    Args:
        pod: A trace pod; its requests, ask and models are carried over.
        owner_uid: uid of the owner, marked as controller, so that the planner may pin the pod.
    """
    requests: dict[str, str] = {
        "cpu": milli_text(pod.requests.milli_cpu),
        "memory": str(pod.requests.memory_bytes),
        **{name: str(amount) for name, amount in pod.requests.extended},
    }
    limits: dict[str, str] = {name: str(amount) for name, amount in pod.requests.extended}
    annotations: dict[str, str] = {}
    ask = pod.ask
    if ask is not None:
        devices: dict[str, str] = {}
        if ask.kind is AskKind.CHOSEN:
            devices[labels.GPU] = str(ask.count)
        elif ask.kind is AskKind.SHARE:
            devices[labels.GPU_MILLI] = str(ask.milli_gpu)
            if ask.memory_mib:
                devices[labels.GPU_MEMORY_MIB] = str(ask.memory_mib)
        requests |= devices
        limits |= devices
        if ask.models:
            annotations[labels.GPU_MODELS] = ",".join(ask.models)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": NAMESPACE,
            "annotations": annotations,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": owner_uid, "controller": True}
            ],
        },
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "model",
                    "image": "example.invalid/model",
                    "resources": {"requests": requests, "limits": limits},
                }
            ],
        },
    }
