"""The fields of volume claims, volumes, storage classes and CSI drivers that we read, as msgspec structs."""

from __future__ import annotations

import msgspec

from fleet.kube.objects import Key, MetaObject, NodeSelectorObject, Object


class ClaimSpecObject(Object):
    """spec of a volume claim."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None


class ClaimObject(Object):
    """A v1 PersistentVolumeClaim."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: ClaimSpecObject = msgspec.field(default_factory=ClaimSpecObject)


class VolumeAffinityObject(Key, frozen=True):
    """spec.nodeAffinity of a volume."""

    required: NodeSelectorObject | None = None


class PersistentVolumeSpecObject(Object):
    """spec of a volume."""

    node_affinity: VolumeAffinityObject | None = None


class PersistentVolumeObject(Object):
    """A v1 PersistentVolume."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: PersistentVolumeSpecObject = msgspec.field(default_factory=PersistentVolumeSpecObject)


class TopologyExpressionObject(Key, frozen=True):
    """allowedTopologies[].matchLabelExpressions[] of a storage class."""

    key: str = ""
    values: tuple[str, ...] | None = None


class TopologyTermObject(Key, frozen=True):
    """allowedTopologies[] of a storage class."""

    match_label_expressions: tuple[TopologyExpressionObject, ...] | None = None


class StorageClassObject(Object):
    """A storage.k8s.io/v1 StorageClass."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTermObject, ...] | None = None


class CsiDriverSpecObject(Object):
    """spec of a CSI driver."""

    storage_capacity: bool | None = None


class CsiDriverObject(Object):
    """A storage.k8s.io/v1 CSIDriver."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: CsiDriverSpecObject = msgspec.field(default_factory=CsiDriverSpecObject)
