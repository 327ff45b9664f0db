"""Whole nodes kept for the pods that need all devices of one.

The pods of the mix that ask for all devices of a big node, as many as the biggest nodes have or at least 8, are
grouped by the set S of node classes that could hold them. For each set: its share d_S of the total GPU demand, sets
inside it counted in, the least CPU c_S among those pods, and N_S, the nodes of S with all devices free and CPU >= c_S.
Such a node is reserved while N_S <= factor * d_S * (free devices of the cluster) / (devices of such a node).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from binpack.index.arrays import Arrays, Bools, Ints
from binpack.index.mix import Mix, Shape
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_BIG_NODE_DEVICES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """One set of node classes with so many devices: membership over classes, (C,), demand share, least milli-CPU."""

    devices: int
    classes: Bools
    demand_ratio: float
    milli_cpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Whole nodes kept for some pods, as a batch sees them.

    Attributes:
        nodes: Places of the reserved nodes in the list of slots asked about, ascending.
        spare: How many of all reserved nodes others may break into before each further one costs.
        milli_cpu: A CPU-only pod that leaves this much free does not break into the node.
        owners: Places of the pods that may use the nodes freely, in the list of pods asked about.
    """

    nodes: tuple[int, ...]
    spare: int
    milli_cpu: int
    owners: tuple[int, ...]


class Reservations:
    """Says which nodes a pod should rather leave alone."""

    def __init__(self, arrays: Arrays, mix: Mix, factor: float) -> None:
        """Group the mix over the node classes that `arrays` holds now."""
        self._arrays = arrays
        self._factor = factor
        self._known_classes = len(arrays.classes)
        live = arrays.live[: arrays.count] > 0
        held = {arrays.classes[int(c)].devices for c in np.unique(arrays.node_class[: arrays.count][live])}
        sizes = sorted(n for n in held if n > 1 and (n >= _BIG_NODE_DEVICES or n == max(held)))
        self._sets = [one for devices in sizes for one in self._grouped(mix, devices)]
        self._member = np.zeros((len(self._sets), arrays.capacity), np.bool_)
        self._free_milli = np.zeros(arrays.capacity, np.int64)
        self.renew(np.arange(arrays.count))

    def renew(self, slots: Ints) -> None:
        """Recount these nodes after they changed."""
        arrays = self._arrays
        self._free_milli[slots] = arrays.residual[slots].sum(axis=1)
        if not self._sets:
            return
        classes = arrays.node_class[slots]
        untouched = arrays.untouched[slots].sum(axis=1)
        for row, one in enumerate(self._sets):
            # A class first seen after the grouping is in no set until the next one.
            inside = one.classes[np.minimum(classes, self._known_classes - 1)] & (classes < self._known_classes)
            has_room = (untouched == one.devices) & (arrays.milli_cpu[slots] >= one.milli_cpu)
            self._member[row, slots] = inside & has_room

    def charged(self, pod: Pod) -> Bools | None:
        """Return the nodes reserved against the pod, (count,); None if there are none."""
        arrays = self._arrays
        count = arrays.count
        own = self._own_classes(pod)
        found: Bools | None = None
        for row, one in enumerate(self._sets):
            member = self._member[row, :count]
            if int(np.count_nonzero(member)) > self._kept(one) or self._is_owner(own, one):
                continue
            if pod.ask is None:
                member = member & (arrays.milli_cpu[:count] - pod.requests.milli_cpu < one.milli_cpu)
            found = member.copy() if found is None else found | member
        return found

    def reserves(self, pods: Sequence[Pod], slots: Ints) -> tuple[Reserve, ...]:
        """Return what `charged` would say of a batch: one reserve per set that has any of these slots."""
        arrays = self._arrays
        count = arrays.count
        owns = [self._own_classes(pod) for pod in pods]
        found: list[Reserve] = []
        for row, one in enumerate(self._sets):
            member = self._member[row, :count]
            if member[slots].any():
                spare = int(np.count_nonzero(member)) - self._kept(one)
                found.append(
                    Reserve(
                        nodes=tuple(np.flatnonzero(member[slots]).tolist()),
                        spare=max(0, ceil(spare)),
                        milli_cpu=one.milli_cpu,
                        owners=tuple(number for number, own in enumerate(owns) if self._is_owner(own, one)),
                    )
                )
        return tuple(found)

    def _kept(self, one: _Set) -> float:
        """Return how many whole nodes of the set are worth keeping now."""
        free_milli = int(self._free_milli[: self._arrays.count].sum())
        return self._factor * one.demand_ratio * free_milli / (WHOLE_MILLI * one.devices)

    @staticmethod
    def _is_owner(own: Bools | None, one: _Set) -> bool:
        """Return True if a pod that only these node classes could hold is one the set is kept for."""
        return own is not None and not (own & ~one.classes).any()

    def _own_classes(self, pod: Pod) -> Bools | None:
        """Return the node classes that could hold a pod of a reserved kind; None for any other pod."""
        ask = pod.ask
        if ask is None or not ask.is_whole or all(ask.count != one.devices for one in self._sets):
            return None
        return self._holding(ask.count, pod.requests.milli_cpu, pod.requests.memory_bytes, ask.models)

    def _grouped(self, mix: Mix, devices: int) -> list[_Set]:
        total = mix.total_milli_gpu
        groups: dict[bytes, list[tuple[Shape, int]]] = {}
        for shape, n in mix.shapes:
            if shape.count == devices and shape.milli_gpu == WHOLE_MILLI:
                classes = self._holding(devices, shape.milli_cpu, shape.memory_bytes, shape.models)
                if classes.any():
                    groups.setdefault(classes.tobytes(), []).append((shape, n))
        sets: list[_Set] = []
        for key in sorted(groups):
            classes = np.frombuffer(key, np.bool_)
            inside = [
                entry
                for other, entries in groups.items()
                if not (np.frombuffer(other, np.bool_) & ~classes).any()
                for entry in entries
            ]
            sets.append(
                _Set(
                    devices=devices,
                    classes=classes,
                    demand_ratio=sum(shape.total_milli_gpu * n for shape, n in inside) / total,
                    milli_cpu=min(shape.milli_cpu for shape, _ in inside),
                )
            )
        return sets

    def _holding(self, devices: int, milli_cpu: int, memory_bytes: int, models: tuple[str, ...]) -> Bools:
        """Return which node classes could hold a pod of this size that wants every device, (C,)."""
        accepted = self._arrays.ranks(models) >= 0
        return np.array(
            [
                one.devices == devices
                and one.milli_cpu >= milli_cpu
                and one.memory_bytes >= memory_bytes
                and accepted[one.model]
                for one in self._arrays.classes[: self._known_classes]
            ],
            np.bool_,
        )
