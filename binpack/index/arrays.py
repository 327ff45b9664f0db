"""What is free on every node: nodes by name on top of the columns that bookings change in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from binpack.index.bookings import UnknownBerthError, book
from binpack.index.columns import CLASSIC, NO_DEVICES, SHARING, Columns, Ints, clamped
from binpack.index.models import NO_MODEL, Models
from binpack.index.node_class import NodeClass
from binpack.state import NodeState
from fleet import labels
from fleet.berths import partition_name
from fleet.device import Partition
from fleet.node import Node
from fleet.pod import Berth, Pod
from fleet.resources import Resources


class Arrays(Columns):
    """Columns whose slots are nodes with names and devices with ids, and which keep the books of them.

    `relabelled` logs slots whose labels or taints may read otherwise, `leaving` holds those of nodes that are to be
    emptied, and `has_new_inventory` says that nodes came, went or changed their class.
    """

    def __init__(self) -> None:
        super().__init__(Models(), 64, 8)
        self.slots: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.ids: list[tuple[str, ...]] = []
        self.classes: list[NodeClass] = []
        self.relabelled: list[int] = []
        self.leaving: set[int] = set()
        self.has_new_inventory = True
        self._class_of: dict[NodeClass, int] = {}
        self._unused: list[int] = []
        self._order_is_stale = True
        self._order: Ints = np.zeros(0, np.int64)

    def set_node(self, state: NodeState) -> None:
        """Add a node or replace everything known about it."""
        node = state.node
        slot = self.slots.get(node.name)
        if slot is None:
            slot = self._new_slot(node.name)
        if len(state.devices) > self.width:
            self.allocate(self.capacity, len(state.devices) + 4)
        before = self.nodes[slot]
        if before is None or not _reads_alike(before, node):
            self.relabelled.append(slot)
        self.nodes[slot] = node
        (self.leaving.add if node.is_spare else self.leaving.discard)(slot)
        self.live[slot] = 1
        self._set_free(slot, state.free)
        self._set_devices(slot, state)
        node_class = self._class_id(NodeClass.of(node, int(self.node_model[slot])))
        if before is None or self.node_class[slot] != node_class:
            self.has_new_inventory = True
        self.node_class[slot] = node_class
        self.derive(slot)

    def remove_node(self, name: str) -> None:
        """Forget a node; removing one that is not there does nothing."""
        slot = self.slots.pop(name, None)
        if slot is None:
            return
        self.nodes[slot] = None
        self.leaving.discard(slot)
        self.ids[slot] = ()
        self._unused.append(slot)
        self.has_new_inventory = True
        self.relabelled.append(slot)
        self._order_is_stale = True
        self.clear(slot)

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
        return self._node(slot).name

    def instance_name(self, slot: int, position: int, partition: Partition) -> str:
        """Return the name in records of a MIG instance on the device at this position of a node."""
        return partition_name(self._node(slot).devices[position], partition)

    def device_ids(self, slot: int, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the ids of the devices at these positions of a node."""
        ids = self.ids[slot]
        return tuple(ids[position] for position in positions)

    def _node(self, slot: int) -> Node:
        node = self.nodes[slot]
        if node is None:
            raise UnknownBerthError(f"slot {slot} holds no node")
        return node

    def _book(self, pod: Pod, berth: Berth, sign: int) -> None:
        slot = self.slots.get(berth.node)
        if slot is None:
            raise UnknownBerthError(f"no node {berth.node!r}")
        book(self, slot, self._node(slot), self.ids[slot], pod, berth, sign)

    def _new_slot(self, name: str) -> int:
        if self._unused:
            slot = self._unused.pop()
        else:
            slot = self.count
            if slot == self.capacity:
                self.allocate(2 * self.capacity, self.width)
            self.count += 1
            self.nodes.append(None)
            self.ids.append(())
        self.slots[name] = slot
        self._order_is_stale = True
        return slot

    def _class_id(self, node_class: NodeClass) -> int:
        found = self._class_of.get(node_class)
        if found is None:
            found = self._class_of[node_class] = len(self.classes)
            self.classes.append(node_class)
        return found

    def _set_free(self, slot: int, free: Resources) -> None:
        self.milli_cpu[slot] = clamped(free.milli_cpu)
        self.memory_bytes[slot] = clamped(free.memory_bytes)
        self.pod_slots[slot] = clamped(free.pod_slots)
        for name in self.extended_names():
            self.extended(name)[slot] = 0
        for name, amount in free.extended:
            self.add_extended(name)[slot] = clamped(amount)

    def _set_devices(self, slot: int, state: NodeState) -> None:
        devices = state.devices
        self.ids[slot] = tuple(d.device.id for d in devices)
        for column in (self.free_milli, self.free_mib, self.total_mib, self.users, self.healthy):
            column[slot] = 0
        self.model[slot] = NO_MODEL
        for position, d in enumerate(devices):
            self.free_milli[slot, position] = clamped(d.free_milli)
            if d.free_mib is not None:  # a total of 0 stands for "unknown"
                self.knows_memory = True
                self.free_mib[slot, position] = clamped(d.free_mib)
                self.total_mib[slot, position] = max(1, clamped(d.device.memory_mib or d.free_mib))
            self.users[slot, position] = d.users
            self.healthy[slot, position] = d.device.is_healthy
            self.model[slot, position] = self.models.number(d.device.model)
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
            self.add_islands()[slot, : len(devices)] = [d.device.island for d in devices]
        if self.instances is not None:
            self.instances.clear(slot)
        if any(d.device.partitions is not None for d in devices):
            self.add_instances().set_devices(slot, devices)
            self.healthy[slot, : len(devices)] *= [d.device.partitions is None for d in devices]


def _offers_instances(node: Node) -> bool:
    """Return True for a node whose device plugin advertises MIG instances: CPU-only pods should leave it alone too."""
    return any(name.startswith(labels.NVIDIA_MIG_PREFIX) for name, _ in node.allocatable.extended)


def _reads_alike(a: Node, b: Node) -> bool:
    """Return True if constraints judge both the same."""
    return a is b or (a.labels == b.labels and a.taints == b.taints and a.is_cordoned == b.is_cordoned)
