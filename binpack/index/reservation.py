"""Whole nodes kept for the pods that need all devices of one.

The pods of the mix that ask for as many whole devices as the biggest nodes have are grouped by the set S of node
classes that could hold them. For each set: its share d_S of the total GPU demand, sets inside it counted in, the
least CPU c_S among those pods, and N_S, the nodes of S with all devices free and CPU >= c_S. Such a node is reserved
while N_S <= factor * d_S * (free devices of the cluster) / (devices of such a node).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from binpack.index.arrays import Arrays, Bools, Ints
from binpack.index.mix import Mix, Shape
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """One set of node classes: membership over classes, (C,), demand share and least milli-CPU."""

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
        held = {int(c) for c in np.unique(arrays.node_class[: arrays.count][live])}
        self.devices = max((arrays.classes[c].devices for c in held), default=0)
        self._sets = self._grouped(mix) if self.devices > 1 else []
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
        is_whole = arrays.untouched[slots].sum(axis=1) == self.devices
        for row, one in enumerate(self._sets):
            # A class first seen after the grouping is in no set until the next one.
            inside = one.classes[np.minimum(classes, self._known_classes - 1)] & (classes < self._known_classes)
            self._member[row, slots] = inside & is_whole & (arrays.milli_cpu[slots] >= one.milli_cpu)

    def charged(self, pod: Pod) -> Bools | None:
        """Return the nodes reserved against the pod, (count,); None if there are none."""
        arrays = self._arrays
        count = arrays.count
        free_nodes = int(self._free_milli[:count].sum()) / (WHOLE_MILLI * max(1, self.devices))
        own = self._own_classes(pod)
        found: Bools | None = None
        for row, one in enumerate(self._sets):
            member = self._member[row, :count]
            if int(np.count_nonzero(member)) > self._factor * one.demand_ratio * free_nodes:
                continue
            if own is not None and not (own & ~one.classes).any():
                continue
            if pod.ask is None:
                member = member & (arrays.milli_cpu[:count] - pod.requests.milli_cpu < one.milli_cpu)
            found = member.copy() if found is None else found | member
        return found

    def reserves(self, pods: Sequence[Pod], slots: Ints) -> tuple[Reserve, ...]:
        """Return what `charged` would say of a batch: one reserve per set that has any of these slots."""
        arrays = self._arrays
        count = arrays.count
        free_nodes = int(self._free_milli[:count].sum()) / (WHOLE_MILLI * max(1, self.devices))
        owns = [self._own_classes(pod) for pod in pods]
        found: list[Reserve] = []
        for row, one in enumerate(self._sets):
            member = self._member[row, :count]
            if member[slots].any():
                spare = int(np.count_nonzero(member)) - self._factor * one.demand_ratio * free_nodes
                found.append(
                    Reserve(
                        nodes=tuple(np.flatnonzero(member[slots]).tolist()),
                        spare=max(0, ceil(spare)),
                        milli_cpu=one.milli_cpu,
                        owners=tuple(
                            number
                            for number, own in enumerate(owns)
                            if own is not None and not (own & ~one.classes).any()
                        ),
                    )
                )
        return tuple(found)

    def _own_classes(self, pod: Pod) -> Bools | None:
        """Return the node classes that could hold a pod of the reserved kind; None for any other pod."""
        ask = pod.ask
        if not self._sets or ask is None or not ask.is_whole or ask.count != self.devices:
            return None
        return self._holding(pod.requests.milli_cpu, pod.requests.memory_bytes, ask.models)

    def _grouped(self, mix: Mix) -> list[_Set]:
        total = mix.total_milli_gpu
        groups: dict[bytes, list[tuple[Shape, int]]] = {}
        for shape, n in mix.shapes:
            if shape.count == self.devices and shape.milli_gpu == WHOLE_MILLI:
                classes = self._holding(shape.milli_cpu, shape.memory_bytes, shape.models)
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
                    classes=classes,
                    demand_ratio=sum(shape.total_milli_gpu * n for shape, n in inside) / total,
                    milli_cpu=min(shape.milli_cpu for shape, _ in inside),
                )
            )
        return sets

    def _holding(self, milli_cpu: int, memory_bytes: int, models: tuple[str, ...]) -> Bools:
        """Return which node classes could hold a pod of this size that wants every device, (C,)."""
        accepted = self._arrays.ranks(models) >= 0
        return np.array(
            [
                one.devices == self.devices
                and one.milli_cpu >= milli_cpu
                and one.memory_bytes >= memory_bytes
                and accepted[one.model]
                for one in self._arrays.classes[: self._known_classes]
            ],
            np.bool_,
        )
