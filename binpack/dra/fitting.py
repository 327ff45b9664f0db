"""Which devices of a node a request allows, whoever has them: found once for each node and way."""

from __future__ import annotations

from collections.abc import Callable

from binpack.dra.pools import Cell, Reach
from binpack.dra.selectors import Selectors, Trouble
from binpack.dra.wants import Way, suitable

_MOST_WAYS = 256
_Found = tuple[tuple[Cell, ...], tuple[Trouble, ...]]


class Fitting:
    """Remembers by node and way; a node that reaches other devices is looked at anew.

    Args:
        cpu_s: Returns seconds of CPU spent so far, see `Selectors`.
    """

    def __init__(self, cpu_s: Callable[[], float] | None = None) -> None:
        self._selectors = Selectors(cpu_s)
        self._of_node: dict[str, tuple[Reach, dict[Way, _Found]]] = {}

    def of(self, node: str, reach: Reach, way: Way) -> _Found:
        """Return the devices that a way allows, and why others could not be judged."""
        known = self._of_node.get(node)
        if known is None or known[0] is not reach or len(known[1]) > _MOST_WAYS:
            known = self._of_node[node] = (reach, {})
        found = known[1].get(way)
        if found is None:
            troubles: list[Trouble] = []
            cells = suitable(way, reach.cells, self._selectors, troubles)
            found = known[1][way] = (cells, tuple(troubles))
        return found

    def forget(self, node: str) -> None:
        """Drop what is known of a node."""
        self._of_node.pop(node, None)

    def clear(self) -> None:
        """Drop everything: classes changed."""
        self._of_node.clear()
