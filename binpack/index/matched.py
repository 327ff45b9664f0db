"""Compute and memory of one card that no longer match: what is left of one without the other.

The residual of a card is the smaller of its free milli-GPU and its free memory in thousandths, so that the potential
loses nothing as long as the smaller one stays as it is. What lies beyond it adds to the potential of its own::

    Phi_unmatched = lM * sum_d | free milli_d - free memory_d |          both in thousandths

so that a share which asks much of one goes where much of it is left over. lM comes from `bench.share_memory`: with 0,
0.1, 0.2 and 0.4 of 600 pods 25.8, 20.8, 20.5 and 20.8 were refused (4 seeds). Cards of unknown memory have none of it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.index.columns import SHARING, Columns, Floats, Ints, between
from fleet.device import WHOLE_MILLI, DeviceAsk

UNMATCHED: Final = 0.125  # a power of two, so that sums stay exact


def unmatched(arrays: Columns, slots: Ints) -> Floats:
    """Return Phi_unmatched, (n,)."""
    found: Floats = _of(arrays, slots, 0, 0).sum(axis=1)
    return found


def growth(arrays: Columns, ask: DeviceAsk, slots: Ints) -> Floats:
    """Return by how much Phi_unmatched rises when a device gives this share, for each device, (n, D)."""
    return _of(arrays, slots, ask.milli_gpu, ask.memory_mib) - _of(arrays, slots, 0, 0)


def _of(arrays: Columns, slots: Ints, milli: int, mib: int) -> Floats:
    total = arrays.total_mib[slots]
    left_milli = between(arrays.free_milli[slots] - milli, 0, WHOLE_MILLI)
    left_mib = WHOLE_MILLI * between(arrays.free_mib[slots] - mib, 0, 2**50) // np.maximum(total, 1)
    is_counted = (total > 0) & (arrays.healthy[slots] > 0) & (arrays.kind[slots] == SHARING)[:, None]
    found: Floats = UNMATCHED * (np.abs(left_milli - between(left_mib, 0, WHOLE_MILLI)) * is_counted)
    return found
