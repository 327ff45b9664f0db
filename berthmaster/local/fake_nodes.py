"""Nodes that kwok keeps: values to API objects, and their creation, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from berthmaster.local.progress import Tell
from fleet import labels
from fleet.clock import SystemClock
from fleet.condition import stamp
from fleet.device import Device
from fleet.errors import Conflict, LocalClusterError
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import Connection
from fleet.node import Node
from fleet.resources import UNLIMITED, Resources

_IN_FLIGHT = 32
_READY_POLL_S = 1.0
_NOT_READY_TAINT = "node.kubernetes.io/not-ready"
_MOST_PODS = 1000
# Both spellings, as kubelet writes them: the controller manager would patch every node to add the old one.
_PLATFORM = {
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "amd64",
}
# What kubelet reports of a sound node: (type, status, reason).
_SOUND = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("NetworkUnavailable", "False", "RouteCreated"),
)


def uniform(
    count: int,
    *,
    is_sharing: bool,
    prefix: str = "node",
    gpus: int = 8,
    model: str = "NVIDIA-A100-SXM4-80GB",
    gpu_memory_mib: int = 81_920,
    milli_cpu: int = 96_000,
    memory_bytes: int = 512 * 2**30,
    pod_slots: int = 250,
) -> tuple[Node, ...]:
    """Return `count` equal nodes, named prefix-0000 and so on."""
    devices = tuple(Device(id=str(index), model=model, memory_mib=gpu_memory_mib) for index in range(gpus))
    allocatable = Resources(milli_cpu=milli_cpu, memory_bytes=memory_bytes, pod_slots=pod_slots)
    return tuple(
        Node(name=f"{prefix}-{index:04d}", allocatable=allocatable, devices=devices, is_sharing=is_sharing)
        for index in range(count)
    )


def manifest(node: Node, *, now_s: float, kubelet: str) -> dict[str, object]:
    """Return the v1 Node of a sound machine: Ready from the start, so that kwok has nothing left to do but keep it so.

    Args:
        node: Amounts, labels, taints and devices; unhealthy devices are capacity, but not allocatable.
        now_s: Time of its conditions.
        kubelet: Version it shows.
    """
    sharing = {labels.DEVICE_SHARING: "true"} if node.is_sharing else {}
    spec: dict[str, object] = {}
    if node.taints:
        spec["taints"] = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
    if node.is_cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                labels.HOSTNAME: node.name,
                **_PLATFORM,
                "type": "kwok",
                **_gpu_labels(node.devices),
                **sharing,
                **node.labels,
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": spec,
        "status": {
            "capacity": _amounts(node.allocatable, len(node.devices)),
            "allocatable": _amounts(node.allocatable, sum(device.is_healthy for device in node.devices)),
            "conditions": _conditions(now_s),
            "nodeInfo": _node_info(kubelet),
        },
    }


async def create(connection: Connection, nodes: Sequence[Node], *, clock: SystemClock, kubelet: str, tell: Tell) -> int:
    """Create nodes, 32 in flight, and return how many did not exist before.

    Raises:
        ApiError: The API server refused one.
    """
    created = done = 0
    waiting = iter(nodes)

    async def work(client: Client) -> None:
        nonlocal created, done
        for node in waiting:
            body = msgspec.json.encode(manifest(node, now_s=clock.now_s(), kubelet=kubelet))
            try:
                await client.create(paths.NODES, body, timeout_s=30.0)
                created += 1
            except Conflict:
                pass  # it exists: `up` was typed twice
            done += 1
            tell(done / len(nodes), f"{done} of {len(nodes)}")

    async with Client(connection, clock, user_agent="berthmaster-up") as client, asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(work(client))
    return created


async def wait_ready(
    connection: Connection, names: Iterable[str], *, clock: SystemClock, most_s: float, tell: Tell
) -> None:
    """Wait until pods may be placed on all the nodes: Ready, and free of the taint that new nodes carry.

    Raises:
        LocalClusterError: Some are not ready in time.
    """
    wanted = set(names)
    deadline_s = clock.monotonic_s() + most_s
    decode = msgspec.json.Decoder(_NodeList).decode
    async with Client(connection, clock, user_agent="berthmaster-up") as client:
        while True:
            listed = decode(await client.get(paths.NODES, {"resourceVersion": "0"}))
            ready = {node.metadata.name for node in listed.items if node.is_ready} & wanted
            tell(len(ready) / max(1, len(wanted)), f"{len(ready)} of {len(wanted)} ready")
            if len(ready) == len(wanted):
                return
            if clock.monotonic_s() > deadline_s:
                raise LocalClusterError(
                    f"{len(wanted) - len(ready)} of {len(wanted)} nodes are not Ready after {most_s:.0f} s"
                )
            await clock.sleep(_READY_POLL_S)


class _Metadata(msgspec.Struct):
    name: str


class _Taint(msgspec.Struct):
    key: str


class _Spec(msgspec.Struct):
    taints: list[_Taint] = []


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status

    @property
    def is_ready(self) -> bool:
        """Return True if kube-scheduler may use it."""
        says_so = any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)
        return says_so and all(taint.key != _NOT_READY_TAINT for taint in self.spec.taints)


class _NodeList(msgspec.Struct):
    items: list[_Node]


def _gpu_labels(devices: Sequence[Device]) -> dict[str, str]:
    """Return what GPU feature discovery would label: product, memory (MiB) and count."""
    if not devices:
        return {}
    found = {labels.GPU_COUNT: str(len(devices))}
    if devices[0].model:
        found[labels.GPU_PRODUCT] = devices[0].model
    if devices[0].memory_mib is not None:
        found[labels.GPU_MEMORY] = str(devices[0].memory_mib)
    return found


def _amounts(resources: Resources, gpus: int) -> dict[str, str]:
    amounts = {
        "cpu": f"{resources.milli_cpu}m",
        "memory": str(resources.memory_bytes),
        "pods": str(resources.pod_slots if resources.pod_slots < UNLIMITED else _MOST_PODS),
        **{name: str(amount) for name, amount in resources.extended},
    }
    if gpus:
        amounts[labels.NVIDIA_GPU] = str(gpus)
    return amounts


def _conditions(now_s: float) -> list[dict[str, str]]:
    now = stamp(now_s)
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason in _SOUND
    ]


def _node_info(kubelet: str) -> dict[str, str]:
    shown = {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "containerRuntimeVersion": "kwok",
        "kernelVersion": "kwok",
        "kubeletVersion": kubelet,
    }
    silent = ("bootID", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
    return {**shown, **dict.fromkeys(silent, "")}
