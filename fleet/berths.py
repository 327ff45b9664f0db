"""Berths as annotation text, and back: the only record of a device assignment.

Devices: ``0,3``; a MIG instance by its UUID, or by its device, profile and start: ``0:2g.20gb@2``. Candidates, in order
of preference: ``node-a=0,3;node-b=1``, a node alone where no device is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleet.device import Device, Partition
from fleet.errors import DecodeError
from fleet.pod import Berth

_ID = r"[A-Za-z0-9](?:[A-Za-z0-9_.:/-]{0,251}[A-Za-z0-9])?"
_PROFILE = r"[1-9][0-9]?g\.[0-9]{1,4}gb(?:[+-][a-z]+(?:\.[a-z]+)?)*"
_MIG_UUID = "MIG-"
_PARTITION = re.compile(rf"({_PROFILE})@([0-9]{{1,2}})(?::({_MIG_UUID}[A-Za-z0-9-]{{1,64}}))?", re.ASCII)
_DEVICE = re.compile(rf"{_ID}(?::{_PROFILE}@[0-9]{{1,2}})?", re.ASCII)
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_SHOWN = 80


def format_devices(devices: Iterable[str]) -> str:
    """Return the text of the devices annotation.

    Raises:
        DecodeError: No device, a device twice, or an id that could not be read back.
    """
    wanted = tuple(devices)
    text = ",".join(wanted)
    if parse_devices(text) != wanted:
        raise DecodeError(f"devices {_short(text)}: an id holds a comma")
    return text


def parse_devices(text: str) -> tuple[str, ...]:
    """Return the device ids in their order.

    Raises:
        DecodeError: Empty, a device twice, white space, or an id of other characters: nothing is guessed, because a
            wrong guess gives one device to two pods.
    """
    devices = tuple(text.split(","))
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise DecodeError(f"devices {_short(text)}: {_short(device)} is not a device id")
    if len(set(devices)) != len(devices):
        raise DecodeError(f"devices {_short(text)}: a device is named twice")
    return devices


def is_profile(text: str) -> bool:
    """Return True if the text can be the name of a MIG profile: 2g.20gb, 1g.10gb+me."""
    return re.fullmatch(_PROFILE, text, re.ASCII) is not None


def partition_name(device: Device, partition: Partition) -> str:
    """Return the name of a MIG instance in records: its UUID where the node tells it, else ``0:2g.20gb@2``."""
    listed = (one.uuid for one in device.partitions or () if one.uuid and one.place == partition)
    return next(listed, f"{device.id}:{partition.profile}@{partition.start}")


def locate(name: str, devices: Iterable[Device]) -> tuple[str, Partition | None]:
    """Return a recorded name's device and, where a part of it is meant, the MIG instance by its place.

    Args:
        name: An id, a MIG instance by device, profile and start, or one by its UUID.
        devices: Of the node: only they tell whose an instance with a UUID is.
    """
    if "@" in name:
        device, _, text = name.rpartition(":")
        return device, parse_partition(text)
    if name.startswith(_MIG_UUID):
        found = ((one.id, part.place) for one in devices for part in one.partitions or () if part.uuid == name)
        return next(found, (name, None))
    return name, None


def parse_partition(text: str) -> Partition:
    """Return the instance that ``2g.20gb@2`` names, or ``2g.20gb@2:MIG-…`` with its UUID.

    Raises:
        DecodeError: It names none.
    """
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise DecodeError(f"{_short(text)} is not a MIG profile and its start: 2g.20gb@2")
    return Partition(found[1], int(found[2]), found[3] or "")


def format_candidates(candidates: Iterable[Berth]) -> str:
    """Return the text of the candidates annotation, best first; devices of resource claims stand in the claims.

    Raises:
        DecodeError: No candidate, a node twice, or a name that could not be read back.
    """
    wanted = tuple(Berth(node=berth.node, devices=berth.devices) for berth in candidates)
    text = ";".join(
        f"{berth.node}={format_devices(berth.devices)}" if berth.devices else berth.node for berth in wanted
    )
    if parse_candidates(text) != wanted:
        raise DecodeError(f"candidates {_short(text)}: a name holds a separator")
    return text


def parse_candidates(text: str) -> tuple[Berth, ...]:
    """Return the candidates in order of preference.

    Raises:
        DecodeError: Empty, a node twice, or a part that is no node name or no list of devices.
    """
    berths: list[Berth] = []
    for part in text.split(";"):
        node, equals, devices = part.partition("=")
        if not _NODE.fullmatch(node):
            raise DecodeError(f"candidates {_short(text)}: {_short(node)} is not a node name")
        berths.append(Berth(node=node, devices=parse_devices(devices) if equals else ()))
    if len({berth.node for berth in berths}) != len(berths):
        raise DecodeError(f"candidates {_short(text)}: a node is named twice")
    return tuple(berths)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
