"""The verifier's own look at MIG: slices as sets of numbers, from the table of cards and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from binpack.mig.cards import Profile, card_of
from fleet.device import Device, Partition


def can_begin(device: Device, held: Iterable[Partition], wanted: Partition) -> bool:
    """Return True if the instance may be on the device beside those held, and these beside each other."""
    layout = device.partitions
    together = [*held, wanted]
    if layout is None or len(set(together)) != len(together):
        return False
    if layout:
        return _can_stand(device, layout) and {(one.profile, one.start) for one in together} <= {
            (one.profile, one.start) for one in layout
        }
    card = card_of(device.model, device.memory_mib)
    if card is None:
        return False
    profiles = {profile.name: profile for profile in card.profiles}
    taken: set[int] = set()
    media = 0
    for instance in together:
        profile = profiles.get(instance.profile)
        if profile is None or instance.start not in profile.starts:
            return False
        slices = _slices(profile, instance.start)
        if slices & taken:
            return False
        taken |= slices
        media += profile.has_media
    return media <= 1 and taken <= set(range(card.slices))


def _can_stand(device: Device, layout: Iterable[Partition]) -> bool:
    """Return True unless two of the instances said to be made on a device would have a memory slice in common."""
    card = card_of(device.model, device.memory_mib)
    known = {profile.name: profile for profile in card.profiles} if card is not None else {}
    taken: list[int] = []
    for instance in layout:
        profile = known.get(instance.profile)
        is_legal = profile is not None and instance.start in profile.starts
        taken += sorted(_slices(profile, instance.start)) if profile is not None and is_legal else [instance.start]
    return len(set(taken)) == len(taken)


def _slices(profile: Profile, start: int) -> set[int]:
    return set(range(start, start + profile.slices))
