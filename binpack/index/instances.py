"""MIG instances in arrays: what is taken of every device in MIG mode, and where the next instance goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from binpack import mig
from binpack.state import DeviceState
from fleet.device import Partition

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CLOSED: Final = 0  # not in MIG mode, not known, not healthy, or held otherwise
_WIDEST: Final = 9  # bits of a mask


class Instances:
    """Devices in MIG mode, (N, D): the number of each one's geometry, 0 where none may be given, and what is taken."""

    def __init__(self, capacity: int, width: int) -> None:
        self.geometry: Ints = np.zeros((capacity, width), np.int64)
        self.busy: Ints = np.zeros((capacity, width), np.int64)
        self._known: list[mig.Geometry] = []
        self._choices: dict[str, tuple[Ints, Ints]] = {}

    def grow(self, capacity: int, width: int) -> None:
        """Make room; what is known stays."""
        for name in ("geometry", "busy"):
            old = getattr(self, name)
            new = np.zeros((capacity, width), np.int64)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, new)

    def clear(self, slot: int) -> None:
        """Forget a node."""
        self.geometry[slot] = self.busy[slot] = 0

    def set_devices(self, slot: int, devices: Sequence[DeviceState]) -> None:
        """Take all that is known of a node's devices."""
        for position, state in enumerate(devices):
            geometry = mig.geometry_of(state.device)
            busy = None if geometry is None else mig.occupied(geometry, state.partitions)
            is_open = state.device.is_healthy and state.users == len(state.partitions)
            if geometry is not None and busy is not None and is_open:
                self.geometry[slot, position], self.busy[slot, position] = self._number(geometry), busy

    def book(self, slot: int, position: int, partition: Partition, sign: int) -> bool:
        """Add or take back an instance; False where there can be none such."""
        number = int(self.geometry[slot, position])
        mask = None if number == _CLOSED else self._known[number - 1].mask_of(partition)
        if mask is None:
            return False
        self.busy[slot, position] = self.busy[slot, position] | mask if sign > 0 else self.busy[slot, position] & ~mask
        return True

    def holds(self, slot: int, position: int, partition: Partition) -> bool:
        """Return True if the instance is one that is taken there."""
        number = int(self.geometry[slot, position])
        mask = None if number == _CLOSED else self._known[number - 1].mask_of(partition)
        return mask is not None and int(self.busy[slot, position]) & mask == mask

    def worth(self, slot: int) -> int:
        """Return what is free on a node's devices in MIG mode, milli-GPU."""
        pairs = zip(self.geometry[slot].tolist(), self.busy[slot].tolist(), strict=True)
        return sum(int(mig.worth(self._known[number - 1])[busy]) for number, busy in pairs if number != _CLOSED)

    def best(self, profile: str, slots: Ints) -> tuple[Bools, Ints]:
        """Return on which devices an instance may start, (n, D), and what it costs each of its worth, (n, D)."""
        start, loss = self._tables(profile)
        geometry, busy = self.geometry[slots], self.busy[slots]
        return start[geometry, busy] >= 0, loss[geometry, busy]

    def start(self, profile: str, slot: int, position: int) -> Partition:
        """Return the instance that costs least there; `best` says whether there is one."""
        number, busy = int(self.geometry[slot, position]), int(self.busy[slot, position])
        return self._known[number - 1].starts[int(self._tables(profile)[0][number, busy])].partition

    def free_slices(self, slot: int) -> int:
        """Return how many memory slices of a node are free, wherever they lie."""
        pairs = zip(self.geometry[slot].tolist(), self.busy[slot].tolist(), strict=True)
        return sum(mig.free_slices(self._known[number - 1], busy)[0] for number, busy in pairs if number != _CLOSED)

    def could_hold(self, profile: str, slots: Ints) -> Bools:
        """Return which devices could hold the profile if nobody held anything, (n, D)."""
        found: Bools = self._tables(profile)[0][self.geometry[slots], 0] >= 0
        return found

    def _number(self, geometry: mig.Geometry) -> int:
        if geometry not in self._known:
            self._known.append(geometry)
            self._choices.clear()
        return self._known.index(geometry) + 1

    def _tables(self, profile: str) -> tuple[Ints, Ints]:
        """Return best start and its cost by geometry and mask, (geometries + 1, 512)."""
        found = self._choices.get(profile)
        if found is None:
            start = np.full((len(self._known) + 1, 1 << _WIDEST), -1, np.int64)
            loss = np.zeros_like(start)
            for number, geometry in enumerate(self._known, start=1):
                choices = mig.choices(geometry, profile)
                start[number, : len(choices.start)] = choices.start
                loss[number, : len(choices.loss)] = choices.loss
            found = self._choices[profile] = (start, loss)
        return found
