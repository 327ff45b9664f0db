"""The devices of one node from its ResourceSlices (Dynamic Resource Allocation)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from fleet import labels, quantity
from fleet.device import Device
from fleet.errors import QuantityError
from fleet.kube.objects import DeviceObject, ResourceSliceObject

_MIB = 2**20
_DEADLY_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def devices_from(
    slices: Sequence[ResourceSliceObject], dead: frozenset[str], problems: list[str]
) -> tuple[Device, ...] | None:
    """Return the node's GPUs in order of pool, slice and place; None where no slice tells of GPUs.

    Only the newest generation of each pool counts. A pool of which a slice is still missing goes to `problems`, as does
    an id that two devices share: who would be given one of them is unknown.

    Args:
        slices: Slices of one node.
        dead: Ids that an annotation declares unhealthy, beside the devices' own taints.
        problems: Receives why no device may be given.
    """
    relevant = [s for s in slices if _is_of_gpus(s)]
    if not relevant:
        return None
    devices: dict[str, Device] = {}
    for obj in _newest(relevant, problems):
        for entry in obj.spec.devices or ():
            if _attribute(entry, "type") in ("", "gpu"):
                device = _device(entry, dead, problems)
                if device.id in devices:
                    problems.append(f"device {device.id} stands in several resource slices")
                devices[device.id] = device
    return tuple(devices.values())


def _is_of_gpus(obj: ResourceSliceObject) -> bool:
    """Return True for the slice of a GPU driver, by its name: network cards have product names and UUIDs too."""
    return obj.spec.driver.startswith(labels.DRA_GPU_DRIVERS)


def _newest(slices: Iterable[ResourceSliceObject], problems: list[str]) -> list[ResourceSliceObject]:
    pools: dict[tuple[str, str], list[ResourceSliceObject]] = {}
    for obj in slices:
        pools.setdefault((obj.spec.driver, obj.spec.pool.name), []).append(obj)
    newest: list[ResourceSliceObject] = []
    for (_, name), members in sorted(pools.items()):
        generation = max(obj.spec.pool.generation for obj in members)
        current = [obj for obj in members if obj.spec.pool.generation == generation]
        wanted = max(obj.spec.pool.resource_slice_count for obj in current)
        if len(current) < wanted:
            problems.append(f"pool {name}: {len(current)} of {wanted} resource slices are here")
        newest += sorted(current, key=lambda obj: obj.metadata.name)
    return newest


def _device(entry: DeviceObject, dead: frozenset[str], problems: list[str]) -> Device:
    name = entry.name or _attribute(entry, "uuid")
    is_tainted = any(taint.effect in _DEADLY_EFFECTS for taint in entry.taints or ())
    uuid = _attribute(entry, "uuid")
    return _shared(
        name,
        _attribute(entry, "productName"),
        _memory_mib(entry, problems),
        not is_tainted and name not in dead and uuid not in dead,
    )


@lru_cache(maxsize=8192)
def _shared(name: str, model: str, memory_mib: int | None, is_healthy: bool) -> Device:
    return Device(id=name, model=model, memory_mib=memory_mib, is_healthy=is_healthy)


def _memory_mib(entry: DeviceObject, problems: list[str]) -> int | None:
    for key, capacity in (entry.capacity or {}).items():
        if _last(key) == "memory" and capacity.value is not None:
            try:
                return quantity.units(str(capacity.value)) // _MIB
            except QuantityError as error:
                problems.append(f"device {entry.name}: memory: {error}")
    return None


def _attribute(entry: DeviceObject, name: str) -> str:
    """Return a text attribute, with or without the driver's domain before its name; "" = absent."""
    for key, attribute in (entry.attributes or {}).items():
        if _last(key) == name and attribute.string:
            return attribute.string
    return ""


def _last(qualified: str) -> str:
    return qualified.rpartition("/")[2]
