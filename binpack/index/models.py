"""Device models by number, so that arrays can hold them, and which of them a pod accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from binpack.fit import model_matches

NO_MODEL: Final = -1

_RANKS_KEPT: Final = 1024


class Models:
    """The models that any device was of, numbered as they came.

    Attributes:
        names: By number; it only grows.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = list(names)
        self._number_of = {name: number for number, name in enumerate(self.names)}
        self._ranks: dict[tuple[str, ...], npt.NDArray[np.int64]] = {}

    def number(self, name: str) -> int:
        """Return the number of a model, a new one if needed; NO_MODEL for ""."""
        if not name:
            return NO_MODEL
        found = self._number_of.get(name)
        if found is None:
            found = self._number_of[name] = len(self.names)
            self._ranks.clear()
            self.names.append(name)
        return found

    def ranks(self, wanted: tuple[str, ...]) -> npt.NDArray[np.int64]:
        """Return each model's place among those wanted, (models + 1,), -1 = not acceptable; all 0 where any will do.

        The last entry is that of devices of no known model, so that NO_MODEL finds it.
        """
        found = self._ranks.get(wanted)
        if found is None:
            if len(self._ranks) >= _RANKS_KEPT:
                self._ranks.clear()
            found = np.array([model_place(wanted, name) for name in (*self.names, "")], np.int64)
            self._ranks[wanted] = found
        return found


def model_place(wanted: tuple[str, ...], model: str) -> int:
    """Return the place of a model among those wanted, 0 where any will do, -1 = not acceptable."""
    if not wanted:
        return 0
    return next((place for place, name in enumerate(wanted) if model_matches(name, model)), -1)
