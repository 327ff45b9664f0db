"""Best fit, dot product, clustering, packing and first fit, as the published comparison runs them.

Source of the formulas: the score plug-ins and run scripts of hkust-adsl/kubernetes-scheduler-simulator (Weng et al.,
USENIX ATC 2023), read as facts. All scores are whole numbers 0..100, cut off as the scheduler framework does, which
makes ties frequent and their order matter. c is free milli-CPU, R the free milli-GPU of a node. A share goes to the
device with the least residual that holds it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Floats, Ints
from binpack.index.scores import PodClass
from fleet.device import WHOLE_MILLI, DeviceAsk

_MOST_MILLI_CPU: Final = 128_000
_MOST_MILLI_GPU: Final = 8_000
_NOTHING_LEFT: Final = 2**40


def best_fit(arrays: Arrays, pod_class: PodClass, slots: Ints, usable: Bools) -> tuple[Floats, Ints]:
    """Return floor(100 (1 - c'/256,000 - R'/16,000)) with c', R' what the pod would leave."""
    cpu = arrays.milli_cpu[slots] - pod_class.milli_cpu
    milli = arrays.residual[slots].sum(axis=1) - _total(pod_class)
    left = 0.5 * cpu / _MOST_MILLI_CPU + 0.5 * milli / _MOST_MILLI_GPU
    return np.floor(100 * (1 - left)), tightest(arrays, slots, usable)


def dot_product(arrays: Arrays, pod_class: PodClass, slots: Ints, usable: Bools) -> tuple[Floats, Ints]:
    """Return floor(100 (1 - (c c_pod + R R_pod)/2)), all scaled by 128 cores and 8 GPUs."""
    cpu = arrays.milli_cpu[slots] / _MOST_MILLI_CPU * (pod_class.milli_cpu / _MOST_MILLI_CPU)
    milli = arrays.residual[slots].sum(axis=1) / _MOST_MILLI_GPU * (_total(pod_class) / _MOST_MILLI_GPU)
    return np.floor(100 * (1 - (cpu + milli) / 2)), tightest(arrays, slots, usable)


class Clustering:
    """Scores 25 (8,000 - R)/8,000 plus 75, 50, 25 or 0 by what kinds of pods the node holds.

    75: only pods of this kind; 50: this kind among others; 25: none at all; 0: only others. A kind is "share of one
    device" or a number of whole ones. Pods that ask no GPU score 0 everywhere and are no kind.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._pods = np.zeros((arrays.count, 1 + arrays.width), np.int64)

    def note(self, slot: int, ask: DeviceAsk | None) -> None:
        """Count one pod more on a node."""
        if ask is not None:
            self._pods[slot, _kind(ask)] += 1

    def score(self, arrays: Arrays, pod_class: PodClass, slots: Ints, usable: Bools) -> tuple[Floats, Ints]:
        """Return the scores and the positions of the devices for a share, (n,) each."""
        position = tightest(arrays, slots, usable)
        if pod_class.ask is None:
            return np.zeros(len(slots)), position
        held = self._pods[slots] > 0
        kinds = held.sum(axis=1)
        has_mine = held[:, min(_kind(pod_class.ask), held.shape[1] - 1)]
        base = np.where(has_mine, np.where(kinds == 1, 75, 50), np.where(kinds == 0, 25, 0))
        free = arrays.residual[slots].sum(axis=1)
        return (base + 25 * (_MOST_MILLI_GPU - free) // _MOST_MILLI_GPU).astype(np.float64), position


def packing(arrays: Arrays, pod_class: PodClass, slots: Ints, usable: Bools) -> tuple[Floats, Ints]:
    """Return the packing score: devices in use first, then used nodes, then empty ones.

    On an empty node max(33 - devices, devices); where whole free devices must be broken into max(50 - those, 33);
    else 100 - a tenth of the percentages left on the devices used, at least 50. Pods that ask no GPU score 0.
    """
    position = tightest(arrays, slots, usable)
    ask = pod_class.ask
    if ask is None:
        return np.zeros(len(slots)), position
    residual = arrays.residual[slots]
    whole = (residual == WHOLE_MILLI).sum(axis=1)
    devices = np.array([len(arrays.ids[slot]) for slot in slots])
    tight = np.sort(np.where(usable, residual, _NOTHING_LEFT), axis=1)[:, : ask.count]
    broken = (tight == WHOLE_MILLI).sum(axis=1)
    shared = np.maximum(100 - (tight * 100 // WHOLE_MILLI).sum(axis=1) // 10, 50)
    used = np.where(broken > 0, np.maximum(50 - broken, 33), shared)
    return np.where(whole == devices, np.maximum(33 - whole, whole), used).astype(np.float64), position


def first_fit(arrays: Arrays, _pod_class: PodClass, slots: Ints, usable: Bools) -> tuple[Floats, Ints]:
    """Return 0 everywhere: the first node in file order that fits, and on it the first device."""
    return np.zeros(len(slots)), np.argmax(usable, axis=1)


def tightest(arrays: Arrays, slots: Ints, usable: Bools) -> Ints:
    """Return the position of the usable device with the least residual, the first of equal ones, (n,)."""
    found: Ints = np.argmin(np.where(usable, arrays.residual[slots], _NOTHING_LEFT), axis=1)
    return found


def _kind(ask: DeviceAsk) -> int:
    return ask.count if ask.is_whole else 0


def _total(pod_class: PodClass) -> int:
    return pod_class.ask.total_milli_gpu if pod_class.ask is not None else 0
