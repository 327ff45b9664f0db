"""What a milli-GPU of each model costs beside the potential, by how contended what is free of it is.

The mix is scaled to what is free: of a model that constrained demand would fill 1.25 times over, `u` is 1.25, and its
price is lC u. As a cluster fills, the prices follow: pods that any model can serve leave the models with a price alone,
fill those without and so make them scarce for whoever can use nothing else.

Free devices count by what they are worth, as of a device whose last 190 milli nobody wants nothing is free. Of each
model that is read in steps of a thirty-second of all its devices, taken in their middle: the prices depend on the
state alone, not on the way there, and are made anew at a step only.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.index.arrays import Arrays
from binpack.index.columns import Floats, Ints
from binpack.index.contention import contention, narrow_demand
from binpack.index.mix import Mix
from binpack.index.potential import Potential, grained

_STEPS: Final = 32
_MOST: Final = 3.0  # a model that is wanted more often than that is out of reach all the same


class Prices:
    """Prices by model, up to date with what is free.

    Attributes:
        by_model: Per milli-GPU, (models + 1,), shared, not to be changed; None where nothing is contended.
    """

    def __init__(self, arrays: Arrays, mix: Mix, potential: Potential) -> None:
        """Find out which demand is constrained, and what is free."""
        self._arrays = arrays
        self._worth_of = potential.of_residual[:, 1]
        self._weight = potential.weights.contention
        names = arrays.models.names
        every = arrays.model[: arrays.count]
        self._devices = np.bincount(every[every >= 0], minlength=len(names))
        here = np.flatnonzero(self._devices)
        self._demand = narrow_demand(mix, {names[model]: int(self._devices[model]) for model in here.tolist()})
        self.by_model: Floats | None = None
        self._level = np.zeros(0, np.int64)
        if self._demand:
            self._worth = np.zeros((0, 0))
            self._model = np.zeros((0, 0), np.int64)
            self._free = np.zeros(len(names) + 1)
            self.renew(np.arange(arrays.count))

    def renew(self, slots: Ints) -> None:
        """Take account of nodes that changed."""
        if not self._demand:
            return
        arrays = self._arrays
        if self._worth.shape != (arrays.capacity, arrays.width):
            self._worth = np.zeros((arrays.capacity, arrays.width))
            self._model = np.zeros((arrays.capacity, arrays.width), np.int64)
            self._free[:] = 0.0
            slots = np.arange(arrays.count)
        self._count(slots, -1.0)
        self._worth[slots] = self._worth_of[arrays.residual[slots]]
        self._model[slots] = arrays.model[slots] + 1
        self._count(slots, 1.0)
        step = self._devices * self._worth_of[-1] / _STEPS
        level = (self._free[1:] // np.maximum(step, 1.0)).astype(np.int64)
        if not np.array_equal(level, self._level):
            self._level = level
            self.by_model = self._priced((level + 0.5) / _STEPS * self._devices)

    def _count(self, slots: Ints, sign: float) -> None:
        model, worth = self._model[slots].ravel(), self._worth[slots].ravel()
        self._free += sign * np.bincount(model, weights=worth, minlength=len(self._free))

    def _priced(self, free: Floats) -> Floats:
        names = self._arrays.models.names
        levels = contention(self._demand, {names[model]: free[model] for model in np.flatnonzero(self._devices)})
        price = np.zeros(len(names) + 1)
        for name, level in levels.items():
            price[names.index(name)] = grained(self._weight * min(_MOST, level))
        return price
