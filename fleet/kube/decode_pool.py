"""A WarmPool to a `Pool`: only what a planner needs of it. Total: amounts that cannot be read limit nothing."""

from __future__ import annotations

import msgspec

from fleet import labels
from fleet.device import Device
from fleet.kube.decode_node import resources_of
from fleet.kube.objects import Key, MetaObject, Object, Quantities
from fleet.node import Node
from fleet.pool import Pool, PoolImage, node_labels
from fleet.resources import UNLIMITED, Resources, extended_of

_MOST_DEVICES = 1024


class DevicesObject(Key, frozen=True):
    """spec.shape.devices."""

    resource: str | None = None
    count: int | None = None
    model: str | None = None


class ShapeObject(Object):
    """spec.shape."""

    instance_type: str | None = None
    resources: Quantities | None = None
    devices: DevicesObject | None = None
    labels: dict[str, str] | None = None


class PoolImageObject(Key, frozen=True):
    """spec.images[]."""

    reference: str = ""
    digest: str | None = None


class ServesObject(Object):
    """spec.serves."""

    namespaces: tuple[str, ...] | None = None
    match_labels: dict[str, str] | None = None


class WarmPoolSpecObject(Object):
    """spec of a WarmPool."""

    shape: ShapeObject | None = None
    images: tuple[PoolImageObject, ...] | None = None
    serves: ServesObject | None = None
    mode: str | None = None


class WarmPoolObject(Object):
    """A berthmaster.dev/v1alpha1 WarmPool."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: WarmPoolSpecObject | None = None


def pool_from(obj: WarmPoolObject) -> Pool:
    """Return the pool; one that is being deleted orders nothing any more."""
    spec = obj.spec or WarmPoolSpecObject()
    serves = spec.serves or ServesObject()
    name = obj.metadata.name
    return Pool(
        name=name,
        is_acting=spec.mode == "act" and obj.metadata.deletion_timestamp is None,
        images=tuple(PoolImage(reference=image.reference, digest=image.digest or "") for image in spec.images or ()),
        namespaces=tuple(sorted(serves.namespaces or ())),
        match_labels=tuple(sorted((serves.match_labels or {}).items())),
        template=_template(name, spec.shape or ShapeObject()),
    )


def _template(pool: str, shape: ShapeObject) -> Node:
    """Return an empty node of the shape; what the shape does not tell is taken as plenty."""
    told = resources_of(shape.resources, [])
    devices = shape.devices or DevicesObject()
    count = max(0, min(devices.count or 0, _MOST_DEVICES))
    resource = devices.resource or labels.NVIDIA_GPU
    amounts = {**dict(told.extended), **({resource: count} if count and resource != labels.GPU else {})}
    own = node_labels(pool, shape.labels or {})
    if shape.instance_type:
        own.setdefault("node.kubernetes.io/instance-type", shape.instance_type)
    if devices.model:
        own.setdefault(labels.GPU_PRODUCT, devices.model)
    is_sharing = own.get(labels.DEVICE_SHARING) == "true"
    if is_sharing:
        amounts.pop(labels.NVIDIA_GPU, None)
    return Node(
        name=f"a node of pool {pool}",
        labels=own,
        allocatable=Resources(
            milli_cpu=told.milli_cpu or UNLIMITED,
            memory_bytes=told.memory_bytes or UNLIMITED,
            pod_slots=told.pod_slots or UNLIMITED,
            extended=extended_of(amounts),
        ),
        devices=tuple(Device(id=str(i), model=devices.model or "") for i in range(count)),
        is_sharing=is_sharing,
        pool=pool,
    )
