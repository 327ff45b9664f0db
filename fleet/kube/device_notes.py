"""What annotations of a sharing node say of its devices: which are in MIG mode, which form an island.

``berthmaster.dev/mig-devices``: ``all``, or devices separated by ``;``. A device alone may hold any instance that its
card allows; ``1=3g.40gb@0,3g.40gb@4`` holds these and no others, because somebody made them beforehand. With their
UUIDs, ``1=3g.40gb@0:MIG-5a3c…``, pods are given these, as container runtimes understand them.

``berthmaster.dev/islands``: groups of devices with a fast link, ``0,2;1,3;4,5,6,7``; a device belongs to one at most.

Devices that are named and not there do not matter. What cannot be read closes the node: a whole device given where
an instance was meant is given twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from fleet import labels
from fleet.berths import parse_partition
from fleet.device import Device, Partition
from fleet.errors import DecodeError

_LONGEST_NOTE = 16_384
_ALL = "all"


def noted(devices: tuple[Device, ...], annotations: Mapping[str, str], problems: list[str]) -> tuple[Device, ...]:
    """Return the devices as the annotations describe them; why one cannot be read goes to `problems`."""
    mig = annotations.get(labels.MIG_DEVICES, "").strip()
    islands = annotations.get(labels.ISLANDS, "").strip()
    if not mig and not islands:
        return devices
    for name, text in ((labels.MIG_DEVICES, mig), (labels.ISLANDS, islands)):
        if len(text) > _LONGEST_NOTE:
            problems.append(f"annotation {name} is longer than {_LONGEST_NOTE} characters")
            return devices
    found, wrong = _noted(devices, mig, islands)
    problems += wrong
    return found


@lru_cache(maxsize=1024)
def _noted(devices: tuple[Device, ...], mig: str, islands: str) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return the described devices and what was wrong; nodes of one kind share the answer."""
    wrong: list[str] = []
    try:
        layouts = _layouts(mig)
    except DecodeError as error:
        layouts, wrong = {}, [f"annotation {labels.MIG_DEVICES}: {error}"]
    try:
        numbers = _islands(islands)
    except DecodeError as error:
        numbers = {}
        wrong.append(f"annotation {labels.ISLANDS}: {error}")
    whole = layouts.get(_ALL)
    described = tuple(
        replace(device, partitions=layouts.get(device.id, whole), island=numbers.get(device.id, 0))
        for device in devices
    )
    return described, tuple(wrong)


def _layouts(text: str) -> dict[str, tuple[Partition, ...]]:
    """Return the instances of each device in MIG mode; () = any."""
    found: dict[str, tuple[Partition, ...]] = {}
    for part in text.split(";") if text else ():
        device, equals, listed = (piece.strip() for piece in part.partition("="))
        partitions = tuple(parse_partition(one.strip()) for one in listed.split(",")) if equals else ()
        if not device or device in found:
            raise DecodeError(f"{part[:80]!r}: a device that has no name or was named before")
        if "," in device:
            raise DecodeError(f"{part[:80]!r}: devices are parted by ';', instances of one by ','")
        if len({one.place for one in partitions}) != len(partitions):
            raise DecodeError(f"{part[:80]!r}: an instance is named twice")
        found[device] = tuple(sorted(partitions))
    uuids = [one.uuid for partitions in found.values() for one in partitions if one.uuid]
    if len(set(uuids)) != len(uuids):
        raise DecodeError("a UUID is named twice")
    return found


def _islands(text: str) -> dict[str, int]:
    """Return the number of each device's island, from 1."""
    found: dict[str, int] = {}
    for number, group in enumerate(text.split(";") if text else (), start=1):
        for name in group.split(","):
            device = name.strip()
            if not device or device in found:
                raise DecodeError(f"{group[:80]!r}: a device that has no name or is of an island already")
            found[device] = number
    return found
