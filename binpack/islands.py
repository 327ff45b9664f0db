"""Groups of devices with a fast link between them, for those who want all of theirs in one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from binpack.state import DeviceState


def holding(devices: Sequence[DeviceState], count: int) -> list[list[DeviceState]]:
    """Return the devices of each island that has `count` of them, islands by number, devices in the order given."""
    found: dict[int, list[DeviceState]] = {}
    for device in devices:
        if device.device.island:
            found.setdefault(device.device.island, []).append(device)
    return [found[island] for island in sorted(found) if len(found[island]) >= count]
