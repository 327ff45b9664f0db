"""The objects of a simulated machine: the record of its order and the Node it becomes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fleet import labels
from fleet.resources import UNLIMITED
from warmpool.providers.objects import Meta, offer_labels, offer_text, taint_objects
from warmpool.providers.provider import Machine, MachinePhase, Refusal
from warmpool.values import Offer, PoolSpec

KIND = "kwok"
_MOST_PODS = 1000
_PLATFORM = {
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "amd64",
}


class Record(msgspec.Struct, rename="camel"):
    """A ConfigMap that stands for one ordered machine."""

    metadata: Meta
    data: dict[str, str] | None = None

    @property
    def name(self) -> str:
        """Return the machine's name, which is its Node's."""
        return self.metadata.name

    def get(self, key: str) -> str:
        """Return one entry, "" = there is none."""
        return (self.data or {}).get(key, "")

    @property
    def offer(self) -> Offer:
        """Return what it was ordered as."""
        return Offer(zone=self.get("zone"), capacity_type=self.get("capacityType"))


def record_object(pool: PoolSpec, offer: Offer, name: str, namespace: str) -> dict[str, Any]:
    """Return the ConfigMap of a new order; the Node lies in it ready, so that a restarted cloud still can make it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {labels.POOL: pool.name, labels.MACHINE: KIND},
        },
        "data": {
            "zone": offer.zone,
            "capacityType": offer.capacity_type,
            "shape": pool.shape.fingerprint,
            "devices": f"{pool.shape.device_resource}={pool.shape.devices}",
            "node": msgspec.json.encode(node_object(pool, offer, name)).decode(),
        },
    }


def node_object(pool: PoolSpec, offer: Offer, name: str) -> dict[str, Any]:
    """Return the Node as it registers: tainted, and without devices and images yet."""
    shape = pool.shape
    found = {
        **_PLATFORM,
        **dict(shape.labels),
        labels.HOSTNAME: name,
        labels.POOL: pool.name,
        labels.MACHINE: KIND,
        **offer_labels(shape, offer),
    }
    if shape.devices:
        found |= {labels.GPU_COUNT: str(shape.devices), labels.GPU_PRODUCT: shape.device_model}
    amounts = {
        "cpu": f"{shape.allocatable.milli_cpu or 8000}m",
        "memory": str(shape.allocatable.memory_bytes or 32 * 2**30),
        "pods": str(shape.allocatable.pod_slots if 0 < shape.allocatable.pod_slots < UNLIMITED else _MOST_PODS),
        **{name: str(amount) for name, amount in shape.allocatable.extended if name != shape.device_resource},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {key: text for key, text in found.items() if text},
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                labels.SHAPE: shape.fingerprint,
                labels.OFFER: offer_text(offer),
            },
        },
        "spec": {"taints": taint_objects(pool.pool_taint, pool.readiness_taint)},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def devices_patch(record: Record) -> bytes | None:
    """Return the merge patch of /status that announces the devices; None = the shape has none."""
    resource, _, count = record.get("devices").rpartition("=")
    if not resource or count in ("", "0"):
        return None
    amounts = {resource: count}
    return msgspec.json.encode({"status": {"capacity": amounts, "allocatable": amounts}})


def images_patch(images: Iterable[str]) -> bytes:
    """Return the merge patch of /status that lists the images: all of them, because the list is replaced."""
    listed = [{"names": [name], "sizeBytes": 6 * 10**9} for name in sorted(images)]
    return msgspec.json.encode({"status": {"images": listed}})


def machine_of(record: Record, nodes: Mapping[str, Any]) -> Machine:
    """Return what the provider shows of a record."""
    phase = MachinePhase.REGISTERED if record.name in nodes else MachinePhase.ORDERED
    if phase is MachinePhase.ORDERED and record.get("launched"):
        phase = MachinePhase.LAUNCHED
    is_refused = bool(record.get("refused"))
    return Machine(
        name=record.name,
        pool=(record.metadata.labels or {}).get(labels.POOL, ""),
        node_name=record.name if record.name in nodes else "",
        phase=MachinePhase.FAILED if is_refused else phase,
        refusal=Refusal.INSUFFICIENT_CAPACITY if is_refused else None,
        detail=record.get("refused"),
        offer=record.offer,
        shape=record.get("shape"),
        uid=record.metadata.uid,
        is_deleting=bool(record.get("released")),
    )
