"""Fragmentation gradient descent: place where the fragment grows least.

With the typical shapes m and their shares p_m of the pods, a node's fragment is F = sum_m p_m frag_m, where frag_m is
all its free milli-GPU if it cannot run m (CPU, devices or model) or m asks no GPU, else the free milli-GPU of devices
whose residual is below g_m. The score is floor(100 sigmoid((F before - F after)/1000)), and a share takes the first
device of the highest score. Source: Weng et al., USENIX ATC 2023, and the authors' score plug-in, read as facts.

Shares p_m are kept as multiples of 2**-30, so that sums are exact and the cut-off at whole scores never depends on
the order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from binpack.index import room
from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Floats, Ints
from binpack.index.mix import Mix
from binpack.index.models import model_place
from binpack.index.scores import PodClass
from fleet.device import WHOLE_MILLI

_GRAIN: Final = 2.0**-30


class Fragmentation:
    """F and the FGD score for one mix over one list of models."""

    def __init__(self, mix: Mix, models: Sequence[str]) -> None:
        """Make the tables."""
        typical = mix.typical()
        total = sum(n for _, n in typical)
        shapes = [shape for shape, _ in typical]
        share = np.array([n / total for _, n in typical])
        self._share = np.round(share / _GRAIN) * _GRAIN
        self._milli_cpu = np.array([shape.milli_cpu for shape in shapes])
        self._milli = np.array([shape.milli_gpu for shape in shapes])
        self._count = np.array([shape.count for shape in shapes])
        self._allowed = np.array(
            [[bool(s.count) and model_place(s.models, name) >= 0 for s in shapes] for name in (*models, "")]
        )
        sizes, self._size_of = np.unique(self._milli, return_inverse=True)
        residual = np.arange(WHOLE_MILLI + 1)[:, None]
        self._below = np.where(residual < sizes, residual, 0)  # of a device, by its residual and by size
        self._enough = (residual >= sizes).astype(np.int64)

    def score(self, arrays: Arrays, pod_class: PodClass, slots: Ints, usable: Bools) -> tuple[Floats, Ints]:
        """Return the scores and the positions of the devices for a share, (n,) each."""
        cpu = arrays.milli_cpu[slots] - pod_class.milli_cpu
        model, residual = arrays.node_model[slots], arrays.residual[slots]
        before = self.fragment(model, arrays.milli_cpu[slots], residual)
        ask = pod_class.ask
        if ask is not None and not ask.is_whole and ask.count == 1:
            row, column = np.nonzero(usable)
            after = residual[row]
            after[np.arange(len(row)), column] = room.shared_devices(arrays, ask, slots)[1][row, column]
            score = np.full(usable.shape, -1.0)
            score[row, column] = _score(before[row] - self.fragment(model[row], cpu[row], after))
            best = np.argmax(score, axis=1)
            return score[np.arange(len(slots)), best], best
        taken = usable & (np.cumsum(usable, axis=1) <= (ask.count if ask is not None else 0))
        given = np.minimum(residual, ask.milli_gpu) if ask is not None else np.zeros_like(residual)
        after = residual - np.where(taken, given, 0)
        return _score(before - self.fragment(model, cpu, after)), np.full(len(slots), -1, np.int64)

    def fragment(self, model: Ints, milli_cpu: Ints, residual: Ints) -> Floats:
        """Return F, (n,), for nodes of these models with this free CPU and these residuals, (n, D)."""
        below, enough = self._below[residual].sum(axis=1), self._enough[residual].sum(axis=1)
        runs = self._allowed[model] & (milli_cpu[:, None] >= self._milli_cpu)
        runs &= enough[:, self._size_of] >= self._count
        lost = np.where(runs, below[:, self._size_of], residual.sum(axis=1)[:, None])
        found: Floats = lost @ self._share
        return found


def _score(gain: Floats) -> Floats:
    found: Floats = np.floor(100.0 / (1.0 + np.exp(-gain / WHOLE_MILLI)))
    return found
