"""Where instances may start on one device, as bit masks: two starts exclude each other where their masks meet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from binpack.mig.cards import card_of
from fleet.device import Device, Partition

_MOST_MADE = 8  # instances on one device; its masks index tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One instance that may be.

    Attributes:
        mask: What it takes: bits of memory slices, and above them the bit of the media extensions.
        slices: How large it is: its slices of memory, or of compute where it was made on a card not looked up.
    """

    partition: Partition
    mask: int
    slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """All that may start on a device.

    Attributes:
        bits: Length of the masks.
        starts: By profile, ascending by start.
        is_made: The instances were made beforehand: a bit stands for one of them, not for a memory slice.
    """

    bits: int
    starts: tuple[Start, ...]
    is_made: bool = False

    def of(self, profile: str) -> tuple[Start, ...]:
        """Return the starts of one profile; empty where the device can never hold it."""
        return tuple(start for start in self.starts if start.partition.profile == profile)

    def mask_of(self, partition: Partition) -> int | None:
        """Return what an instance takes; None where it cannot be."""
        return next((start.mask for start in self.starts if start.partition == partition), None)


def geometry_of(device: Device) -> Geometry | None:
    """Return where instances may start; None where the device is not in MIG mode or nothing is known of its card.

    Instances listed that cannot be there together are no geometry: one of them would be given twice.
    """
    if device.partitions is None:
        return None
    if device.partitions:
        places = tuple([partition.place for partition in device.partitions])
        return None if _collide(places, device.model, device.memory_mib) else made(places)
    return of_card(device.model, device.memory_mib)


@lru_cache(maxsize=1024)
def made(partitions: tuple[Partition, ...]) -> Geometry | None:
    """Return the geometry of instances made beforehand, whatever the card; None for more than eight."""
    if len(partitions) > _MOST_MADE:
        return None
    starts = tuple(
        Start(partition=partition, mask=1 << bit, slices=int(partition.profile.partition("g")[0]))
        for bit, partition in enumerate(sorted(partitions))
    )
    return Geometry(bits=len(starts), starts=starts, is_made=True)


@lru_cache(maxsize=1024)
def _collide(places: tuple[Partition, ...], model: str, memory_mib: int | None) -> bool:
    """Return True if two instances would share memory, as far as their card tells; on any card by one start."""
    if len({partition.start for partition in places}) != len(places):
        return True
    card = of_card(model, memory_mib)
    busy = 0
    for mask in [card.mask_of(partition) or 0 for partition in places] if card is not None else ():
        if mask & busy:
            return True
        busy |= mask
    return False


@lru_cache(maxsize=1024)
def of_card(model: str, memory_mib: int | None) -> Geometry | None:
    """Return the geometry of an empty card; None where the card is not known."""
    card = card_of(model, memory_mib)
    if card is None:
        return None
    starts = tuple(
        Start(
            partition=Partition(profile.name, start),
            mask=((1 << profile.slices) - 1) << start | (profile.has_media << card.slices),
            slices=profile.slices,
        )
        for profile in card.profiles
        for start in profile.starts
    )
    return Geometry(bits=card.slices + 1, starts=starts)
