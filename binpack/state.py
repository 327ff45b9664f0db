"""What is free on one node now: the value that passes from the ledger to index, solver and verifier."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.company import Guest
from fleet.device import Device, Partition
from fleet.node import Node
from fleet.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One device and what is left of it.

    Attributes:
        free_milli: 0..1000; below 0 where the API objects say more is held than there is.
        free_mib: Memory left; None where the card's memory is unknown: then only milli-GPU say how full it is.
        users: Pods that hold any part of it; a whole device can only be given at 0.
        partitions: The MIG instances held, sorted; fewer than `users` where somebody holds the device otherwise, and
            then no instance may be given beside that.
    """

    device: Device
    free_milli: int
    free_mib: int | None
    users: int
    partitions: tuple[Partition, ...] = ()

    @property
    def is_untouched(self) -> bool:
        """Return True if the device can be given as a whole."""
        return self.users == 0 and self.device.is_healthy and self.device.partitions is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node with what is free on it.

    On a classic node the devices are a count: as many of them as are free appear untouched, the others held.

    Attributes:
        free: allocatable minus everything held, negative parts where over-committed.
        blocked: Why no device of this node may be given (unreadable record, dead card nobody can name); empty = fine.
        guests: The pods there as rules between pods see them, one entry each, in an order of this process.
    """

    node: Node
    free: Resources
    devices: tuple[DeviceState, ...] = ()
    blocked: tuple[str, ...] = ()
    guests: tuple[Guest, ...] = ()
