"""One pod on one berth, as changes to the numbers of its node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from binpack.index.columns import Columns, clamped
from fleet.berths import locate
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.errors import BerthmasterError
from fleet.node import Node
from fleet.pod import Berth, Pod


class UnknownBerthError(BerthmasterError, LookupError):
    """A booking names a node or device that is not there."""


def book(columns: Columns, slot: int, node: Node, ids: tuple[str, ...], pod: Pod, berth: Berth, sign: int) -> None:
    """Take the berth for the pod, or give it back; nothing is changed where that cannot be.

    Args:
        columns: Changed in place.
        slot: Where the node is.
        node: The berth's node.
        ids: Of its devices, by position.
        pod: Who.
        berth: What it gets, on classic nodes any devices.
        sign: 1 takes, -1 gives back.

    Raises:
        UnknownBerthError: The node does not have one of the devices.
    """
    ask = pod.ask
    positions = [] if ask is None else _positions(columns, slot, node, ids, ask, berth, sign)
    if ask is not None and ask.kind is AskKind.PARTITION:  # first, for it alone may still be refused
        for position in positions:
            _book_instance(columns, slot, position, node, berth.devices[0], sign)
    wanted = pod.requests
    columns.milli_cpu[slot] -= sign * clamped(wanted.milli_cpu)
    columns.memory_bytes[slot] -= sign * clamped(wanted.memory_bytes)
    columns.pod_slots[slot] -= sign * clamped(wanted.pod_slots)
    for name, amount in wanted.extended:
        columns.add_extended(name)[slot] -= sign * clamped(amount)
    if ask is not None:
        _book_devices(columns, slot, ask, positions, sign)
    columns.derive(slot)


def _book_devices(columns: Columns, slot: int, ask: DeviceAsk, positions: Sequence[int], sign: int) -> None:
    for position in positions:
        columns.users[slot, position] += sign
        if ask.kind is AskKind.PARTITION:
            continue
        if ask.is_whole:
            columns.free_milli[slot, position] -= sign * WHOLE_MILLI
            columns.free_mib[slot, position] -= sign * columns.total_mib[slot, position]
        else:
            columns.free_milli[slot, position] -= sign * clamped(ask.milli_gpu)
            if columns.total_mib[slot, position]:
                columns.free_mib[slot, position] -= sign * clamped(ask.memory_mib)


def _positions(
    columns: Columns, slot: int, node: Node, ids: tuple[str, ...], ask: DeviceAsk, berth: Berth, sign: int
) -> list[int]:
    if ask.kind is AskKind.CLASSIC:
        held_or_free = columns.untouched[slot] if sign > 0 else (columns.users[slot] > 0)
        return [int(p) for p in np.flatnonzero(held_or_free)[: ask.count]]
    names: Sequence[str] = berth.devices
    if ask.kind is AskKind.PARTITION:
        names = [locate(name, node.devices)[0] for name in berth.devices]
    try:
        return [ids.index(device) for device in names]
    except ValueError:
        raise UnknownBerthError(f"node {berth.node!r} has not all of the devices {berth.devices!r}") from None


def _book_instance(columns: Columns, slot: int, position: int, node: Node, name: str, sign: int) -> None:
    partition = locate(name, node.devices)[1]
    if partition is None or columns.instances is None or not columns.instances.book(slot, position, partition, sign):
        raise UnknownBerthError(f"no MIG instance {name!r}")
