"""What is free on every node as numbers by slot, no names: all that scoring a pod on many nodes at once reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from binpack.index.instances import Instances
from binpack.index.models import NO_MODEL, Models
from fleet.device import WHOLE_MILLI

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NO_DEVICES: Final = 0  # takes no device asks: none there, or blocked
CLASSIC: Final = 1
SHARING: Final = 2

# Amounts beyond this are read as this: far above any machine, and sums of a few stay inside int64.
HUGE: Final = 2**60

_NODE_COLUMNS: Final = (
    "milli_cpu",
    "memory_bytes",
    "pod_slots",
    "kind",
    "has_devices",
    "version",
    "node_class",
    "live",
    "node_model",
)
_DEVICE_COLUMNS: Final = ("free_milli", "free_mib", "total_mib", "users", "healthy", "residual", "untouched", "model")
# Kept once a node needs them: which island a device is of, 0 = none; what a node's devices in MIG mode are worth.
_ISLAND: Final = "island"
_MIG_WORTH: Final = "mig_worth"
_MODEL_COLUMNS: Final = ("node_model", "model")
BY_DEVICE: Final = (*_DEVICE_COLUMNS, _ISLAND)
_EXTENDED: Final = "extended/"


class Columns:
    """Nodes in slots 0..count-1 (some may be dead), up to `width` devices each.

    Arrays are int64 over slots, (N,) or (N, D); rows of dead slots and columns past a node's devices are zero, their
    models NO_MODEL. `version[slot]` grows with every change, so that whoever caches per node knows what is stale;
    `changed` lists the slots to re-derive from since somebody last emptied it.
    """

    def __init__(self, models: Models, capacity: int, width: int) -> None:
        self.count = 0
        self.models = models
        self.changed: set[int] = set()
        self.clock = 0
        self.instances: Instances | None = None
        self.knows_memory = False  # of any device
        self._by_slot: dict[str, Ints] = {}
        self._extended: dict[str, Ints] = {}
        self.allocate(capacity, width)

    @classmethod
    def of(cls, columns: Mapping[str, Ints], models: Models) -> Columns:
        """Return nameless nodes that are scored and booked by slot alone, one per row of what `copied` returned.

        Args:
            columns: Kept, not copied.
            models: Those that the columns number.
        """
        found = cls(models, 0, 0)
        found._by_slot = {name: column for name, column in columns.items() if not name.startswith(_EXTENDED)}
        found._extended = {
            name.removeprefix(_EXTENDED): column for name, column in columns.items() if name.startswith(_EXTENDED)
        }
        found.count = len(columns["live"])
        found.knows_memory = bool(columns["total_mib"].any())
        found._bind(found.count, columns["free_milli"].shape[1])
        return found

    def copied(self, slots: Ints) -> dict[str, Ints]:
        """Return a copy of everything that scoring and booking these slots needs, (n,) or (n, D) by name."""
        found = {name: column[slots] for name, column in self._by_slot.items()}
        found.update({_EXTENDED + name: column[slots] for name, column in self._extended.items()})
        return found

    def allocate(self, capacity: int, width: int) -> None:
        """Make room for so many slots of so many devices; never for fewer than there are."""

        def grown(old: Ints | None, shape: tuple[int, ...], fill: int = 0) -> Ints:
            new = np.full(shape, fill, np.int64)
            if old is not None:
                new[tuple(slice(0, extent) for extent in old.shape)] = old
            return new

        columns = self._by_slot
        for names, shape in ((_NODE_COLUMNS, (capacity,)), (_DEVICE_COLUMNS, (capacity, width))):
            for name in names:
                columns[name] = grown(columns.get(name), shape, NO_MODEL if name in _MODEL_COLUMNS else 0)
        for name, shape in ((_ISLAND, (capacity, width)), (_MIG_WORTH, (capacity,))):
            if name in columns:
                columns[name] = grown(columns[name], shape)
        if self.instances is not None:
            self.instances.grow(capacity, width)
        self._extended = {name: grown(column, (capacity,)) for name, column in self._extended.items()}
        self._bind(capacity, width)

    def _bind(self, capacity: int, width: int) -> None:
        self.capacity, self.width = capacity, width
        columns = self._by_slot
        self.milli_cpu, self.memory_bytes = columns["milli_cpu"], columns["memory_bytes"]
        self.pod_slots, self.kind, self.has_devices = columns["pod_slots"], columns["kind"], columns["has_devices"]
        self.version, self.live = columns["version"], columns["live"]
        self.node_class, self.node_model = columns["node_class"], columns["node_model"]
        self.free_milli, self.free_mib, self.total_mib = (
            columns["free_milli"],
            columns["free_mib"],
            columns["total_mib"],
        )
        self.users, self.healthy, self.model = columns["users"], columns["healthy"], columns["model"]
        self.residual, self.untouched = columns["residual"], columns["untouched"]
        self.island: Ints | None = columns.get(_ISLAND)
        self.mig_worth: Ints | None = columns.get(_MIG_WORTH)

    def extended(self, name: str) -> Ints:
        """Return the free amounts of one extended resource, (capacity,)."""
        column = self._extended.get(name)
        return np.zeros(self.capacity, np.int64) if column is None else column

    def extended_names(self) -> tuple[str, ...]:
        """Return the extended resources that any node has offered."""
        return tuple(self._extended)

    def add_extended(self, name: str) -> Ints:
        """Return the free amounts of one extended resource, (capacity,), to be changed in place."""
        if name not in self._extended:
            self._extended[name] = np.zeros(self.capacity, np.int64)
        return self._extended[name]

    def add_islands(self) -> Ints:
        """Return the islands of devices, (capacity, width), to be changed in place."""
        if self.island is None:
            self._by_slot[_ISLAND] = self.island = np.zeros((self.capacity, self.width), np.int64)
        return self.island

    def add_instances(self) -> Instances:
        """Return the books of devices in MIG mode, to be changed in place."""
        if self.instances is None:
            self.instances = Instances(self.capacity, self.width)
            self._by_slot[_MIG_WORTH] = self.mig_worth = np.zeros(self.capacity, np.int64)
        return self.instances

    def clear(self, slot: int) -> None:
        """Make a slot a dead one."""
        for column in (*self._by_slot.values(), *self._extended.values()):
            if column is not self.version:
                column[slot] = 0
        self.model[slot] = self.node_model[slot] = NO_MODEL
        if self.instances is not None:
            self.instances.clear(slot)
        self.touch(slot)

    def derive(self, slot: int) -> None:
        """Recompute residual (0..1000, what the potential may count on) and untouched of one node."""
        kind = self.kind[slot]
        if kind == NO_DEVICES:
            self.residual[slot] = self.untouched[slot] = 0
        else:
            healthy = self.healthy[slot]
            untouched = healthy * (self.users[slot] == 0)
            self.untouched[slot] = untouched
            self.residual[slot] = WHOLE_MILLI * untouched
            if kind == SHARING:
                residual = between(self.free_milli[slot], 0, WHOLE_MILLI)
                totals = self.total_mib[slot]
                if totals.any():
                    by_memory = WHOLE_MILLI * between(self.free_mib[slot], 0, 2**50) // np.maximum(totals, 1)
                    np.copyto(residual, np.minimum(residual, by_memory), where=totals > 0)
                np.copyto(self.residual[slot], residual * healthy, where=untouched == 0)
        if self.instances is not None and self.mig_worth is not None:
            self.mig_worth[slot] = self.instances.worth(slot) if kind == SHARING else 0
        self.touch(slot)

    def touch(self, slot: int) -> None:
        """Note that what is kept of a slot is stale."""
        self.clock += 1
        self.version[slot] = self.clock
        self.changed.add(slot)


def between(amounts: Ints, least: int, most: int) -> Ints:
    """Return the amounts, none below `least` or above `most`: numpy's clip takes several times as long on few."""
    found: Ints = np.minimum(np.maximum(amounts, least), most)
    return found


def clamped(amount: int) -> int:
    """Return an amount that sums of a few keep inside int64."""
    return max(-HUGE, min(HUGE, amount))
