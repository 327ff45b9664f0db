"""What is free on every node, as a structure of arrays that bookings change in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from binpack.fit import model_matches
from binpack.index.instances import Instances
from binpack.state import NodeState
from fleet import labels
from fleet.berths import locate, partition_name
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk, Partition
from fleet.errors import BerthmasterError
from fleet.node import Node
from fleet.pod import Berth, Pod
from fleet.resources import Resources

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NO_DEVICES: Final = 0  # takes no device asks: none there, or blocked
CLASSIC: Final = 1
SHARING: Final = 2
NO_MODEL: Final = -1

# Amounts beyond this are read as this: far above any machine, and sums of a few stay inside int64.
HUGE: Final = 2**60

# fmt: off
NODE_COLUMNS: Final = (
    "milli_cpu", "memory_bytes", "pod_slots", "kind", "has_devices", "version", "node_class", "live", "node_model",
)
# fmt: on
DEVICE_COLUMNS: Final = ("free_milli", "free_mib", "total_mib", "users", "healthy", "residual", "untouched", "model")
# Kept once a node needs them: which island a device is of, 0 = none; what a node's devices in MIG mode are worth.
ISLAND: Final = "island"
MIG_WORTH: Final = "mig_worth"
BY_DEVICE: Final = (*DEVICE_COLUMNS, ISLAND)
_EXTENDED: Final = "extended/"

_RANKS_KEPT: Final = 1024


class UnknownBerthError(BerthmasterError, LookupError):
    """A booking names a node or device that the arrays do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """What a node could hold when empty; memory is rounded down so that near-equal machines share a class."""

    model: int
    devices: int
    milli_cpu: int
    memory_bytes: int


class Arrays:
    """Nodes in slots 0..count-1 (some may be dead), up to `width` devices each.

    Arrays are int64 over slots, (N,) or (N, D); rows of dead slots and columns past a node's devices are zero.
    `version[slot]` grows with every change, so that whoever caches per node knows what is stale; `changed` lists the
    slots to re-derive from since somebody last emptied it, `relabelled` logs slots whose labels or taints may read
    otherwise, `leaving` holds those of nodes that are to be emptied, and `has_new_inventory` says that nodes came, went
    or changed their class.
    """

    def __init__(self) -> None:
        self.count = 0
        self.slots: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.ids: list[tuple[str, ...]] = []
        self.models: list[str] = []
        self.classes: list[NodeClass] = []
        self.changed: set[int] = set()
        self.relabelled: list[int] = []
        self.has_new_inventory = True
        self.clock = 0
        self._model_of: dict[str, int] = {}
        self._class_of: dict[NodeClass, int] = {}
        self._ranks: dict[tuple[str, ...], Ints] = {}
        self.leaving: set[int] = set()
        self._spare: list[int] = []
        self._order_is_stale = True
        self._order: Ints = np.zeros(0, np.int64)
        self._by_slot: dict[str, npt.NDArray[np.int64]] = {}
        self._extended: dict[str, Ints] = {}
        self.instances: Instances | None = None
        self.knows_memory = False  # of any device
        self._allocate(64, 8)

    def _allocate(self, capacity: int, width: int) -> None:
        def grown(old: Ints | None, shape: tuple[int, ...], fill: int = 0) -> Ints:
            new = np.full(shape, fill, np.int64)
            if old is not None:
                new[tuple(slice(0, extent) for extent in old.shape)] = old
            return new

        columns = self._by_slot
        for name in NODE_COLUMNS:
            columns[name] = grown(columns.get(name), (capacity,), NO_MODEL if name == "node_model" else 0)
        for name in DEVICE_COLUMNS:
            columns[name] = grown(columns.get(name), (capacity, width), NO_MODEL if name == "model" else 0)
        for name, shape in ((ISLAND, (capacity, width)), (MIG_WORTH, (capacity,))):
            if name in columns:
                columns[name] = grown(columns[name], shape)
        if self.instances is not None:
            self.instances.grow(capacity, width)
        self._extended = {name: grown(column, (capacity,)) for name, column in self._extended.items()}
        self._bind(capacity, width)

    def _bind(self, capacity: int, width: int) -> None:
        self.capacity, self.width = capacity, width
        columns = self._by_slot
        self.milli_cpu, self.memory_bytes, self.pod_slots = (
            columns["milli_cpu"],
            columns["memory_bytes"],
            columns["pod_slots"],
        )
        self.kind, self.has_devices, self.version = columns["kind"], columns["has_devices"], columns["version"]
        self.node_class, self.node_model, self.live = columns["node_class"], columns["node_model"], columns["live"]
        self.free_milli, self.free_mib, self.total_mib = (
            columns["free_milli"],
            columns["free_mib"],
            columns["total_mib"],
        )
        self.users, self.healthy, self.model = columns["users"], columns["healthy"], columns["model"]
        self.residual, self.untouched = columns["residual"], columns["untouched"]
        self.island: Ints | None = columns.get(ISLAND)
        self.mig_worth: Ints | None = columns.get(MIG_WORTH)

    @classmethod
    def of_columns(cls, columns: Mapping[str, Ints], models: Sequence[str]) -> Arrays:
        """Return arrays of nameless nodes that are scored and booked by slot alone, one per row of the columns.

        Args:
            columns: As `columns` returns them; kept, not copied.
            models: Names of the models by number.
        """
        arrays = cls()
        arrays._by_slot = {name: column for name, column in columns.items() if not name.startswith(_EXTENDED)}
        arrays._extended = {
            name.removeprefix(_EXTENDED): column for name, column in columns.items() if name.startswith(_EXTENDED)
        }
        arrays.models = list(models)
        arrays._model_of = {model: number for number, model in enumerate(models)}
        arrays.count = len(columns["live"])
        arrays.knows_memory = bool(columns["total_mib"].any())
        arrays._bind(arrays.count, columns["free_milli"].shape[1])
        return arrays

    def columns(self, slots: Ints) -> dict[str, Ints]:
        """Return a copy of everything that scoring and booking these slots needs, (n,) or (n, D) by name."""
        found = {name: column[slots] for name, column in self._by_slot.items()}
        found.update({_EXTENDED + name: column[slots] for name, column in self._extended.items()})
        return found

    def set_node(self, state: NodeState) -> None:
        """Add a node or replace everything known about it."""
        node = state.node
        slot = self.slots.get(node.name)
        if slot is None:
            slot = self._new_slot(node.name)
        if len(state.devices) > self.width:
            self._allocate(self.capacity, len(state.devices) + 4)
        before = self.nodes[slot]
        if before is None or not _reads_alike(before, node):
            self.relabelled.append(slot)
        self.nodes[slot] = node
        (self.leaving.add if node.is_spare else self.leaving.discard)(slot)
        self.live[slot] = 1
        self._set_free(slot, state.free)
        self._set_devices(slot, state)
        node_class = self._class_id(slot, node)
        if before is None or self.node_class[slot] != node_class:
            self.has_new_inventory = True
        self.node_class[slot] = node_class
        self._derive(slot)

    def remove_node(self, name: str) -> None:
        """Forget a node; removing one that is not there does nothing."""
        slot = self.slots.pop(name, None)
        if slot is None:
            return
        self.nodes[slot] = None
        self.leaving.discard(slot)
        self.ids[slot] = ()
        for column in self._by_slot.values():
            if column is not self.version:
                column[slot] = 0
        self.model[slot] = self.node_model[slot] = NO_MODEL
        for column in self._extended.values():
            column[slot] = 0
        if self.instances is not None:
            self.instances.clear(slot)
        self._spare.append(slot)
        self.has_new_inventory = True
        self.relabelled.append(slot)
        self._order_is_stale = True
        self._touch(slot)

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth.

        Raises:
            UnknownBerthError: The node or one of the devices is not held here.
        """
        self._book(pod, berth, 1)

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`.

        Raises:
            UnknownBerthError: The node or one of the devices is not held here.
        """
        self._book(pod, berth, -1)

    def known_classes(self) -> dict[NodeClass, int]:
        """Return the classes of the nodes there are, with how many there are of each."""
        numbers = self.node_class[: self.count][self.live[: self.count] > 0]
        found, counts = np.unique(numbers, return_counts=True)
        return {self.classes[number]: n for number, n in zip(found.tolist(), counts.tolist(), strict=True)}

    def extended(self, name: str) -> Ints:
        """Return the free amounts of one extended resource, (capacity,)."""
        column = self._extended.get(name)
        return np.zeros(self.capacity, np.int64) if column is None else column

    def extended_names(self) -> tuple[str, ...]:
        """Return the extended resources that any node has offered."""
        return tuple(self._extended)

    def model_id(self, model: str) -> int:
        """Return the number of a model name, a new one if needed; NO_MODEL for ""."""
        if not model:
            return NO_MODEL
        found = self._model_of.get(model)
        if found is None:
            found = self._model_of[model] = len(self.models)
            self._ranks.clear()
            self.models.append(model)
        return found

    def ranks(self, wanted: tuple[str, ...]) -> Ints:
        """Return each model's place among those wanted, (models + 1,), -1 = not acceptable; all 0 where any will do.

        The last entry is that of devices of no known model, so that NO_MODEL finds it.
        """
        found = self._ranks.get(wanted)
        if found is None:
            if len(self._ranks) >= _RANKS_KEPT:
                self._ranks.clear()
            found = np.array([model_place(wanted, model) for model in (*self.models, "")], np.int64)
            self._ranks[wanted] = found
        return found

    @property
    def order(self) -> Ints:
        """Return each slot's place in the order of node names, (capacity,): the tie-break that no insertion shifts."""
        if self._order_is_stale or len(self._order) != self.capacity:
            self._order = np.full(self.capacity, self.capacity, np.int64)
            for place, name in enumerate(sorted(self.slots)):
                self._order[self.slots[name]] = place
            self._order_is_stale = False
        return self._order

    def name(self, slot: int) -> str:
        """Return the name of the node in a live slot."""
        node = self.nodes[slot]
        if node is None:
            raise UnknownBerthError(f"slot {slot} holds no node")
        return node.name

    def instance_name(self, slot: int, position: int, partition: Partition) -> str:
        """Return the name in records of a MIG instance on the device at this position of a node."""
        node = self.nodes[slot]
        if node is None:
            raise UnknownBerthError(f"slot {slot} holds no node")
        return partition_name(node.devices[position], partition)

    def device_ids(self, slot: int, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the ids of the devices at these positions of a node."""
        ids = self.ids[slot]
        return tuple(ids[position] for position in positions)

    def _new_slot(self, name: str) -> int:
        if self._spare:
            slot = self._spare.pop()
        else:
            slot = self.count
            if slot == self.capacity:
                self._allocate(2 * self.capacity, self.width)
            self.count += 1
            self.nodes.append(None)
            self.ids.append(())
        self.slots[name] = slot
        self._order_is_stale = True
        return slot

    def _set_free(self, slot: int, free: Resources) -> None:
        self.milli_cpu[slot] = _clamped(free.milli_cpu)
        self.memory_bytes[slot] = _clamped(free.memory_bytes)
        self.pod_slots[slot] = _clamped(free.pod_slots)
        for column in self._extended.values():
            column[slot] = 0
        for name, amount in free.extended:
            if name not in self._extended:
                self._extended[name] = np.zeros(self.capacity, np.int64)
            self._extended[name][slot] = _clamped(amount)

    def _set_devices(self, slot: int, state: NodeState) -> None:
        devices = state.devices
        self.ids[slot] = tuple(d.device.id for d in devices)
        for column in (self.free_milli, self.free_mib, self.total_mib, self.users, self.healthy):
            column[slot] = 0
        self.model[slot] = NO_MODEL
        for position, d in enumerate(devices):
            self.free_milli[slot, position] = _clamped(d.free_milli)
            if d.free_mib is not None:  # a total of 0 stands for "unknown"
                self.knows_memory = True
                self.free_mib[slot, position] = _clamped(d.free_mib)
                self.total_mib[slot, position] = max(1, _clamped(d.device.memory_mib or d.free_mib))
            self.users[slot, position] = d.users
            self.healthy[slot, position] = d.device.is_healthy
            self.model[slot, position] = self.model_id(d.device.model)
        self._set_notes(slot, state)
        self.node_model[slot] = self.model[slot, 0] if devices else NO_MODEL
        self.has_devices[slot] = bool(devices) or _offers_instances(state.node)
        is_open = bool(devices) and not state.blocked and not state.node.device_problems
        self.kind[slot] = (SHARING if state.node.is_sharing else CLASSIC) if is_open else NO_DEVICES

    def _set_notes(self, slot: int, state: NodeState) -> None:
        """Note islands, and devices in MIG mode: these are healthy for instances alone."""
        devices = state.devices
        if self.island is not None:
            self.island[slot] = 0
        if any(d.device.island for d in devices):
            if self.island is None:
                self._by_slot[ISLAND] = self.island = np.zeros((self.capacity, self.width), np.int64)
            self.island[slot, : len(devices)] = [d.device.island for d in devices]
        if self.instances is not None:
            self.instances.clear(slot)
        if any(d.device.partitions is not None for d in devices):
            if self.instances is None:
                self.instances = Instances(self.capacity, self.width)
                self._by_slot[MIG_WORTH] = self.mig_worth = np.zeros(self.capacity, np.int64)
            self.instances.set_devices(slot, devices)
            self.healthy[slot, : len(devices)] *= [d.device.partitions is None for d in devices]

    def _class_id(self, slot: int, node: Node) -> int:
        memory = max(0, node.allocatable.memory_bytes)
        step = 1 << max(0, memory.bit_length() - 5)
        node_class = NodeClass(
            model=int(self.node_model[slot]),
            devices=len(node.devices),
            milli_cpu=max(0, node.allocatable.milli_cpu) // 1000 * 1000,
            memory_bytes=memory // step * step,
        )
        found = self._class_of.get(node_class)
        if found is None:
            found = self._class_of[node_class] = len(self.classes)
            self.classes.append(node_class)
        return found

    def _book(self, pod: Pod, berth: Berth, sign: int) -> None:
        slot = self.slots.get(berth.node)
        if slot is None:
            raise UnknownBerthError(f"no node {berth.node!r}")
        positions = self._positions(slot, pod.ask, berth, sign)
        wanted = pod.requests
        self.milli_cpu[slot] -= sign * _clamped(wanted.milli_cpu)
        self.memory_bytes[slot] -= sign * _clamped(wanted.memory_bytes)
        self.pod_slots[slot] -= sign * _clamped(wanted.pod_slots)
        for name, amount in wanted.extended:
            if name not in self._extended:
                self._extended[name] = np.zeros(self.capacity, np.int64)
            self._extended[name][slot] -= sign * _clamped(amount)
        ask = pod.ask
        if ask is not None:
            for position in positions:
                self.users[slot, position] += sign
                if ask.kind is AskKind.PARTITION:
                    self._book_instance(slot, position, berth.devices[0], sign)
                elif ask.is_whole:
                    self.free_milli[slot, position] -= sign * WHOLE_MILLI
                    self.free_mib[slot, position] -= sign * self.total_mib[slot, position]
                else:
                    self.free_milli[slot, position] -= sign * _clamped(ask.milli_gpu)
                    if self.total_mib[slot, position]:
                        self.free_mib[slot, position] -= sign * _clamped(ask.memory_mib)
        self._derive(slot)

    def _positions(self, slot: int, ask: DeviceAsk | None, berth: Berth, sign: int) -> list[int]:
        if ask is None:
            return []
        if ask.kind is AskKind.CLASSIC:
            held_or_free = self.untouched[slot] if sign > 0 else (self.users[slot] > 0)
            return [int(p) for p in np.flatnonzero(held_or_free)[: ask.count]]
        ids, node = self.ids[slot], self.nodes[slot]
        names: Sequence[str] = berth.devices
        if ask.kind is AskKind.PARTITION and node is not None:
            names = [locate(name, node.devices)[0] for name in berth.devices]
        try:
            return [ids.index(device) for device in names]
        except ValueError:
            raise UnknownBerthError(f"node {berth.node!r} has not all of the devices {berth.devices!r}") from None

    def _book_instance(self, slot: int, position: int, name: str, sign: int) -> None:
        node = self.nodes[slot]
        partition = None if node is None else locate(name, node.devices)[1]
        if self.instances is None or partition is None or not self.instances.book(slot, position, partition, sign):
            raise UnknownBerthError(f"no MIG instance {name!r}")

    def _derive(self, slot: int) -> None:
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
        self._touch(slot)

    def _touch(self, slot: int) -> None:
        self.clock += 1
        self.version[slot] = self.clock
        self.changed.add(slot)


def between(amounts: Ints, least: int, most: int) -> Ints:
    """Return the amounts, none below `least` or above `most`: numpy's clip takes several times as long on few."""
    found: Ints = np.minimum(np.maximum(amounts, least), most)
    return found


def _clamped(amount: int) -> int:
    return max(-HUGE, min(HUGE, amount))


def model_place(wanted: tuple[str, ...], model: str) -> int:
    """Return the place of a model among those wanted, 0 where any will do, -1 = not acceptable."""
    if not wanted:
        return 0
    return next((place for place, name in enumerate(wanted) if model_matches(name, model)), -1)


def _offers_instances(node: Node) -> bool:
    """Return True for a node whose device plugin advertises MIG instances: CPU-only pods should leave it alone too."""
    return any(name.startswith(labels.NVIDIA_MIG_PREFIX) for name, _ in node.allocatable.extended)


def _reads_alike(a: Node, b: Node) -> bool:
    """Return True if constraints judge both the same."""
    return a is b or (a.labels == b.labels and a.taints == b.taints and a.is_cordoned == b.is_cordoned)
