"""Scores of one kind of pod on every node, kept until a node changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from binpack.index.arrays import Arrays
from binpack.index.columns import Floats, Ints
from fleet.device import DeviceAsk
from fleet.pod import Pod

_BYTES_KEPT: Final = 24 * 2**20
_BYTES_PER_SLOT: Final = 8 + 8 + 2

Score = Callable[["PodClass", Ints], tuple[Floats, Ints]]


@dataclass(frozen=True, slots=True)
class PodClass:
    """What a score may depend on. Memory, pod slots, other resources and constraints are judged beside it."""

    milli_cpu: int
    ask: DeviceAsk | None

    @classmethod
    def of(cls, pod: Pod) -> PodClass:
        """Return the class of a pod."""
        return cls(pod.requests.milli_cpu, pod.ask)


class _Column:
    __slots__ = ("position", "score", "seen")

    def __init__(self, capacity: int) -> None:
        self.score = np.full(capacity, np.inf)
        self.position = np.full(capacity, -1, np.int16)
        self.seen = np.full(capacity, -1, np.int64)


class ScoreCache:
    """Keeps (score, device position) per pod class and slot; asks `score(pod_class, slots)` for stale slots alone.

    A score is inf where the class does not fit. The classes used last are kept, 24 MiB of them at most.
    """

    def __init__(self, arrays: Arrays, score: Score) -> None:
        self._arrays = arrays
        self._score = score
        self._kept: OrderedDict[PodClass, _Column] = OrderedDict()

    def scores(self, pod_class: PodClass) -> tuple[Floats, npt.NDArray[np.int16]]:
        """Return score and device position, both (count,), up to date; shared arrays, not to be changed."""
        arrays = self._arrays
        column = self._kept.get(pod_class)
        if column is None or len(column.seen) != arrays.capacity:
            column = self._kept[pod_class] = _Column(arrays.capacity)
            most = max(8, _BYTES_KEPT // (_BYTES_PER_SLOT * arrays.capacity))
            while len(self._kept) > most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(pod_class)
        count = arrays.count
        stale = np.flatnonzero(column.seen[:count] != arrays.version[:count])
        if len(stale):
            column.score[stale], column.position[stale] = self._score(pod_class, stale)
            column.seen[stale] = arrays.version[stale]
        return column.score[:count], column.position[:count]
