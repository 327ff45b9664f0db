"""What the instances that pods hold leave of a device."""

from __future__ import annotations

from collections.abc import Iterable

from binpack.mig.geometry import Geometry, Start
from fleet.device import Partition


def occupied(geometry: Geometry, held: Iterable[Partition]) -> int | None:
    """Return the mask of what these instances take; None where one cannot be there or two meet: nobody may be added."""
    busy = 0
    for partition in held:
        mask = geometry.mask_of(partition)
        if mask is None or mask & busy:
            return None
        busy |= mask
    return busy


def fits(geometry: Geometry, held: Iterable[Partition], profile: str) -> tuple[Start, ...]:
    """Return where an instance of this profile may start beside those held."""
    busy = occupied(geometry, held)
    return () if busy is None else tuple(start for start in geometry.of(profile) if not start.mask & busy)


def free_slices(geometry: Geometry, busy: int) -> tuple[int, int]:
    """Return how many memory slices are free, and of how many; where instances were made beforehand, count these."""
    slices = geometry.bits if geometry.is_made else geometry.bits - 1
    return slices - (busy & ((1 << slices) - 1)).bit_count(), slices
