"""What a batch solver must know of an index, as plain values that travel to another process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from binpack.index.columns import BY_DEVICE, Columns, Floats, Ints
from binpack.index.mix import Mix
from binpack.index.models import Models
from binpack.index.potential import Potential, Weights
from binpack.index.reservation import Reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Some nodes of an index, with all that scoring a batch of pods on them takes.

    Attributes:
        names: The nodes, ascending.
        device_ids: Per node the ids of its devices by position.
        columns: `Columns.copied` of the nodes, int64 in C order.
        models: Names of the models by number.
        mix: Demand mix of the potential.
        weights: Parameters of the potential.
        values: Device value over residuals 0..1000, float64.
        surcharge: What each pod costs on each node beside the potential, float64 (pods, nodes); inf = not allowed
            there by constraints or by amounts other than CPU and devices.
        reserves: Whole nodes kept for some of the pods.
        reserve_price: What breaking into one of them beyond the spare ones costs.
    """

    names: tuple[str, ...]
    device_ids: tuple[tuple[str, ...], ...]
    columns: dict[str, bytes]
    models: tuple[str, ...]
    mix: Mix
    weights: Weights
    values: bytes
    surcharge: bytes
    reserves: tuple[Reserve, ...]
    reserve_price: float

    def arrays(self) -> Columns:
        """Return the nodes as arrays, slot = place in `names`."""
        many = len(self.names)
        columns: dict[str, Ints] = {}
        for name, data in self.columns.items():
            column = np.frombuffer(data, np.int64)
            columns[name] = (column.reshape(many, -1) if name in BY_DEVICE else column).copy()
        return Columns.of(columns, Models(self.models))

    def potential(self) -> Potential:
        """Return the tables that score the nodes."""
        return Potential(self.mix, self.models, np.frombuffer(self.values, np.float64), self.weights)

    def surcharges(self) -> Floats:
        """Return `surcharge` as an array, (pods, nodes)."""
        return np.frombuffer(self.surcharge, np.float64).reshape(-1, len(self.names))


def nearest(cost: Floats, order: Ints, most: int, many: int) -> Ints:
    """Return the slots a batch should look at for one kind of pod, cheapest first.

    Args:
        cost: Cost per slot, (count,), inf where the pod does not fit.
        order: Tie-break per slot.
        most: Different costs to look at; equal costs mean, nearly always, equal nodes.
        many: Slots to take of each cost.
    """
    slots = np.flatnonzero(cost < np.inf)
    ranked = slots[np.lexsort((order[slots], cost[slots]))]
    if not len(ranked):
        return ranked
    is_new = np.concatenate(([True], np.diff(cost[ranked]) > 0))
    first = np.maximum.accumulate(np.where(is_new, np.arange(len(ranked)), 0))
    return ranked[(np.cumsum(is_new) <= most) & (np.arange(len(ranked)) - first < many)]
