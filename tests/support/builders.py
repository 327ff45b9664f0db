"""Nodes and pods in one line, as values and as the JSON objects of the API. Every test speaks in these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet import labels
from fleet.constraints import NodeConstraints, Taint
from fleet.device import Alternative, AskKind, Device, DeviceAsk, Partition
from fleet.kube.objects import NodeObject, PodObject, ResourceSliceObject
from fleet.node import Node
from fleet.pod import Berth, Owner, Phase, Pod
from fleet.resources import UNLIMITED, Resources, extended_of

GIB = 2**30


def a_node(
    name: str = "n1",
    *,
    gpus: int | Sequence[str] = 0,
    model: str = "",
    memory_mib: int | None = None,
    dead: Iterable[str] = (),
    is_sharing: bool = True,
    milli_cpu: int = UNLIMITED,
    memory_gib: int = UNLIMITED // GIB,
    pod_slots: int = 110,
    extended: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    is_cordoned: bool = False,
    uid: str = "",
    device_problems: tuple[str, ...] = (),
    mig: Mapping[str, tuple[Partition, ...]] | None = None,
    islands: Sequence[Sequence[str]] = (),
) -> Node:
    """Return a node; amounts left out never limit, `gpus` is a count or the ids, `dead` names the unhealthy ones.

    `mig` names the devices in MIG mode with the instances made beforehand, `islands` the groups of devices.
    """
    ids = [str(i) for i in range(gpus)] if isinstance(gpus, int) else list(gpus)
    gone = set(dead)
    island_of = {i: number for number, group in enumerate(islands, start=1) for i in group}
    devices = tuple(
        Device(
            id=i,
            model=model,
            memory_mib=memory_mib,
            is_healthy=i not in gone,
            partitions=(mig or {}).get(i),
            island=island_of.get(i, 0),
        )
        for i in ids
    )
    amounts = dict(extended or {})
    if not is_sharing and devices:
        amounts.setdefault(NVIDIA_GPU, sum(d.is_healthy for d in devices))
    return Node(
        name=name,
        uid=uid or f"uid-{name}",
        labels=dict(labels or {}),
        taints=taints,
        is_cordoned=is_cordoned,
        allocatable=Resources(
            milli_cpu=milli_cpu, memory_bytes=memory_gib * GIB, pod_slots=pod_slots, extended=extended_of(amounts)
        ),
        devices=devices,
        is_sharing=is_sharing,
        device_problems=device_problems,
    )


def an_ask(
    *,
    whole: int = 0,
    classic: int = 0,
    milli: int = 0,
    mib: int = 0,
    count: int = 1,
    models: tuple[str, ...] = (),
    is_ordered: bool = False,
    profile: str = "",
    is_one_island: bool = False,
    ways: tuple[Alternative, ...] = (),
) -> DeviceAsk | None:
    """Return the ask for chosen whole devices, a classic count, a share or a MIG instance; None for nothing."""
    if profile:
        milli = 1000 * int(profile.partition("g")[0]) // 7
        return DeviceAsk(kind=AskKind.PARTITION, milli_gpu=milli, profile=profile, models=models, is_ordered=is_ordered)
    if ways:
        models, is_ordered = tuple(dict.fromkeys(way.model for way in ways)), len(ways) > 1
        whole = max(way.count for way in ways)
    if whole:
        return DeviceAsk(
            kind=AskKind.CHOSEN,
            count=whole,
            models=models,
            is_ordered=is_ordered,
            is_one_island=is_one_island,
            alternatives=ways,
        )
    if classic:
        return DeviceAsk(kind=AskKind.CLASSIC, count=classic, models=models, is_ordered=is_ordered)
    if milli or mib:
        return DeviceAsk(
            kind=AskKind.SHARE, count=count, milli_gpu=milli, memory_mib=mib, models=models, is_ordered=is_ordered
        )
    return None


def a_pod(
    name: str = "p1",
    *,
    whole: int = 0,
    classic: int = 0,
    milli: int = 0,
    mib: int = 0,
    count: int = 1,
    models: tuple[str, ...] = (),
    is_ordered: bool = False,
    profile: str = "",
    is_one_island: bool = False,
    ways: tuple[Alternative, ...] = (),
    milli_cpu: int = 0,
    memory_gib: int = 0,
    extended: Mapping[str, int] | None = None,
    uid: str = "",
    namespace: str = "default",
    node: str = "",
    pin: str = "",
    devices: tuple[str, ...] | None = None,
    candidates: tuple[Berth, ...] = (),
    gates: tuple[str, ...] | None = None,
    phase: Phase | None = None,
    is_terminating: bool = False,
    is_unschedulable: bool = False,
    constraints: NodeConstraints | None = None,
    priority: int = 0,
    created_at_s: float = 0.0,
    scheduler_name: str = labels.SCHEDULER_NAME,
    owner: Owner | None = None,
    unmodelled: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
    record_problem: str = "",
    gang: str = "",
    gang_size: int = 0,
    seat: Berth | None = None,
    never_preempts: bool = False,
    pod_labels: Mapping[str, str] | None = None,
) -> Pod:
    """Return a pod; without node, pin and candidates it waits behind our gate."""
    amounts = dict(extended or {})
    if classic:
        amounts.setdefault(NVIDIA_GPU, classic)
    is_placed = bool(node or pin or candidates)
    return Pod(
        uid=uid or f"uid-{name}",
        namespace=namespace,
        name=name,
        scheduler_name=scheduler_name,
        created_at_s=created_at_s,
        phase=phase or (Phase.RUNNING if node else Phase.PENDING),
        node_name=node,
        is_terminating=is_terminating,
        is_unschedulable=is_unschedulable,
        priority=priority,
        gates=(() if is_placed else (labels.PLAN_GATE,)) if gates is None else gates,
        requests=Resources(
            milli_cpu=milli_cpu, memory_bytes=memory_gib * GIB, pod_slots=1, extended=extended_of(amounts)
        ),
        ask=an_ask(
            whole=whole,
            classic=classic,
            milli=milli,
            mib=mib,
            count=count,
            models=models,
            is_ordered=is_ordered,
            profile=profile,
            is_one_island=is_one_island,
            ways=ways,
        ),
        constraints=constraints or NodeConstraints(),
        owner=owner or Owner(kind="ReplicaSet", name="rs", uid="uid-rs"),
        pinned_node=pin,
        is_pin_ours=bool(pin),
        devices=devices,
        candidates=candidates,
        unmodelled=unmodelled,
        problems=(*problems, record_problem) if record_problem else problems,
        record_problem=record_problem,
        gang=gang,
        gang_size=gang_size,
        seat=seat,
        never_preempts=never_preempts,
        labels=dict(pod_labels or {}),
    )


def a_state(node: Node, *pods: Pod) -> NodeState:
    """Return what is free on the node while these pods hold their berths."""
    ledger = Ledger()
    ledger.set_node(node)
    for pod in pods:
        ledger.set_pod(pod)
    state = ledger.state(node.name)
    assert state is not None
    return state


def pod_json(
    name: str = "p1",
    *,
    requests: Mapping[str, Any] | None = None,
    containers: Sequence[Mapping[str, Any]] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str | None = None,
    phase: str = "Pending",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a v1 Pod as the API shows it, one container unless `containers` lists them; `spec` adds fields."""
    main = {"name": "main", "resources": {"requests": dict(requests or {})}}
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    if annotations is not None:
        meta["annotations"] = dict(annotations)
    body: dict[str, Any] = {"schedulerName": labels.SCHEDULER_NAME, "containers": list(containers or [main]), **spec}
    if node is not None:
        body["nodeName"] = node
    return {"metadata": meta | dict(metadata or {}), "spec": body, "status": {"phase": phase}}


def node_json(
    name: str = "n1",
    *,
    gpus: int | None = None,
    allocatable_gpus: int | None = None,
    allocatable: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """Return a v1 Node as the API shows it; `gpus` is the capacity of nvidia.com/gpu and, unless said, allocatable."""
    amounts: dict[str, Any] = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    capacity = dict(amounts)
    if gpus is not None:
        capacity[NVIDIA_GPU] = str(gpus)
        amounts[NVIDIA_GPU] = str(gpus if allocatable_gpus is None else allocatable_gpus)
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {"taints": list(taints), **spec},
        "status": {"allocatable": amounts | dict(allocatable or {}), "capacity": capacity},
    }


def slice_json(
    node: str = "n1",
    devices: Sequence[Mapping[str, Any]] = (),
    *,
    name: str = "slice-0",
    driver: str = "gpu.nvidia.com",
    pool: str = "",
    generation: int = 1,
    slices: int = 1,
) -> dict[str, Any]:
    """Return a resource.k8s.io/v1 ResourceSlice of one node."""
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": slices},
            "devices": list(devices),
        },
    }


def pod_object(obj: Mapping[str, Any]) -> PodObject:
    """Return the JSON object parsed as the watch parses it."""
    return msgspec.json.decode(msgspec.json.encode(obj), type=PodObject)


def node_object(obj: Mapping[str, Any]) -> NodeObject:
    """Return the JSON object parsed as the watch parses it."""
    return msgspec.json.decode(msgspec.json.encode(obj), type=NodeObject)


def slice_object(obj: Mapping[str, Any]) -> ResourceSliceObject:
    """Return the JSON object parsed as the watch parses it."""
    return msgspec.json.decode(msgspec.json.encode(obj), type=ResourceSliceObject)


NVIDIA_GPU = labels.NVIDIA_GPU
