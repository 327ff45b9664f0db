"""An independent count over raw API objects: who holds what, and is anything held twice.

Reads plain JSON and shares no code with decode, ledger or planner, so that a fault there cannot hide itself here.
It understands CPU, memory, pod slots, chosen whole devices, shares in milli-GPU and MiB, nvidia.com/gpu counts, and
what KAI's annotations and HAMi's resources ask.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

_SUFFIX = {"m": Decimal("0.001"), "": Decimal(1), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9)}
_SUFFIX |= {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """What the API objects say.

    Attributes:
        pods: All pods counted; bound: those with a node; gated: those with a scheduling gate.
        gpu_milli: Milli-GPU held by bound pods; gpu_capacity_milli: 1000 for each device of each node.
        faults: Over-allocations and unreadable records, each naming its object; empty = sound.
    """

    nodes: int
    pods: int
    bound: int
    gated: int
    gpu_milli: int
    gpu_capacity_milli: int
    faults: tuple[str, ...]

    @property
    def allocated_ratio(self) -> float:
        """Return the share of GPU capacity held, 0 where there is none."""
        return self.gpu_milli / self.gpu_capacity_milli if self.gpu_capacity_milli else 0.0


def recount(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> Recount:
    """Return the count over the `items` of a node list and a pod list, as the API server sent them."""
    by_node: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    total = bound = gated = 0
    for pod in pods:
        total += 1
        spec = pod["spec"]
        gated += bool(spec.get("schedulingGates"))
        if spec.get("nodeName"):
            bound += 1
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                by_node[spec["nodeName"]].append(pod)
    faults: list[str] = []
    gpu_milli = capacity = node_count = 0
    for node in nodes:
        node_count += 1
        name = node["metadata"]["name"]
        capacity += 1000 * int(number(node["status"].get("capacity", {}).get("nvidia.com/gpu", "0")))
        used, found = _recount_node(node, by_node.pop(name, []))
        gpu_milli += used
        faults += found
    faults += [f"pods are bound to a node that does not exist: {name}" for name in sorted(by_node)]
    return Recount(
        nodes=node_count,
        pods=total,
        bound=bound,
        gated=gated,
        gpu_milli=gpu_milli,
        gpu_capacity_milli=capacity,
        faults=tuple(faults),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """What a pod asks of each of its recorded devices, or how many cards it has counted only."""

    devices: int = 0
    milli: int = 0
    mib: int = 0
    is_whole: bool = False
    counted: int = 0


def _ask(pod: Mapping[str, Any], request: Mapping[str, Decimal]) -> _Ask:
    notes = pod["metadata"].get("annotations") or {}
    amount = {key: int(value) for key, value in request.items() if "/" in key}
    count = amount.get("nvidia.com/gpu", 0)
    if amount.get("berthmaster.dev/gpu"):
        return _Ask(devices=amount["berthmaster.dev/gpu"], milli=1000, is_whole=True)
    if amount.get("berthmaster.dev/gpu-milli") or amount.get("berthmaster.dev/gpu-memory-mib"):
        milli, mib = amount.get("berthmaster.dev/gpu-milli", 0), amount.get("berthmaster.dev/gpu-memory-mib", 0)
        return _Ask(devices=1, milli=milli, mib=mib)
    cores, mib = amount.get("nvidia.com/gpucores", 0), amount.get("nvidia.com/gpumem", 0)
    percentage = amount.get("nvidia.com/gpumem-percentage", 0)
    if cores or mib or percentage:
        # Without a wish for memory HAMi gives all of it, so nobody else fits on the card.
        ratio = max(cores, 0 if mib else percentage or 100)
        return _Ask(devices=count or 1, milli=10 * ratio, mib=mib)
    if "gpu-fraction" in notes or "gpu-memory" in notes:
        devices = int(notes.get("gpu-fraction-num-devices", 1))
        fraction = 1000 * number(notes.get("gpu-fraction", 0))
        return _Ask(devices=devices, milli=math.ceil(fraction), mib=int(number(notes.get("gpu-memory", 0))))
    return _Ask(counted=count)


@dataclass(slots=True)
class _Card:
    milli: int = 0
    mib: int = 0
    holders: int = 0
    is_whole: bool = False
    instances: list[str] = field(default_factory=list)


def _recount_node(node: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> tuple[int, list[str]]:
    name = node["metadata"]["name"]
    sums: dict[str, Decimal] = defaultdict(Decimal)
    cards: dict[str, _Card] = defaultdict(_Card)
    faults: list[str] = []
    gpu_milli = 0
    for pod in pods:
        request = _request(pod)
        for key, value in request.items():
            sums[key] += value
        sums["pods"] += 1
        devices = _devices(pod, name)
        ask = _ask(pod, request)
        gpu_milli += 1000 * ask.counted + sum(_milli_of(name_of_part, ask) for name_of_part in devices)
        if len(set(devices)) != len(devices) or len(devices) not in _counts(pod, ask):
            title = f"pod {pod['metadata'].get('namespace')}/{pod['metadata']['name']} on node {name}"
            faults.append(f"{title} asks for {ask.devices} devices and its record names {devices}")
            continue
        for name_of_part in devices:
            device, instance = _split(name_of_part)
            card = cards[device]
            card.holders += 1
            if instance:
                card.instances.append(instance)
                continue
            card.is_whole |= ask.is_whole
            card.milli += ask.milli
            card.mib += ask.mib
    return gpu_milli, [*faults, *_card_faults(node, cards), *_sum_faults(node, sums)]


def _card_faults(node: Mapping[str, Any], cards: Mapping[str, _Card]) -> list[str]:
    name = node["metadata"]["name"]
    count = int(number(node["status"].get("capacity", {}).get("nvidia.com/gpu", "0")))
    card_mib = int(node["metadata"].get("labels", {}).get("nvidia.com/gpu.memory", 0))
    faults: list[str] = []
    for device, card in cards.items():
        title = f"device {name}/{device}"
        if card.milli > 1000:
            faults.append(f"{title} is given {card.milli} of 1000 milli-GPU")
        starts = [instance.rpartition("@")[2] for instance in card.instances]
        if len(set(starts)) != len(starts) or len(starts) not in (0, card.holders):
            faults.append(f"{title} has {card.holders} holders and gives the MIG instances {sorted(card.instances)}")
        if card.is_whole and card.holders > 1:
            faults.append(f"{title} is given whole and has {card.holders} holders")
        if card_mib and card.mib > card_mib:
            faults.append(f"{title} is given {card.mib} of {card_mib} MiB")
        if device.isdigit() and int(device) >= count:
            faults.append(f"{title} does not exist: the node has {count}")
    return faults


def _sum_faults(node: Mapping[str, Any], sums: Mapping[str, Decimal]) -> list[str]:
    allocatable = {key: number(value) for key, value in node["status"]["allocatable"].items()}
    return [
        f"node {node['metadata']['name']} is given {sums[key]} of {allocatable.get(key, 0)} {key}"
        for key in ("cpu", "memory", "pods", "nvidia.com/gpu")
        if sums.get(key, Decimal(0)) > allocatable.get(key, Decimal(0))
    ]


def _counts(pod: Mapping[str, Any], ask: _Ask) -> set[int]:
    """Return how many devices the record may name: what the spec says, or a smaller count of an acceptable model."""
    models = str((pod["metadata"].get("annotations") or {}).get("berthmaster.dev/gpu-models", ""))
    named = re.findall(r"=\s*([0-9]+)", models) if ask.is_whole else []
    return {ask.devices, *(int(count) for count in named if int(count) < ask.devices)}


def _milli_of(name: str, ask: _Ask) -> int:
    """Return what of its device a recorded name stands for; of an instance, its sevenths of the compute."""
    instance = _split(name)[1]
    return 1000 * int(instance.partition("g")[0]) // 7 if instance else ask.milli


def _split(name: str) -> tuple[str, str]:
    """Return a recorded name's device, and profile and start where a MIG instance is meant."""
    if "@" not in name:
        return name, ""
    device, _, instance = name.rpartition(":")
    return device, instance


def _devices(pod: Mapping[str, Any], node: str) -> list[str]:
    notes = pod["metadata"].get("annotations") or {}
    if "berthmaster.dev/devices" in notes:
        return [device for device in str(notes["berthmaster.dev/devices"]).split(",") if device]
    for candidate in str(notes.get("berthmaster.dev/candidates", "")).split(";"):
        name, _, devices = candidate.partition("=")
        if name == node:
            return [device for device in devices.split(",") if device]
    return []


def _request(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for container in pod["spec"].get("containers", []):
        for key, value in (container.get("resources", {}).get("requests") or {}).items():
            sums[key] += number(value)
    for container in pod["spec"].get("initContainers", []):
        for key, value in (container.get("resources", {}).get("requests") or {}).items():
            sums[key] = max(sums[key], number(value))
    return sums


def number(text: Any) -> Decimal:
    """Return a quantity as a number of base units.

    Raises:
        ValueError: It is none.
    """
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None or not any(map(str.isdigit, found[1])) or found[2] not in _SUFFIX:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(found[1]) * _SUFFIX[found[2]]
