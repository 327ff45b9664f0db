"""The pod that pulls a pool's images onto one node and holds them there.

Each image is mounted as an image volume (KEP-4639, stable since Kubernetes 1.36), which works for images without a
shell, and a mounted image is safe from garbage collection. Before that, one init container per image runs the image's
own `true`. It pulls with the replicas' own secrets, because the kubelet lets other pods use an image only with
credentials that it has seen (KEP-2535). It is bound by its node name: no scheduler and no taint keeps it off.
"""

from __future__ import annotations

import hashlib
from typing import Any

from fleet import labels
from warmpool.values import PoolSpec

PAUSE_IMAGE = "registry.k8s.io/pause:3.10.1"


def puller_name(pool: PoolSpec, node: str) -> str:
    """Return the pod's name: one per pool, node and set of images, so that a new set makes a new pod."""
    wanted = "\n".join((node, *(image.pinned for image in pool.images), *pool.models))
    return f"pull-{pool.name[:40].rstrip('-.')}-{hashlib.sha256(wanted.encode()).hexdigest()[:10]}"


def puller_pod(
    pool: PoolSpec,
    node: str,
    *,
    namespace: str,
    has_image_volumes: bool = True,
    fetch_image: str = "",
    cache_path: str = "/var/lib/berthmaster/models",
) -> dict[str, Any]:
    """Return the pod.

    Args:
        pool: For images, secrets and models.
        node: Name of the node.
        namespace: Where it runs; the pull secrets must be there.
        has_image_volumes: Whether the cluster mounts images as volumes.
        fetch_image: Image with `berthmaster-fetch`, needed where the pool names models.
        cache_path: Folder of the node that models are fetched into.
    """
    images = [image.pinned for image in pool.images]
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    initial: list[dict[str, Any]] = []
    if has_image_volumes:
        for number, image in enumerate(images):
            volumes.append({"name": f"image-{number}", "image": {"reference": image, "pullPolicy": "IfNotPresent"}})
            mounts.append({"name": f"image-{number}", "mountPath": f"/images/{number}", "readOnly": True})
    else:
        initial = [
            {"name": f"image-{number}", "image": image, "command": ["true"], "imagePullPolicy": "IfNotPresent"}
            for number, image in enumerate(images)
        ]
    if pool.models and fetch_image:
        volumes.append({"name": "models", "hostPath": {"path": cache_path, "type": "DirectoryOrCreate"}})
        initial.append(
            {
                "name": "models",
                "image": fetch_image,
                "command": ["berthmaster-fetch", "file", *pool.models, f"--into={cache_path}"],
                "volumeMounts": [{"name": "models", "mountPath": cache_path}],
            }
        )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": puller_name(pool, node),
            "namespace": namespace,
            "labels": {labels.POOL: pool.name, labels.PULLER: "true"},
            "annotations": {labels.IMAGES: ",".join(images)},
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "imagePullSecrets": [{"name": name} for name in pool.pull_secrets],
            "initContainers": initial,
            "containers": [
                {
                    "name": "hold",
                    "image": PAUSE_IMAGE,
                    "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "16Mi"}},
                    "volumeMounts": mounts,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                        "runAsNonRoot": True,
                        "runAsUser": 65535,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                }
            ],
            "volumes": volumes,
        },
    }
