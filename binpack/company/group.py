"""Pods that one rule counts, by row."""

from __future__ import annotations

import numpy as np

from binpack.company.roster import Ints


class Group:
    """Members per row, those of no row left out.

    Attributes:
        at: Members by row, all above 0.
        version: Grows with every change.
        is_hard: Whether a hard rule counts it: its members may not be moved without asking that rule.
    """

    __slots__ = ("_counts", "_read_at", "_rows", "at", "is_hard", "version")

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.version = 0
        self.is_hard = False
        self._read_at = -1
        self._rows: Ints = np.zeros(0, np.int64)
        self._counts: Ints = np.zeros(0, np.int64)

    def add(self, row: int, more: int) -> None:
        """Count members in, or out below 0."""
        left = self.at.get(row, 0) + more
        if left > 0:
            self.at[row] = left
        else:
            self.at.pop(row, None)
        self.version += 1

    def clear(self) -> None:
        """Count nobody any more."""
        self.at.clear()
        self.version += 1

    def arrays(self) -> tuple[Ints, Ints]:
        """Return rows and members on them, both (n,); shared arrays."""
        if self._read_at != self.version:
            self._rows = np.fromiter(self.at.keys(), np.int64, len(self.at))
            self._counts = np.fromiter(self.at.values(), np.int64, len(self.at))
            self._read_at = self.version
        return self._rows, self._counts
