"""A v1 Node to a `Node`, its devices from resource slices or, without any, from counts and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from fleet import labels
from fleet.constraints import Taint
from fleet.device import Device
from fleet.kube.device_notes import noted
from fleet.kube.objects import NodeObject, Quantities, ResourceSliceObject, TaintObject
from fleet.kube.requests import read_milli
from fleet.kube.slices import devices_from
from fleet.node import Node
from fleet.resources import UNLIMITED, Resources, extended_of

_NOT_EXTENDED = frozenset({"cpu", "memory", "pods", *labels.IGNORED_BY_SCHEDULER})
_MOST_DEVICES = 1024  # per node, far above any machine's; a wrong count must not eat the memory


def node_from(obj: NodeObject, slices: Sequence[ResourceSliceObject]) -> Node:
    """Return the node with its devices: from its resource slices where they tell of GPUs, else from its counts.

    Amounts that cannot be read count as nothing, and whatever makes the devices doubtful stands in `device_problems`.
    The unhealthy-devices annotation may name devices that are gone: only the present ones matter.

    Args:
        obj: The node.
        slices: All ResourceSlices whose spec.nodeName is this node's name, of any driver and pool, in any order.
    """
    meta, spec, status = obj.metadata, obj.spec, obj.status
    node_labels = meta.labels or {}
    is_sharing = node_labels.get(labels.DEVICE_SHARING) == "true"
    problems: list[str] = []
    allocatable = resources_of(status.allocatable if status else None, problems)
    dead = _dead_ids(meta.annotations or {}, problems)
    devices = devices_from(slices, dead, problems)
    if devices is None:
        capacity = _count(status.capacity if status else None, problems)
        usable = _count(status.allocatable if status else None, problems)
        build = _sharing_devices if is_sharing else _classic_devices
        devices = build(capacity, usable, node_labels, dead, problems)
    if is_sharing and meta.annotations:
        devices = noted(devices, meta.annotations, problems)
    taints = _taints(spec.taints) if spec and spec.taints else ()
    pool = _pool(taints) if taints else ""
    notes = (meta.annotations or {}) if pool else {}
    return Node(
        name=meta.name,
        uid=meta.uid,
        labels=node_labels,
        taints=taints,
        is_cordoned=bool(spec and spec.unschedulable),
        allocatable=allocatable,
        devices=devices,
        is_sharing=is_sharing,
        device_problems=tuple(dict.fromkeys(problems)),
        pool=pool,
        warm=notes.get(labels.WARM, ""),
        claim=notes.get(labels.CLAIM, ""),
        is_spare=notes.get(labels.SPARE) == "true",
        is_kept=notes.get(labels.KEEP) == "true",
        closing=notes.get(labels.CLOSING, ""),
    )


@lru_cache(maxsize=1024)
def _taints(objects: tuple[TaintObject, ...]) -> tuple[Taint, ...]:
    return tuple(Taint(key=t.key, value=t.value or "", effect=t.effect or "") for t in objects)


@lru_cache(maxsize=1024)
def _pool(taints: tuple[Taint, ...]) -> str:
    return next((t.value for t in taints if t.key == labels.POOL and t.effect != "PreferNoSchedule"), "")


def resources_of(amounts: Quantities | None, problems: list[str]) -> Resources:
    """Return amounts as they stand in an object; those that cannot be read are told and count as nothing."""
    return _resources_of(tuple(amounts.items()), problems) if amounts else Resources()


def _resources_of(amounts: tuple[tuple[str, str | int | float], ...], problems: list[str]) -> Resources:
    milli = read_milli(amounts, "allocatable", problems)
    whole = {name: min(UNLIMITED, amount // 1000) for name, amount in milli.items()}
    return Resources(
        milli_cpu=min(UNLIMITED, milli.get("cpu", 0)),
        memory_bytes=whole.get("memory", 0),
        pod_slots=whole.get("pods", 0),
        extended=extended_of({name: amount for name, amount in whole.items() if name not in _NOT_EXTENDED}),
    )


def _count(amounts: Quantities | None, problems: list[str]) -> int | None:
    """Return the number of nvidia.com/gpu; None where it is not advertised or cannot be read."""
    if not amounts or labels.NVIDIA_GPU not in amounts:
        return None
    milli = read_milli(((labels.NVIDIA_GPU, amounts[labels.NVIDIA_GPU]),), "node", problems)
    return milli[labels.NVIDIA_GPU] // 1000 if milli else None


def _dead_ids(annotations: Mapping[str, str], problems: list[str]) -> frozenset[str]:
    """Return the devices that people or their tools declared dead."""
    text = annotations.get(labels.UNHEALTHY_DEVICES, "")
    if not text.strip():
        return frozenset()
    ids = [part.strip() for part in text.split(",")]
    if not all(ids):
        problems.append(f"annotation {labels.UNHEALTHY_DEVICES} {text[:80]!r} is not a list of devices")
    return frozenset(ids)


def _sharing_devices(
    capacity: int | None, usable: int | None, node_labels: Mapping[str, str], dead: frozenset[str], problems: list[str]
) -> tuple[Device, ...]:
    """Return one device per physical card: the label's count where a plugin advertises each card several times."""
    labelled = _label_number(node_labels, labels.GPU_COUNT, problems)
    advertised = usable if capacity is None else capacity
    physical = min(n for n in (labelled, advertised, _MOST_DEVICES) if n is not None)
    if labelled is None and advertised is None:
        return ()
    devices = _devices(physical, dead, node_labels, problems)
    missing = (capacity or 0) - (usable or 0)
    replicas = max(1, (capacity or 0) // max(1, physical))
    named = sum(not device.is_healthy for device in devices)
    if missing > named * replicas:
        problems.append(
            f"{missing} of {capacity} {labels.NVIDIA_GPU} are not allocatable, and no annotation names them"
        )
    return devices


def _classic_devices(
    capacity: int | None, usable: int | None, node_labels: Mapping[str, str], dead: frozenset[str], problems: list[str]
) -> tuple[Device, ...]:
    """Return counters: as many healthy ones as are allocatable; which card is dead is the kubelet's business."""
    healthy = min(usable or 0, _MOST_DEVICES)
    total = max(healthy, min(capacity or 0, _MOST_DEVICES))
    gone = frozenset(str(index) for index in range(healthy, total))
    return _devices(total, gone, node_labels, problems)


def _devices(
    count: int, dead: frozenset[str], node_labels: Mapping[str, str], problems: list[str]
) -> tuple[Device, ...]:
    memory_mib = _label_number(node_labels, labels.GPU_MEMORY, problems)
    return _alike(count, node_labels.get(labels.GPU_PRODUCT, ""), memory_mib, dead)


@lru_cache(maxsize=1024)
def _alike(count: int, model: str, memory_mib: int | None, dead: frozenset[str]) -> tuple[Device, ...]:
    """Return devices named by index; nodes of one kind share them."""
    return tuple(
        Device(id=str(index), model=model, memory_mib=memory_mib, is_healthy=str(index) not in dead)
        for index in range(count)
    )


def _label_number(node_labels: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = node_labels.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        problems.append(f"label {name} {text!r} is not a number")
        return None
    return int(text)
