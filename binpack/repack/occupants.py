"""Who may be moved, by node, as values and as columns that a search over the whole cluster can read at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.dra.wishes import Wish
from binpack.index import Index
from binpack.index.columns import Ints
from binpack.repack.values import Movable
from fleet.berths import locate
from fleet.constraints import NodeConstraints
from fleet.device import AskKind, DeviceAsk
from fleet.pod import Pod
from fleet.resources import Resources

COUNTED: Final = -1  # device position of a pod whose node keeps a mere count, and of one without devices
_COLUMNS: Final = 4

Kind = tuple[Resources, DeviceAsk | None, NodeConstraints]


def kind_of(pod: Pod) -> Kind:
    """Return all that decides where a pod fits."""
    return pod.requests, pod.ask, pod.constraints


def is_known(index: Index, movable: Movable) -> bool:
    """Return True if the index holds the pod's node and all that it has there.

    A card may be gone while a pod has it, and so may be the way in which it was cut.
    """
    slot = index.arrays.slots.get(movable.berth.node)
    node = None if slot is None else index.arrays.nodes[slot]
    if slot is None or node is None:
        return False
    ids = [device.id for device in node.devices]
    for name in movable.berth.devices:
        device, partition = locate(name, node.devices)
        if device not in ids:
            return False
        if movable.pod.ask is None or movable.pod.ask.kind is not AskKind.PARTITION:
            continue
        instances = index.arrays.instances
        if instances is None or partition is None or not instances.holds(slot, ids.index(device), partition):
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """All that movable pods hold, one row per device held, or one per pod that holds none.

    Attributes:
        row: Number of the pod, an index of `Occupants.members`.
        kind: Number of its kind, an index of `Occupants.kinds`.
        slot: Slot of its node in the index.
        position: Position of the device; COUNTED where the node keeps a mere count of them, and where there is none.
    """

    row: Ints
    kind: Ints
    slot: Ints
    position: Ints


class Occupants:
    """The movable pods of a cluster, kept up to date by whoever books them in the index.

    Attributes:
        kinds: What pods may ask, in order of first appearance; `examples` holds one pod of each.
        members: Movable pods by row; None where one has gone.
    """

    def __init__(self, index: Index, movables: Iterable[Movable] = ()) -> None:
        self._index = index
        self.kinds: dict[Hashable, int] = {}
        self.examples: list[Movable] = []
        self.members: list[Movable | None] = []
        self._row_of: dict[str, int] = {}
        self._on: dict[str, dict[str, Movable]] = {}
        self._entries = np.zeros((256, _COLUMNS), np.int64)
        self._count = 0
        self._entries_of: dict[str, tuple[int, int]] = {}
        for movable in movables:
            self.add(movable)

    def __iter__(self) -> Iterator[Movable]:
        return (movable for movable in self.members if movable is not None)

    def add(self, movable: Movable) -> None:
        """Note a pod; one already noted is noted anew."""
        pod = movable.pod
        self.remove(pod.uid)
        kind = self.kinds.setdefault((*kind_of(pod), self._claimed(pod)), len(self.kinds))
        if kind == len(self.examples):
            self.examples.append(movable)
        row = self._row_of[pod.uid] = len(self.members)
        self.members.append(movable)
        self._on.setdefault(movable.berth.node, {})[pod.uid] = movable
        slot = self._index.slot(movable.berth.node)
        positions = self._positions(slot, movable)
        start = self._count
        while start + len(positions) > len(self._entries):
            self._entries = np.concatenate((self._entries, np.zeros_like(self._entries)))
        for position in positions:
            self._entries[self._count] = row, kind, slot, position
            self._count += 1
        self._entries_of[pod.uid] = start, self._count

    def _claimed(self, pod: Pod) -> Hashable:
        """Return what the pod's resource claims want; () = it has none."""
        desk = self._index.desk
        if not pod.resource_claims or desk is None:
            return ()
        wish = desk.wish(pod)
        return wish.key if isinstance(wish, Wish) else pod.uid

    def remove(self, uid: str) -> None:
        """Forget a pod; one that is not there is no error."""
        row = self._row_of.pop(uid, None)
        if row is None:
            return
        movable = self.members[row]
        assert movable is not None
        del self._on[movable.berth.node][uid]
        self.members[row] = None
        start, end = self._entries_of.pop(uid)
        self._entries[start:end, 0] = -1
        if len(self.members) > 2 * len(self._row_of) + 64:
            self._compact()

    def movable(self, uid: str) -> Movable:
        """Return a pod by its uid.

        Raises:
            KeyError: It is not noted.
        """
        movable = self.members[self._row_of[uid]]
        assert movable is not None
        return movable

    def on(self, node: str) -> tuple[Movable, ...]:
        """Return the movable pods of a node, in the order in which they were noted."""
        return tuple(self._on.get(node, {}).values())

    def held(self) -> Held:
        """Return what all of them hold."""
        entries = self._entries[: self._count]
        entries = entries[entries[:, 0] >= 0]
        return Held(row=entries[:, 0], kind=entries[:, 1], slot=entries[:, 2], position=entries[:, 3])

    def _positions(self, slot: int, movable: Movable) -> list[int]:
        ask = movable.pod.ask
        if ask is None:
            return [COUNTED]
        if ask.kind is AskKind.CLASSIC:
            return [COUNTED] * ask.count
        ids, node = self._index.arrays.ids[slot], self._index.arrays.nodes[slot]
        devices = () if node is None else node.devices
        names = (locate(device, devices)[0] for device in movable.berth.devices)
        return [ids.index(name) for name in names if name in ids]

    def _compact(self) -> None:
        movables = list(self)
        self.members, self._row_of, self._count, self._entries_of = [], {}, 0, {}
        self._on.clear()
        for movable in movables:
            self.add(movable)
