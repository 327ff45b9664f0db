"""How many pods of a kind would fit on a node now, counted from plain JSON: bound, pinned, and kept by seats.

It shares no code with the planner, and knows the shapes of the bench's own pods on the bench's own nodes
(`bench.chaos.load`): whole devices chosen or counted, shares of one device, CPU. MIG instances are left to `recount`
and to the bindings' judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.chaos.judge import is_over, node_of, note, pinned_node, seat
from berthmaster.recount import number

Object = Mapping[str, Any]
_GPU, _MILLI, _MIB, _COUNTED = (
    "berthmaster.dev/gpu",
    "berthmaster.dev/gpu-milli",
    "berthmaster.dev/gpu-memory-mib",
    "nvidia.com/gpu",
)
_POOL = "bench.berthmaster.dev/pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a pod requests: milli-CPU, bytes, whole chosen devices, or a share of one, or a count; and its pool."""

    pool: str
    milli_cpu: int
    memory_bytes: int = 0
    chosen: int = 0
    milli_gpu: int = 0
    mib: int = 0
    counted: int = 0


@dataclass(slots=True)
class Free:
    """What is left of one node."""

    pool: str
    milli_cpu: int
    memory_bytes: int
    pod_slots: int
    counted: int
    milli: dict[str, int] = field(default_factory=dict)
    mib: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def shape_of(pod: Object) -> Shape:
    """Return what a pod requests."""
    wanted: dict[str, int] = defaultdict(int)
    for container in pod["spec"]["containers"]:
        for name, text in (container.get("resources", {}).get("requests") or {}).items():
            wanted[name] += int(1000 * number(text)) if name == "cpu" else int(number(text))
    return Shape(
        pool=str((pod["spec"].get("nodeSelector") or {}).get(_POOL, "")),
        milli_cpu=wanted["cpu"],
        memory_bytes=wanted["memory"],
        chosen=wanted[_GPU],
        milli_gpu=wanted[_MILLI],
        mib=wanted[_MIB],
        counted=wanted[_COUNTED],
    )


def is_judged(pod: Object) -> bool:
    """Return whether this file knows the pod's shape."""
    return not note(pod, "mig-profile")


def free_by_node(nodes: Iterable[Object], pods: Iterable[Object]) -> dict[str, Free]:
    """Return what is left on every node that takes pods."""
    found = {node["metadata"]["name"]: _whole(node) for node in nodes if _takes_pods(node)}
    for pod in pods:
        if is_over(pod):
            continue
        kept, shape = seat(pod), shape_of(pod)
        if kept is not None:
            _hold(found.get(kept[0]), shape, kept[1])
        elif node := node_of(pod) or pinned_node(pod):
            _hold(found.get(node), shape, _devices(pod, node))
        else:
            for candidate in note(pod, "candidates").split(";"):
                name, _, devices = candidate.partition("=")
                _hold(found.get(name), shape, tuple(filter(None, devices.split(","))))
    return found


def fits(shape: Shape, free: Free) -> int:
    """Return how many pods of the shape fit on what is left."""
    if shape.pool != free.pool:
        return 0
    limits = [free.pod_slots]
    limits += [free.milli_cpu // shape.milli_cpu] if shape.milli_cpu else []
    limits += [free.memory_bytes // shape.memory_bytes] if shape.memory_bytes else []
    if shape.counted:
        limits.append(free.counted // shape.counted)
    if shape.chosen:
        limits.append(sum(not free.users[device] for device in free.milli) // shape.chosen)
    if shape.milli_gpu or shape.mib:
        limits.append(sum(_shares(shape, free, device) for device in free.milli))
    return max(0, min(limits))


def _shares(shape: Shape, free: Free, device: str) -> int:
    by_milli = free.milli[device] // shape.milli_gpu if shape.milli_gpu else 1000
    by_mib = free.mib[device] // shape.mib if shape.mib else 1000
    return max(0, min(by_milli, by_mib))


def _takes_pods(node: Object) -> bool:
    spec = node.get("spec", {})
    return not spec.get("unschedulable") and not spec.get("taints")


def _whole(node: Object) -> Free:
    amounts = node["status"]["allocatable"]
    marks = node["metadata"]["labels"]
    dead = set(filter(None, note(node, "unhealthy-devices").split(",")))
    present = int(number(node["status"]["capacity"].get(_COUNTED, "0")))
    allocatable = int(number(amounts.get(_COUNTED, "0")))
    found = Free(
        pool=str(marks.get(_POOL, "")),
        milli_cpu=int(1000 * number(amounts["cpu"])),
        memory_bytes=int(number(amounts["memory"])),
        pod_slots=int(number(amounts["pods"])),
        counted=allocatable,
    )
    alive = [str(device) for device in range(present) if str(device) not in dead]
    # Fewer are allocatable than are said to be well: which, nobody knows, and none may be given.
    if len(alive) <= allocatable:
        found.milli = dict.fromkeys(alive, 1000)
        found.mib = dict.fromkeys(alive, int(marks.get("nvidia.com/gpu.memory", 0)))
    return found


def _hold(free: Free | None, shape: Shape, devices: tuple[str, ...]) -> None:
    if free is None:
        return
    free.milli_cpu -= shape.milli_cpu
    free.memory_bytes -= shape.memory_bytes
    free.pod_slots -= 1
    free.counted -= shape.counted
    for device in devices:
        free.users[device] += 1
        if device in free.milli:
            free.milli[device] -= 1000 if shape.chosen else shape.milli_gpu
            free.mib[device] -= free.mib[device] if shape.chosen else shape.mib


def _devices(pod: Object, node: str) -> tuple[str, ...]:
    text = note(pod, "devices")
    if not text:
        named = dict(part.partition("=")[::2] for part in note(pod, "candidates").split(";"))
        text = named.get(node, "")
    return tuple(filter(None, text.split(",")))
