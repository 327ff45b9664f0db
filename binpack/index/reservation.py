"""Openings kept for the pods that need several whole devices of one node.

An *opening* of such a pod is as many free devices as it asks, with its CPU, on a node that could ever hold it. The pods
of the mix that ask for the same number m > 1 of whole devices are grouped by the set S of node classes that could
hold them. For each set: its share d_S of the total GPU demand, sets inside it counted in, the least CPU c_S among those
pods, and the openings that are left::

    N_S = sum over the nodes of S of min(devices with nothing on them // m, free CPU // c_S)

Of what is free in the cluster, the mix will want L = d_S * (free devices) / m more openings. So they are scarce, and
taking one is charged to everybody else, while N_S <= factor * L + margin * sqrt(L): the square root, a standard
deviation of a count, keeps a last opening for kinds of pods that come rarely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np

from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Ints
from binpack.index.mix import Mix, Shape
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """Who shares openings of so many devices: membership over node classes, (C,), demand share, least milli-CPU."""

    devices: int
    classes: Bools
    demand_ratio: float
    milli_cpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Scarce openings, as a batch sees them.

    Attributes:
        nodes: Places of the nodes whose openings any other pod breaks, in the list of slots asked about, ascending.
        spare: How many of them others may break into before each further one costs.
        milli_cpu: A CPU-only pod that leaves this much free does not break into the node.
        owners: Places of the pods that may use the openings freely, in the list of pods asked about.
    """

    nodes: tuple[int, ...]
    spare: int
    milli_cpu: int
    owners: tuple[int, ...]


class Reservations:
    """Says which nodes a pod should rather leave alone."""

    def __init__(self, arrays: Arrays, mix: Mix, factor: float, margin: float) -> None:
        """Group the mix over the node classes that `arrays` holds now."""
        self._arrays = arrays
        self._factor, self._margin = factor, margin
        self._known_classes = len(arrays.classes)
        sizes = sorted({shape.count for shape, _ in mix.shapes if _asks_several(shape.count, shape.milli_gpu)})
        self._sets = [one for devices in sizes for one in self._grouped(mix, devices)]
        # A class first seen after the grouping, the last column, is in no set until the next one.
        self._inside = np.zeros((len(self._sets), self._known_classes + 1), np.int64)
        for row, one in enumerate(self._sets):
            self._inside[row, :-1] = one.classes
        self._devices = np.array([one.devices for one in self._sets], np.int64)[:, None]
        self._milli_cpu = np.array([one.milli_cpu for one in self._sets], np.int64)[:, None]
        self._openings = np.zeros((len(self._sets), arrays.capacity), np.int64)
        self._left = np.zeros(len(self._sets), np.int64)
        self._free_milli = np.zeros(arrays.capacity, np.int64)
        self._free_in_all = 0
        self.renew(np.arange(arrays.count))

    def renew(self, slots: Ints) -> None:
        """Recount these nodes after they changed."""
        arrays = self._arrays
        free = arrays.residual[slots].sum(axis=1)
        self._free_in_all += int(free.sum()) - int(self._free_milli[slots].sum())
        self._free_milli[slots] = free
        if not self._sets:
            return
        inside = self._inside[:, np.minimum(arrays.node_class[slots], self._known_classes)]
        by_devices = arrays.untouched[slots].sum(axis=1) // self._devices
        by_cpu = np.maximum(arrays.milli_cpu[slots], 0) // self._milli_cpu
        openings = np.minimum(by_devices, by_cpu) * inside * arrays.live[slots]
        self._left += (openings - self._openings[:, slots]).sum(axis=1)
        self._openings[:, slots] = openings

    def charged(self, pod: Pod, position: Ints) -> Bools | None:
        """Return the nodes where the pod would take an opening kept for others, (count,); None if there are none.

        Args:
            pod: The pod.
            position: The device that a share of one device would get on each node, (count,).
        """
        arrays, ask = self._arrays, pod.ask
        own = self._own_classes(pod)
        found: Bools | None = None
        for row in self._scarce():
            one = self._sets[row]
            if self._is_owner(pod, own, one):
                continue
            openings = self._openings[row, : arrays.count]
            slots = np.flatnonzero(openings)
            left = (arrays.milli_cpu[slots] - max(0, pod.requests.milli_cpu)) // one.milli_cpu
            if ask is not None:
                untouched = arrays.untouched[slots]
                taken: Ints | int = ask.count
                if not ask.is_whole and ask.count == 1:
                    taken = untouched[np.arange(len(slots)), position[slots]]
                left = np.minimum(left, (untouched.sum(axis=1) - taken) // one.devices)
            if found is None:
                found = np.zeros(arrays.count, np.bool_)
            found[slots[left < openings[slots]]] = True
        return found

    def reserves(self, pods: Sequence[Pod], slots: Ints) -> tuple[Reserve, ...]:
        """Return what `charged` would say of a batch: one reserve per set that these slots could break too often.

        A node counts where any pod with a device breaks an opening, because its devices with nothing on them are just
        those of its openings.
        """
        arrays = self._arrays
        owns = [self._own_classes(pod) for pod in pods]
        untouched = arrays.untouched[slots].sum(axis=1)
        found: list[Reserve] = []
        for row, one in enumerate(self._sets):
            openings = self._openings[row, slots]
            nodes = np.flatnonzero((openings > 0) & (untouched == openings * one.devices))
            spare = max(0, ceil(int(self._left[row]) - self._kept(one)))
            if spare < len(nodes):
                found.append(
                    Reserve(
                        nodes=tuple(nodes.tolist()),
                        spare=spare,
                        milli_cpu=one.milli_cpu,
                        owners=tuple(
                            number
                            for number, (pod, own) in enumerate(zip(pods, owns, strict=True))
                            if self._is_owner(pod, own, one)
                        ),
                    )
                )
        return tuple(found)

    def _scarce(self) -> list[int]:
        """Return the sets of which there are openings, and no more than are worth keeping."""
        return [
            row
            for row, (one, left) in enumerate(zip(self._sets, self._left.tolist(), strict=True))
            if 0 < left <= self._kept(one)
        ]

    def _kept(self, one: _Set) -> float:
        """Return how many openings of the set are worth keeping now."""
        wanted = one.demand_ratio * self._free_in_all / (WHOLE_MILLI * one.devices)
        return self._factor * wanted + self._margin * sqrt(wanted)

    @staticmethod
    def _is_owner(pod: Pod, own: Bools | None, one: _Set) -> bool:
        """Return True if a pod that only these node classes could hold is one the set is kept for."""
        if own is None or pod.ask is None or pod.ask.count != one.devices:
            return False
        return not (own & ~one.classes).any()

    def _own_classes(self, pod: Pod) -> Bools | None:
        """Return the node classes that could hold a pod that asks for several whole devices; None for any other."""
        ask = pod.ask
        if ask is None or not ask.is_whole or ask.count < _SEVERAL:
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
                    milli_cpu=max(1, min(shape.milli_cpu for shape, _ in inside)),
                )
            )
        return sets

    def _holding(self, devices: int, milli_cpu: int, memory_bytes: int, models: tuple[str, ...]) -> Bools:
        """Return which node classes could hold a pod of this size that wants so many whole devices, (C,)."""
        accepted = self._arrays.models.ranks(models) >= 0
        return np.array(
            [
                one.devices >= devices
                and one.milli_cpu >= milli_cpu
                and one.memory_bytes >= memory_bytes
                and accepted[one.model]
                for one in self._arrays.classes[: self._known_classes]
            ],
            np.bool_,
        )


def _asks_several(count: int, milli_gpu: int) -> bool:
    return count >= _SEVERAL and milli_gpu == WHOLE_MILLI
