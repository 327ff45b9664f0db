"""Nodes and pods as the watcher of pools' nodes reads them from the API: only what it judges by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fleet import labels
from fleet.kube.objects import MetaObject, Object


class Resources(Object):
    requests: dict[str, str | int | float] | None = None


class Container(Object):
    resources: Resources = msgspec.field(default_factory=Resources)


class SeenSpec(Object):
    node_name: str = ""
    containers: list[Container] = msgspec.field(default_factory=list)


class SeenCondition(Object):
    type: str = ""
    status: str = ""


class SeenPodStatus(Object):
    phase: str = ""
    conditions: list[SeenCondition] | None = None


class SeenPod(Object):
    """A pod as the API shows it."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: SeenSpec = msgspec.field(default_factory=SeenSpec)
    status: SeenPodStatus = msgspec.field(default_factory=SeenPodStatus)


class SeenTaint(Object):
    key: str = ""
    value: str = ""
    effect: str = ""


class SeenNodeSpec(Object):
    unschedulable: bool | None = None
    taints: list[SeenTaint] | None = None


class SeenImage(Object):
    names: list[str] | None = None


class SeenNodeStatus(Object):
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[SeenCondition] | None = None
    images: list[SeenImage] | None = None


class SeenNode(Object):
    """A node as the API shows it."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: SeenNodeSpec = msgspec.field(default_factory=SeenNodeSpec)
    status: SeenNodeStatus = msgspec.field(default_factory=SeenNodeStatus)


def notes(obj: SeenNode | SeenPod) -> Mapping[str, str]:
    return obj.metadata.annotations or {}


def pool_of(obj: SeenNode | SeenPod) -> str:
    return (obj.metadata.labels or {}).get(labels.POOL, "")


def is_puller(pod: SeenPod) -> bool:
    return labels.PULLER in (pod.metadata.labels or {})


def is_live(pod: SeenPod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")


def decoded(text: str) -> Mapping[str, Any]:
    """Return a claim or a draw as it was written; what cannot be read is empty."""
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
