"""What the free part of a device in MIG mode is worth, and at which start a new instance costs least of it.

For the mask B of what is taken, over the profiles p of the device without media extensions, s_p slices large::

    W(B) = round( V(1000) * sum_p s_p open_p(B) / sum_p s_p open_p(0) )      milli-GPU

where open_p(B) is how many starts of profile p are free. No two starts of one profile meet, so open_p is also how many
instances of p alone still fit: s_p open_p is what p could fill of the device, counted exactly and not as a sum of
slices. An empty device is worth what an untouched one is in the potential, a full one nothing. An instance starts
where W falls least, at the lowest start among equals: so the first 1g of a card goes to the end that 4g cannot use, and
a card that is broken fills up before a fresh one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from binpack.mig.geometry import Geometry

Ints = npt.NDArray[np.int64]

_UNTOUCHED_MILLI = 810  # V(1000) of the default mix
_MEDIA = "+me"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choices:
    """Where one profile goes, by the mask of what is taken, (2**bits,).

    Attributes:
        start: Place of the best start in `Geometry.starts`, -1 where none is free.
        loss: By how much W falls there, milli-GPU.
    """

    start: Ints
    loss: Ints


@lru_cache(maxsize=1024)
def worth(geometry: Geometry) -> Ints:
    """Return W by the mask of what is taken, (2**bits,), milli-GPU."""
    busy = np.arange(1 << geometry.bits)
    names = sorted({start.partition.profile for start in geometry.starts})
    counted = [name for name in names if not name.endswith(_MEDIA)] or names
    fillable = np.zeros(len(busy), np.int64)
    for start in geometry.starts:
        if start.partition.profile in counted:
            fillable += start.slices * ((busy & start.mask) == 0)
    found: Ints = np.rint(_UNTOUCHED_MILLI * fillable / fillable[0]).astype(np.int64)
    return found


@lru_cache(maxsize=4096)
def choices(geometry: Geometry, profile: str) -> Choices:
    """Return the best start of a profile for everything that may be taken."""
    busy = np.arange(1 << geometry.bits)
    best, loss = np.full(len(busy), -1), np.zeros(len(busy), np.int64)
    values = worth(geometry)
    for place, start in enumerate(geometry.starts):
        if start.partition.profile != profile:
            continue
        falls = values - values[busy | start.mask]
        is_better = ((busy & start.mask) == 0) & ((best < 0) | (falls < loss))
        best, loss = np.where(is_better, place, best), np.where(is_better, falls, loss)
    return Choices(start=best, loss=loss)
