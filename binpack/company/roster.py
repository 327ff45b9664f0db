"""All nodes of the cluster as rows, and what is derived of them once: topology domains, masks, costs.

Every node counts for topology, also one on which nobody may be placed (cordoned, a closed warm node): kube-scheduler
counts it too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import numpy as np
import numpy.typing as npt

from fleet.node import Node

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NO_DOMAIN: Final = -1
_COLUMNS_KEPT: Final = 512
_SLACK: Final = 64


class Domains:
    """The values of one topology key.

    Attributes:
        of_row: Number of each row's domain, (capacity,); NO_DOMAIN where the node has no such label, or is gone.
        names: The value of each domain, by number.
    """

    def __init__(self, of_row: Ints) -> None:
        self.of_row = of_row
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int:
        """Return the number of a label value, a new one if needed."""
        if name is None:
            return NO_DOMAIN
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found


class _Column:
    __slots__ = ("judge", "read_up_to", "values")

    def __init__(self, values: Floats, judge: Callable[[Node], float], read_up_to: int) -> None:
        self.values = values
        self.judge = judge
        self.read_up_to = read_up_to


class Roster:
    """Rows 0..count-1, some of them free; `version` grows whenever nodes come, go or change labels or taints."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.version = 0
        self.discouraging = 0
        self._spare: list[int] = []
        self._changed: list[int] = []
        self._columns: dict[Hashable, _Column] = {}
        self._domains: dict[str, tuple[Domains, _Column]] = {}
        self.capacity = 64

    @property
    def count(self) -> int:
        """Return the number of rows, free ones included."""
        return len(self.nodes)

    def set_node(self, node: Node) -> int:
        """Add a node or replace what is known of it; return its row, which it keeps."""
        row = self.rows.get(node.name)
        if row is None:
            row = self.rows[node.name] = self._new_row()
        before = self.nodes[row]
        if before is node:
            return row
        self.nodes[row] = node
        if before is None or before.labels != node.labels or before.taints != node.taints:
            self.discouraging += _discourages(node) - _discourages(before)
            self._note(row)
        return row

    def remove_node(self, name: str) -> int | None:
        """Forget a node; return the row that it had, None if it was not there."""
        row = self.rows.pop(name, None)
        if row is not None:
            self.discouraging -= _discourages(self.nodes[row])
            self.nodes[row] = None
            self._spare.append(row)
            self._note(row)
        return row

    def domains(self, key: str) -> Domains:
        """Return the domains of a topology key, up to date; shared, not to be changed."""
        found = self._domains.get(key)
        if found is None or len(found[0].names) > 2 * self.count + _SLACK:
            domains = Domains(np.full(self.capacity, NO_DOMAIN, np.int64))

            def judge(node: Node) -> float:
                return domains.number(node.labels.get(key))

            found = self._domains[key] = (domains, self._fresh(judge, NO_DOMAIN))
        domains, column = found
        self._read(column, NO_DOMAIN)
        domains.of_row = column.values.astype(np.int64)
        return domains

    def column(self, key: Hashable, judge: Callable[[Node], float]) -> Floats:
        """Return what `judge` says of each node, (capacity,), 0 on free rows; judged anew only where a node changed.

        Args:
            key: Names the judge: equal keys, equal verdicts.
            judge: May depend on a node's name, labels and taints alone.
        """
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= _COLUMNS_KEPT:
                self._columns.pop(next(iter(self._columns)))
            column = self._columns[key] = self._fresh(judge, 0.0)
        self._read(column, 0.0)
        return column.values

    def _fresh(self, judge: Callable[[Node], float], nothing: float) -> _Column:
        column = _Column(np.full(self.capacity, nothing), judge, len(self._changed))
        for row, node in enumerate(self.nodes):
            if node is not None:
                column.values[row] = judge(node)
        return column

    def _read(self, column: _Column, nothing: float) -> None:
        if len(column.values) < self.capacity:
            more = np.full(self.capacity - len(column.values), nothing)
            column.values = np.concatenate((column.values, more))
        if column.read_up_to < len(self._changed):
            for row in set(self._changed[column.read_up_to :]):
                node = self.nodes[row]
                column.values[row] = nothing if node is None else column.judge(node)
            column.read_up_to = len(self._changed)

    def _new_row(self) -> int:
        if self._spare:
            return self._spare.pop()
        self.nodes.append(None)
        self.capacity = max(self.capacity, 1 << (len(self.nodes) - 1).bit_length())
        return len(self.nodes) - 1

    def _note(self, row: int) -> None:
        self.version += 1
        if len(self._changed) > 4 * self.capacity:
            self._columns.clear()
            self._domains.clear()
            self._changed.clear()
        self._changed.append(row)


def _discourages(node: Node | None) -> int:
    return int(node is not None and any(taint.effect == "PreferNoSchedule" for taint in node.taints))
