"""Volume claims, volumes and storage classes of the API as values."""

from __future__ import annotations

from fleet.constraints import NodeTerm, Requirement
from fleet.kube.objects import RequirementObject
from fleet.kube.volume_objects import ClaimObject, PersistentVolumeObject, StorageClassObject
from fleet.volumes import Claim, StorageClass, Volume

# What the volume controller and a scheduler write on claims (kubernetes: component-helpers/storage/volume).
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_ZONES = frozenset(
    f"{prefix}/{part}"
    for prefix in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
    for part in ("zone", "region")
)


def claim_from(obj: ClaimObject) -> Claim:
    """Return the claim."""
    meta, spec = obj.metadata, obj.spec
    notes = meta.annotations or {}
    return Claim(
        namespace=meta.namespace,
        name=meta.name,
        volume=spec.volume_name or "",
        is_bound=bool(spec.volume_name) and _BIND_COMPLETED in notes,
        class_name=notes.get(_CLASS) or spec.storage_class_name or "",
        selected_node=notes.get(_SELECTED_NODE, ""),
        is_for_one_pod="ReadWriteOncePod" in (spec.access_modes or ()),
        is_leaving=meta.deletion_timestamp is not None,
    )


def volume_from(obj: PersistentVolumeObject) -> Volume:
    """Return the volume; of its labels those of zone and region."""
    affinity = obj.spec.node_affinity
    required = affinity.required if affinity is not None else None
    labels = obj.metadata.labels or {}
    return Volume(
        name=obj.metadata.name,
        terms=None
        if required is None
        else tuple(
            NodeTerm(labels=_requirements(term.match_expressions), fields=_requirements(term.match_fields))
            for term in required.node_selector_terms or ()
        ),
        labels=tuple(sorted((key, value) for key, value in labels.items() if key in _ZONES)),
    )


def storage_class_from(obj: StorageClassObject) -> StorageClass:
    """Return the storage class."""
    return StorageClass(
        name=obj.metadata.name,
        provisioner=obj.provisioner,
        waits_for_pod=obj.volume_binding_mode == "WaitForFirstConsumer",
        terms=tuple(
            NodeTerm(
                labels=tuple(
                    Requirement(key=one.key, operator="In", values=one.values or ())
                    for one in term.match_label_expressions or ()
                )
            )
            for term in obj.allowed_topologies or ()
        ),
    )


def _requirements(objects: tuple[RequirementObject, ...] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(key=one.key, operator=one.operator, values=one.values or ()) for one in objects or ())
