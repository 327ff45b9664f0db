"""Pods and nodes as a real API server serves them: full objects of about 5 KB and 11 KB, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_NODE_CONDITIONS = ("NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
_STAMP = "2026-11-30T06:00:00Z"


def encoded(items: Iterator[dict[str, Any]], kind: str) -> bytes:
    """Return a list response, fields in the order in which the API server writes them."""
    body = b",".join(msgspec.json.encode(item) for item in items)
    head = f'{{"kind":"{kind}List","apiVersion":"v1","metadata":{{"resourceVersion":"1000000"}},"items":['
    return head.encode() + body + b"]}\n"


def pods(count: int, nodes: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield pods of many owners, each with what Deployments, admission, kubelet and clients leave in an object."""
    draw = random.Random(seed)
    for number in range(count):
        yield _pod(number, draw.randrange(nodes), draw)


def nodes(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield nodes with labels, conditions, images and managed fields as kubelet and cloud leave them."""
    draw = random.Random(seed)
    for number in range(count):
        yield _node(number, draw)


def _uid(draw: random.Random) -> str:
    text = f"{draw.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"


def _digest(draw: random.Random) -> str:
    return f"sha256:{draw.getrandbits(256):064x}"


def _pod(number: int, node: int, draw: random.Random) -> dict[str, Any]:
    owner = f"model-{number % 397:03d}-{draw.getrandbits(40):010x}"
    name = f"{owner}-{draw.getrandbits(20):05x}"
    namespace = f"team-{number % 37:02d}"
    gpus = draw.choice(("1", "1", "1", "2", "4", "8", None))
    cpu, memory = draw.choice((("4", "16Gi"), ("8", "32Gi"), ("500m", "1Gi"), ("11400m", "49152Mi")))
    amounts = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpus} if gpus else {})
    labels = {
        "app": f"model-{number % 397:03d}",
        "app.kubernetes.io/part-of": "serving",
        "pod-template-hash": owner[-10:],
        "serving.example.com/model": f"m{number % 397:03d}",
        "serving.example.com/tenant": namespace,
    }
    return {
        "metadata": {
            "name": name,
            "generateName": f"{owner}-",
            "namespace": namespace,
            "uid": _uid(draw),
            "resourceVersion": str(900_000 + number),
            "generation": 1,
            "creationTimestamp": _STAMP,
            "labels": labels,
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "8080",
                "serving.example.com/revision": f"{number % 13}",
                "kubectl.kubernetes.io/restartedAt": _STAMP,
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": _uid(draw),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                _managed("kube-controller-manager", labels, 5),
                _managed("kubelet", {}, 4, "status"),
            ],
        },
        "spec": {
            "volumes": [
                {"name": "model", "emptyDir": {"sizeLimit": "50Gi"}},
                {"name": "config", "configMap": {"name": f"{owner}-config", "defaultMode": 420}},
                {
                    "name": "kube-api-access",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "name": "kube-root-ca.crt",
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                }
                            },
                        ],
                        "defaultMode": 420,
                    },
                },
            ],
            "containers": [
                {
                    "name": "server",
                    "image": f"registry.example.com/models/m{number % 397:03d}:v{number % 13}",
                    "args": ["--port=8080", "--model=/models", "--workers=4"],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(8)],
                    "resources": {"limits": amounts, "requests": amounts},
                    "volumeMounts": [
                        {"name": "model", "mountPath": "/models"},
                        {"name": "config", "readOnly": True, "mountPath": "/etc/serving"},
                    ],
                    "readinessProbe": {
                        "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"},
                        "timeoutSeconds": 1,
                        "periodSeconds": 5,
                        "successThreshold": 1,
                        "failureThreshold": 3,
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "nodeName": f"node-{node:04d}",
            "securityContext": {},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "In", "values": [f"p{number % 5}"]}]}
                        ]
                    }
                }
            },
            "schedulerName": "berthmaster",
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _STAMP}
                for kind in _CONDITIONS
            ],
            "hostIP": f"10.{node // 250}.{node % 250}.1",
            "podIP": f"10.{number // 62500}.{number // 250 % 250}.{number % 250}",
            "startTime": _STAMP,
            "containerStatuses": [
                {
                    "name": "server",
                    "state": {"running": {"startedAt": _STAMP}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": f"registry.example.com/models/m{number % 397:03d}:v{number % 13}",
                    "imageID": f"registry.example.com/models/m{number % 397:03d}@{_digest(draw)}",
                    "containerID": f"containerd://{_digest(draw)[7:]}",
                    "started": True,
                }
            ],
            "qosClass": "Burstable",
        },
    }


def _node(number: int, draw: random.Random) -> dict[str, Any]:
    name = f"node-{number:04d}"
    capacity = {
        "cpu": "96",
        "ephemeral-storage": "914801712Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "1056270436Ki",
        "nvidia.com/gpu": "8",
        "pods": "110",
    }
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu.8xlarge",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.product": draw.choice(("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB")),
        "pool": f"p{number % 5}",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    return {
        "metadata": {
            "name": name,
            "uid": _uid(draw),
            "resourceVersion": str(950_000 + number),
            "creationTimestamp": _STAMP,
            "labels": labels,
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [
                _managed("kubelet", labels, 6),
                _managed("kube-controller-manager", {}, 4),
                _managed("kubelet", {}, 24, "status"),
            ],
        },
        "spec": {
            "podCIDR": f"10.{number // 250}.{number % 250}.0/24",
            "podCIDRs": [f"10.{number // 250}.{number % 250}.0/24"],
            "providerID": f"cloud:///zone-{number % 3}/i-{draw.getrandbits(64):016x}",
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity | {"cpu": "95690m", "memory": "1049921444Ki"},
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "lastHeartbeatTime": _STAMP,
                    "lastTransitionTime": _STAMP,
                    "reason": f"Kubelet{kind}",
                    "message": f"kubelet reports {kind}",
                }
                for kind in _NODE_CONDITIONS
            ],
            "addresses": [
                {"type": "InternalIP", "address": f"10.{number // 250}.{number % 250}.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": f"{draw.getrandbits(128):032x}",
                "systemUUID": _uid(draw),
                "bootID": _uid(draw),
                "kernelVersion": "6.8.0-45-generic",
                "osImage": "Ubuntu 24.04.1 LTS",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.37.2",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [
                {
                    "names": [
                        f"registry.example.com/models/m{image:03d}@{_digest(draw)}",
                        f"registry.example.com/models/m{image:03d}:v{image % 13}",
                    ],
                    "sizeBytes": draw.randrange(10**7, 10**10),
                }
                for image in draw.sample(range(397), 30)
            ],
        },
    }


def _managed(manager: str, labels: dict[str, str], fields: int, subresource: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _STAMP,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}},
            "f:status" if subresource else "f:spec": {
                f"f:field{number}": {".": {}, f'k:{{"type":"kind-{number}"}}': {".": {}, "f:value": {}}}
                for number in range(fields)
            },
        },
    }
    return entry | ({"subresource": subresource} if subresource else {})
