"""The cost of putting one pod on each of many nodes: by how much the potential rises, at the best device."""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.index import islands, matched, room
from binpack.index.columns import HUGE, Bools, Columns, Floats, Ints, between
from binpack.index.potential import Potential
from binpack.index.scores import PodClass
from fleet.device import AskKind, DeviceAsk

# Best fit as a tie-break, 1e-3 over a node of eight devices, rounded to a power of two so that ties stay exact.
_TIE: Final = 2.0**-23
_MOST_GROWTH: Final = 2**11  # thousandths, either sign
_MOST_BREAKING: Final = 2**17  # more than parting the largest island could cost


class Scorer:
    """Scores pods by `potential` over `arrays`; keeps every node's summary and Phi up to date between bookings."""

    def __init__(self, arrays: Columns, potential: Potential) -> None:
        """Summarise every node."""
        self._arrays = arrays
        self.potential = potential
        self._summary = np.zeros((0, potential.of_residual.shape[1]))
        self._phi = np.zeros(0)
        self._beside: Floats | None = None  # terms that not every cluster has: islands, memory
        self.renew(np.arange(arrays.count))

    def renew(self, slots: Ints) -> None:
        """Recompute summary and Phi of these nodes, of all of them after the arrays grew."""
        arrays = self._arrays
        if len(self._phi) != arrays.capacity:
            self._summary = np.zeros((arrays.capacity, self.potential.of_residual.shape[1]))
            self._phi = np.zeros(arrays.capacity)
            slots = np.arange(arrays.count)
        if len(slots):
            summary = self.potential.summaries(arrays.residual[slots])
            if arrays.mig_worth is not None:
                summary[:, 1] += arrays.mig_worth[slots]
            if arrays.island is not None or arrays.knows_memory:
                self._renew_beside(slots)
            self._summary[slots] = summary
            phi = self.potential.phi(arrays.node_model[slots], arrays.milli_cpu[slots], summary)
            self._phi[slots] = phi - self._worth_idle(slots)

    def _worth_idle(self, slots: Ints) -> Floats:
        """Return what it is worth that none of a node's devices is in use, (n,): small, so that nodes stay whole."""
        healthy = self._arrays.healthy[slots].sum(axis=1)
        is_idle = (healthy > 0) & (self._arrays.untouched[slots].sum(axis=1) == healthy)
        found: Floats = self.potential.weights.idle_node_milli * is_idle
        return found

    def total(self) -> float:
        """Return the sum of Phi over all nodes."""
        return float(self.phi(np.arange(self._arrays.count)).sum())

    def phi(self, slots: Ints) -> Floats:
        """Return Phi of these nodes, (n,)."""
        return self._phi[slots] if self._beside is None else self._phi[slots] + self._beside[slots]

    def _renew_beside(self, slots: Ints) -> None:
        arrays = self._arrays
        if self._beside is None or len(self._beside) != arrays.capacity:
            self._beside = np.zeros(arrays.capacity)
            slots = np.arange(arrays.count)
        found = matched.unmatched(arrays, slots) if arrays.knows_memory else np.zeros(len(slots))
        if arrays.island is not None:
            found += islands.broken(arrays.untouched[slots], arrays.island[slots])
        self._beside[slots] = found

    def score(self, pod_class: PodClass, slots: Ints) -> tuple[Floats, Ints]:
        """Return the cost, (n,), inf where the pod does not fit, and the position of the best device, (n,).

        The position is -1 except for a share of one device and for a MIG instance.
        """
        arrays = self._arrays
        ask = pod_class.ask
        cpu = arrays.milli_cpu[slots] - max(0, pod_class.milli_cpu)
        fits = room.cpu_suffices(arrays, pod_class.milli_cpu, slots)
        nowhere = np.full(len(slots), -1, np.int64)
        if ask is None:
            return self._without_devices(slots, cpu, fits), nowhere
        fits &= room.takes_kind(arrays, ask, slots)
        if ask.kind is AskKind.PARTITION:
            return self._instance(ask, slots, cpu, fits)
        if not ask.is_whole and ask.count == 1:
            return self._on_one(ask, slots, cpu, fits)
        chosen, after = self.choose(ask, slots)
        fits &= chosen.sum(axis=1) == ask.count
        table = self.potential.of_residual
        if ask.is_whole:
            summary = self._summary[slots] - ask.count * table[-1]
        else:
            taken = table[arrays.residual[slots]] - table[after]
            summary = self._summary[slots] - (taken * chosen[:, :, None]).sum(axis=1)
        cost = self._cost(slots, cpu, summary) + self.lesser(ask, slots, chosen)
        if arrays.island is not None:
            before, island = arrays.untouched[slots], arrays.island[slots]
            cost += islands.broken(before * ~chosen, island) - islands.broken(before, island)
        if arrays.knows_memory and not ask.is_whole:
            cost += (matched.growth(arrays, ask, slots) * chosen).sum(axis=1)
        return np.where(fits, cost, np.inf), nowhere

    def choose(self, ask: DeviceAsk, slots: Ints) -> tuple[Bools, Ints]:
        """Return which devices of each node to give, (n, D), at most `ask.count`, and what each keeps, (n, D).

        Whole devices go by islands, then in inventory order, those of preferred models first. Of several shares each
        goes where it costs least device value, then where it fits best, one per device.
        """
        arrays = self._arrays
        if ask.is_whole:
            free = room.whole_devices(arrays, ask, slots)
            nothing = np.zeros_like(arrays.residual[slots])
            if not ask.is_ordered:
                chosen = free & (np.cumsum(free, axis=1) <= ask.count)
            else:
                rank = np.where(free, arrays.models.ranks(ask.models)[arrays.model[slots]], HUGE)
                chosen = free & (_places(rank) < ask.count)
            return (chosen if arrays.island is None else self._by_islands(ask, slots, free, chosen)), nothing
        free, after = room.shared_devices(arrays, ask, slots)
        value = self.potential.of_residual[:, 1]
        loss = value[arrays.residual[slots]] - value[after] + _TIE * after
        if ask.is_ordered:
            loss += self._rank_cost(ask)[arrays.model[slots]]
        return free & (_places(np.where(free, loss, np.inf)) < ask.count), after

    def _by_islands(self, ask: DeviceAsk, slots: Ints, free: Bools, chosen: Bools) -> Bools:
        """Choose anew on the nodes with islands; a node of several models keeps the order of the wishes."""
        arrays = self._arrays
        assert arrays.island is not None
        rows = (arrays.island[slots] > 0).any(axis=1)
        if ask.is_ordered:
            rank = np.where(free, arrays.models.ranks(ask.models)[arrays.model[slots]], -1)
            rows &= ((rank == rank.max(axis=1, keepdims=True)) | (rank < 0)).all(axis=1)
        if ask.is_one_island:
            rows |= True
        if rows.any():
            chosen[rows] = islands.together(free[rows], arrays.island[slots[rows]], ask.count)
        return chosen

    def _instance(self, ask: DeviceAsk, slots: Ints, cpu: Ints, fits: Bools) -> tuple[Floats, Ints]:
        """Score a MIG instance at the start that costs least of what its device is worth."""
        arrays = self._arrays
        if arrays.instances is None:
            return np.full(len(slots), np.inf), np.full(len(slots), -1, np.int64)
        able, loss = arrays.instances.best(ask.profile, slots)
        if ask.models:
            able &= room.devices_of_model(arrays, ask, slots)
        price = np.where(able, loss.astype(np.float64), np.inf)
        if ask.is_ordered:
            price += self._rank_cost(ask)[arrays.model[slots]]
        best = np.argmin(price, axis=1)
        rows = np.arange(len(slots))
        summary = self._summary[slots].copy()
        summary[:, 1] -= loss[rows, best]
        cost = self._cost(slots, cpu, summary) + price[rows, best] - loss[rows, best]
        return np.where(fits & able[rows, best], cost, np.inf), best

    def _on_one(self, ask: DeviceAsk, slots: Ints, cpu: Ints, fits: Bools) -> tuple[Floats, Ints]:
        """Score a share of one device: every distinct residual of a node once."""
        free, after = room.shared_devices(self._arrays, ask, slots)
        free &= fits[:, None]
        before = self._arrays.residual[slots]
        key = before * 1024 + after
        if ask.is_ordered:
            key = key * (len(self._arrays.models.names) + 1) + self._arrays.model[slots] + 1
        breaking = None
        if self._arrays.island is not None:
            breaking = islands.breaking(self._arrays.untouched[slots], self._arrays.island[slots])
            key = key * _MOST_BREAKING + breaking.astype(np.int64)
        growth = None
        if self._arrays.knows_memory:
            growth = matched.growth(self._arrays, ask, slots)
            key = key * _MOST_GROWTH + (growth / matched.UNMATCHED).astype(np.int64)
        same = (key[:, :, None] == key[:, None, :]) & free[:, None, :]
        earlier = np.tri(key.shape[1], k=-1, dtype=np.bool_)
        row, column = np.nonzero(free & ~(same & earlier).any(axis=2))
        table = self.potential.of_residual
        kept = after[row, column]
        summary = self._summary[slots[row]] + table[kept] - table[before[row, column]]
        cost = np.full(free.shape, np.inf)
        cost[row, column] = self._cost(slots[row], cpu[row], summary)
        if ask.is_ordered:
            cost[row, column] += self._rank_cost(ask)[self._arrays.model[slots[row], column]]
        if breaking is not None:
            cost[row, column] += breaking[row, column]
        if growth is not None:
            cost[row, column] += growth[row, column]
        best = np.argmin(cost, axis=1)
        return cost[np.arange(len(slots)), best], best

    def _without_devices(self, slots: Ints, cpu: Ints, fits: Bools) -> Floats:
        """Score a pod without devices; among device-free nodes the fullest one wins."""
        cost = self._cost(slots, cpu, self._summary[slots]) - self._worth_idle(slots)
        has_devices = self._arrays.has_devices[slots] > 0
        return np.where(fits, np.where(has_devices, cost, _TIE * between(cpu, 0, 2**20)), np.inf)

    def _cost(self, slots: Ints, cpu: Ints, summary: Floats) -> Floats:
        after = self.potential.phi(self._arrays.node_model[slots], cpu, summary)
        return after - self._phi[slots] + _TIE * summary[:, 0]

    def lesser(self, ask: DeviceAsk, slots: Ints, chosen: Bools) -> Floats:
        """Return what less preferred models and several islands cost, (n,)."""
        arrays = self._arrays
        found = np.zeros(len(slots))
        if ask.is_ordered:
            found += (self._rank_cost(ask)[arrays.model[slots]] * chosen).sum(axis=1)
        if arrays.island is not None and ask.count > 1:
            found += islands.parted(chosen, arrays.island[slots])
        return found

    def _rank_cost(self, ask: DeviceAsk) -> Floats:
        """Return the cost of each model by its place in the pod's wishes, (models + 1,)."""
        return np.maximum(self._arrays.models.ranks(ask.models), 0) * self.potential.weights.lesser_model_milli


def _places(amounts: Floats | Ints) -> Ints:
    """Return each entry's place in its row by size, equal ones by position, (n, D)."""
    found: Ints = np.argsort(np.argsort(amounts, axis=1, kind="stable"), axis=1)
    return found
