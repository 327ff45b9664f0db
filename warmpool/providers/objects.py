"""The parts of API objects that several providers read and write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from fleet import labels
from fleet.constraints import Taint
from warmpool.values import Offer, PoolSpec, Shape

ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"

T = TypeVar("T")


class Meta(msgspec.Struct, rename="camel"):
    """metadata of any object."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None

    @property
    def pool(self) -> str:
        """Return the pool that it says it is of, "" = none."""
        return (self.labels or {}).get(labels.POOL, "")

    def note(self, name: str) -> str:
        """Return an annotation, "" = there is none."""
        return (self.annotations or {}).get(name, "")


class Condition(msgspec.Struct, rename="camel"):
    """One of status.conditions."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class Listed(msgspec.Struct, Generic[T]):
    """A list of objects."""

    items: list[T]


def taint_objects(*taints: Taint) -> list[dict[str, str]]:
    """Return taints as the API writes them."""
    return [
        {key: text for key, text in (("key", t.key), ("value", t.value), ("effect", t.effect)) if text} for t in taints
    ]


def offer_labels(shape: Shape, offer: Offer) -> Mapping[str, str]:
    """Return the labels that say what was bought; what is left to the provider is left out."""
    found = {INSTANCE_TYPE: shape.instance_type, ZONE: offer.zone, CAPACITY_TYPE: offer.capacity_type}
    return {name: text for name, text in found.items() if text}


def requests(shape: Shape) -> dict[str, str]:
    """Return the shape's resources, devices among them, as a resource list; what is not told is left out."""
    amounts: dict[str, Any] = {name: amount for name, amount in shape.allocatable.extended}
    if shape.devices:
        amounts[shape.device_resource] = shape.devices
    found = {name: str(amount) for name, amount in amounts.items()}
    if shape.allocatable.milli_cpu:
        found["cpu"] = f"{shape.allocatable.milli_cpu}m"
    if shape.allocatable.memory_bytes:
        found["memory"] = str(shape.allocatable.memory_bytes)
    return found


def setting(pool: PoolSpec, name: str, default: str = "") -> str:
    """Return one of the provider's settings of a pool."""
    return pool.provider_settings.get(name, default)


def offer_text(offer: Offer) -> str:
    """Return an offer as an annotation."""
    return f"{offer.zone}/{offer.capacity_type}"


def read_offer(text: str) -> Offer:
    """Return the offer of an annotation; a text that is none is a free choice."""
    zone, slash, capacity_type = text.partition("/")
    return Offer(zone=zone, capacity_type=capacity_type) if slash else Offer()
