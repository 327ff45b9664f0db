"""In which order waiting pods of several namespaces are placed where there is not room for all of them. Pure.

Priority comes first. Within one priority the namespace goes next whose dominant share of the cluster's GPUs, over its
weight, is the smallest (dominant resource fairness, Ghodsi et al., NSDI 2011; here the resources are the GPU models,
and milli-CPU for pods without GPUs): what one placed pod takes counts at once, so that namespaces of equal weight take
turns by size, not by number. Within one namespace the oldest pod goes first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fleet.device import WHOLE_MILLI
from fleet.node import Node
from fleet.pod import Pod

CPU: Final = "cpu"
_ANY_MODEL: Final = ""
_LEAST_WEIGHT, _MOST_WEIGHT = 0.001, 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What namespaces hold, and what there is of it.

    Attributes:
        capacity: By GPU model (and "cpu"), in milli-GPU (milli-CPU).
        held: By namespace, by GPU model (and "cpu").
        weights: By namespace; 1 where it says none.
    """

    capacity: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def share(self, namespace: str, more: Mapping[str, int] | None = None) -> float:
        """Return the largest part that a namespace holds of any GPU model (or of the CPU), over its weight."""
        held = Counter(self.held.get(namespace, {}))
        held.update(more or {})
        parts = [amount / self.capacity[name] for name, amount in held.items() if self.capacity.get(name)]
        return max(parts, default=0.0) / self.weights.get(namespace, 1.0)


def fair_order(pods: Iterable[Pod], standing: Standing) -> list[Pod]:
    """Return the pods in the order in which they are to be placed."""
    by_priority: dict[int, list[Pod]] = {}
    for pod in pods:
        by_priority.setdefault(pod.priority, []).append(pod)
    taken: dict[str, Counter[str]] = {}
    found: list[Pod] = []
    for priority in sorted(by_priority, reverse=True):
        queues: dict[str, list[Pod]] = {}
        for pod in sorted(by_priority[priority], key=lambda pod: (pod.created_at_s, pod.key), reverse=True):
            queues.setdefault(pod.namespace, []).append(pod)
        heap = [(standing.share(name, taken.get(name)), queue[-1].created_at_s, name) for name, queue in queues.items()]
        heapq.heapify(heap)
        while heap:
            *_, name = heapq.heappop(heap)
            pod = queues[name].pop()
            found.append(pod)
            taken.setdefault(name, Counter()).update(_asked(pod, standing))
            if queues[name]:
                heapq.heappush(heap, (standing.share(name, taken[name]), queues[name][-1].created_at_s, name))
    return found


def weight_of(text: str) -> float | None:
    """Return the weight that an annotation tells, 0.001 to 1000; None where it tells none."""
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if _LEAST_WEIGHT <= weight <= _MOST_WEIGHT else None


def holding_of(pod: Pod, node: Node) -> dict[str, int]:
    """Return what a pod holds of the cluster on this node, by GPU model, or of the CPU where it has no GPU."""
    if pod.ask is None:
        return {CPU: pod.requests.milli_cpu}
    if pod.devices:
        models = {device.id: device.model for device in node.devices}
        found: Counter[str] = Counter()
        for name in pod.devices:
            found[models.get(name, _ANY_MODEL)] += pod.ask.milli_gpu
        return dict(found)
    return {(node.devices[0].model if node.devices else _ANY_MODEL): pod.ask.total_milli_gpu}


def capacity_of(nodes: Iterable[Node]) -> dict[str, int]:
    """Return what there is, by GPU model, and of the CPU."""
    found: Counter[str] = Counter()
    for node in nodes:
        found[CPU] += node.allocatable.milli_cpu
        for device in node.devices:
            found[device.model] += WHOLE_MILLI
    return dict(found)


def _asked(pod: Pod, standing: Standing) -> dict[str, int]:
    """Return what a pod would hold: of the model it asks for, else of the one there is most of."""
    if pod.ask is None:
        return {CPU: pod.requests.milli_cpu}
    models: Sequence[str] = [name for name in standing.capacity if name != CPU]
    wanted = [name for name in models if any(one.lower() in name.lower() for one in pod.ask.models)] or models
    if not wanted:
        return {}
    return {max(wanted, key=lambda name: (standing.capacity[name], name)): pod.ask.total_milli_gpu}
