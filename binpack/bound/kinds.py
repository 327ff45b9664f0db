"""Nodes and pods as the bound sees them: few kinds, whole numbers, every simplification in the demand's favour.

What is simplified can only let more fit, so that a limit proved here holds for the real cluster too: memory, pod slots,
constraints other than models, and whatever else a node may refuse for are left out; CPU is counted in units, rounded up
on nodes and down on pods; a pod that asks a share of several devices counts as so many pods of one share each, with
their part of its CPU; a pod that asks no GPU is never in the way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fleet.device import WHOLE_MILLI, DeviceAsk
from fleet.node import Node
from fleet.pod import Pod

_CPU_UNITS: Final = 1280  # the largest node is cut into so many; on the openb nodes that makes 0.1 of a core


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NodeKind:
    """Nodes that are the same here: sorted models of their devices, number of devices, CPU in units."""

    models: tuple[str, ...]
    devices: int
    cpu: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PodKind:
    """Pods, or equal parts of pods, that are the same here.

    Attributes:
        devices: Whole devices; 1 for a share.
        milli_gpu: On each device.
        cpu: In units.
        models: Sorted; empty = any.
    """

    devices: int
    milli_gpu: int
    cpu: int
    models: tuple[str, ...]

    @property
    def total_milli_gpu(self) -> int:
        """Return the milli-GPU over all its devices."""
        return self.devices * self.milli_gpu

    def runs_on(self, models: tuple[str, ...]) -> bool:
        """Return whether a node with devices of these models is allowed at all."""
        return not self.models or any(model in self.models for model in models)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All nodes, by kind, sorted; `cpu_milli` is one unit of CPU."""

    nodes: tuple[tuple[NodeKind, int], ...]
    cpu_milli: int

    @property
    def capacity_milli_gpu(self) -> int:
        """Return the milli-GPU of all nodes."""
        return WHOLE_MILLI * sum(kind.devices * count for kind, count in self.nodes)


def ground_of(nodes: Sequence[Node]) -> Ground:
    """Return the nodes that have devices, by kind."""
    having = [node for node in nodes if node.devices]
    unit = max(1, math.ceil(max((node.allocatable.milli_cpu for node in having), default=1) / _CPU_UNITS))
    counts = Counter(
        NodeKind(
            models=tuple(sorted({device.model for device in node.devices})),
            devices=len(node.devices),
            cpu=math.ceil(node.allocatable.milli_cpu / unit),
        )
        for node in having
    )
    return Ground(nodes=tuple(sorted(counts.items())), cpu_milli=unit)


def demand_of(pods: Iterable[Pod], ground: Ground) -> Counter[PodKind]:
    """Return how many pods, or parts of pods, of each kind ask for GPU."""
    counts: Counter[PodKind] = Counter()
    shapes = Counter((pod.requests.milli_cpu, pod.ask) for pod in pods if pod.ask is not None)
    for (milli_cpu, ask), count in shapes.items():
        if ask is not None and ask.total_milli_gpu:
            counts[_kind(milli_cpu, ask, ground.cpu_milli)] += count * (1 if ask.is_whole else ask.count)
    return counts


def _kind(milli_cpu: int, ask: DeviceAsk, unit: int) -> PodKind:
    parts = 1 if ask.is_whole else ask.count
    return PodKind(
        devices=ask.count if ask.is_whole else 1,
        milli_gpu=ask.milli_gpu,
        cpu=milli_cpu // (unit * parts),
        models=tuple(sorted(set(ask.models))),
    )
