"""Everything that scores are made of, for one demand mix and the nodes there are, kept up to date between questions."""

from __future__ import annotations

import numpy as np

from binpack.index.arrays import Arrays
from binpack.index.columns import Floats, Ints
from binpack.index.device_value import frozen_value_table
from binpack.index.mix import Mix
from binpack.index.potential import Potential, Weights
from binpack.index.prices import Prices
from binpack.index.reservation import Reservations
from binpack.index.scarcity import cpu_demand_ratio, suited
from binpack.index.scorer import Scorer
from binpack.index.scores import ScoreCache


class Tables:
    """Potential, scores, reservations and prices.

    Attributes:
        mix: What the pods to come are expected to be.
        weights: Those of the potential, suited to how scarce CPU is.
    """

    def __init__(self, arrays: Arrays, mix: Mix, weights: Weights) -> None:
        self.mix = mix
        self._arrays = arrays
        self._given_weights = weights
        self._rebuild()

    def set_mix(self, mix: Mix) -> None:
        """Make all tables anew for this demand mix."""
        self.mix = mix
        self._rebuild()

    @property
    def price(self) -> Floats | None:
        """Return the price of contention per milli-GPU by model, (models + 1,); None where nothing is contended."""
        return self._prices.by_model

    def refresh(self) -> None:
        """Bring everything up to date with the bookings and nodes since the last question."""
        arrays = self._arrays
        if len(arrays.models.names) != self._models_known:
            self._rebuild()
        elif arrays.has_new_inventory and self._suited() == self.weights:
            self.scorer.renew(self._changed())
            self._recount()
        elif arrays.has_new_inventory:
            self._rebuild()
        elif arrays.changed:
            slots = self._changed()
            self.scorer.renew(slots)
            self.reservations.renew(slots)
            self._prices.renew(slots)
            arrays.changed.clear()

    def _changed(self) -> Ints:
        return np.fromiter(self._arrays.changed, np.int64, len(self._arrays.changed))

    def _rebuild(self) -> None:
        """Make all tables for the mix and the nodes there are now."""
        arrays = self._arrays
        self._models_known = len(arrays.models.names)
        self.weights = self._suited()
        potential = Potential(self.mix, arrays.models.names, frozen_value_table(), self.weights)
        self.scorer = Scorer(arrays, potential)
        self.scores = ScoreCache(arrays, self.scorer.score)
        self._recount()

    def _recount(self) -> None:
        """Make prices and reservations anew, which depend on how many nodes of which kind there are."""
        arrays, weights = self._arrays, self.weights
        self.reservations = Reservations(arrays, self.mix, weights.reservation_factor, weights.reservation_margin)
        self._prices = Prices(arrays, self.mix, self.scorer.potential)
        arrays.changed.clear()
        arrays.has_new_inventory = False

    def _suited(self) -> Weights:
        return suited(self._given_weights, cpu_demand_ratio(self.mix, self._arrays.known_classes().items()))
