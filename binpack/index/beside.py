"""What a place costs beside potential and reservations: who is there, claims, taints, and what is kept for others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from binpack.company import CompanyBySlot
from binpack.dra.by_slot import ClaimsBySlot
from binpack.index import room
from binpack.index.ahead import Expected
from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Floats
from binpack.index.eligibility import Eligibility
from binpack.index.kept import Kept
from binpack.index.kept_gangs import KeptForGangs
from binpack.index.soft_taints import SoftTaints
from binpack.state import NodeState
from fleet.pod import Berth, Pod

_LEAST_PRICED_MILLI: Final = 300
# A CPU-only pod on a node with devices while others have room, or any pod on a node that is to be emptied: dearer than
# anything else.
_LAST_RESORT_MILLI: Final = 10_000.0


class Beside:
    """Nodes in the slots of the arrays, as everything sees them that does not count what is free.

    Attributes:
        company: Rules between pods.
        claims: What resource claims can get; None = nobody asked for it.
    """

    def __init__(self, arrays: Arrays, eligibility: Eligibility) -> None:
        self.company = CompanyBySlot()
        self.claims: ClaimsBySlot | None = None
        self._arrays = arrays
        self._eligibility = eligibility
        self._soft = SoftTaints()
        self._kept: Kept | None = None
        self._kept_for_gangs: KeptForGangs | None = None

    def keep_for(self, expected: Iterable[Expected]) -> None:
        """Leave nodes to drain for these pods; the last call counts."""
        self._kept = Kept(self._arrays, self._eligibility, expected)

    def keep_for_gangs(self, units: Iterable[Sequence[Pod]]) -> None:
        """Leave nodes to drain for these gangs, the first first; the last call counts."""
        self._kept_for_gangs = KeptForGangs(self._arrays, self._eligibility, units)

    def set_node(self, state: NodeState, slot: int) -> None:
        """Take a node that is in this slot now."""
        if self.claims is not None:
            self.claims.node_moved(state.node.name)
        self.company.set_node(state, slot)
        self._soft.set_node(slot, state.node)

    def remove_node(self, name: str, slot: int) -> None:
        """Forget a node that was in this slot."""
        self.company.remove_node(name, slot)
        self._soft.remove_node(slot)

    def take(self, pod: Pod, berth: Berth) -> None:
        """Count a booked pod in."""
        if berth.choices and self.claims is not None:
            self.claims.desk.take(berth.choices)
        self.company.take(pod, berth)

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`."""
        if berth.choices and self.claims is not None:
            self.claims.desk.give_back(berth.choices)
        self.company.give_back(pod, berth)

    def surcharge(self, pod: Pod, price: Floats | None) -> Floats:
        """Return what the pod costs on each slot, (count,), inf where it is not allowed.

        Args:
            pod: Who.
            price: Of contention, per milli-GPU, by model; None where nothing is contended.
        """
        arrays = self._arrays
        allowed = room.nodes_with_room(arrays, self._eligibility, pod)
        cost = np.where(allowed, 0.0, np.inf)
        if pod.ask is None:
            every = np.arange(arrays.count)
            self._avoid_devices(cost, allowed & room.cpu_suffices(arrays, pod.requests.milli_cpu, every))
            if pod.requests.extended:
                cost += room.instances_left(arrays, pod)
        elif price is not None:
            priced = max(pod.ask.total_milli_gpu, _LEAST_PRICED_MILLI)
            cost += priced * price[arrays.node_model[: arrays.count]]
        self.company.charge(pod, cost)
        if pod.resource_claims and self.claims is not None:
            self.claims.charge(pod, cost, arrays.slots, arrays.name)
        if arrays.leaving:
            cost[list(arrays.leaving)] += _LAST_RESORT_MILLI
        avoided = self._soft.avoided(pod.constraints.tolerations)
        if avoided is not None:
            cost[avoided] += _LAST_RESORT_MILLI
        if self._kept:
            self._kept.charge(pod, cost)
        if self._kept_for_gangs:
            self._kept_for_gangs.charge(pod, cost)
        return cost

    def _avoid_devices(self, cost: Floats, has_room: Bools) -> None:
        """Make nodes with devices the last resort of a CPU-only pod while another node has room."""
        has_devices = self._arrays.has_devices[: self._arrays.count] > 0
        if (has_room & ~has_devices).any():
            cost[has_devices] += _LAST_RESORT_MILLI
