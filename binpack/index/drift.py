"""Whether demand has moved: the latest pods beside those before them, by what a wrong share of costs most.

A mix that has too small a share of pods of several devices, or of pods that only some models can serve, is dear: tables
of the default openb trace used on multigpu50 leave 17 % of the GPUs unallocated instead of 2.3 %. Sizes of shares may
be stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from binpack.index.mix import Shape
from fleet.device import WHOLE_MILLI

# Of 800 pods, those of any openb trace are at most 0.1 away from their trace; traces differ by 0.2 to 0.7.
WINDOW_PODS: Final = 800
_MOVED_RATIO: Final = 0.2

_Kind = tuple[int, tuple[str, ...]]


def has_moved(latest: Mapping[Shape, float], before: Mapping[Shape, float]) -> bool:
    """Return True if a fifth of the GPU demand or more went from some kinds of pods to others (total variation).

    Pods are of one kind when they ask for the same number of whole devices, or all for shares, of the same models. Pods
    without devices say nothing.
    """
    now, then = _demand_ratios(latest), _demand_ratios(before)
    return bool(now) and sum(abs(now.get(kind, 0.0) - then.get(kind, 0.0)) for kind in now | then) / 2 >= _MOVED_RATIO


def _demand_ratios(counts: Mapping[Shape, float]) -> dict[_Kind, float]:
    demand: dict[_Kind, float] = {}
    for shape, n in counts.items():
        devices = shape.count if shape.milli_gpu == WHOLE_MILLI else 0
        kind = (devices, shape.models)
        demand[kind] = demand.get(kind, 0.0) + n * shape.total_milli_gpu
    total = sum(demand.values())
    return {kind: amount / total for kind, amount in demand.items()} if total else {}
