"""How many moves may be started now: the budget less what was started lately and what is still under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from binpack.repack.values import Movable, MoveBudget, PastMove

_HOUR_S: Final = 3600.0
_MOST_NAMED: Final = 3


class Allowance:
    """What is left of a budget while a plan is being made; `spend` and `refund` keep count."""

    def __init__(
        self,
        budget: MoveBudget,
        past: Iterable[PastMove] = (),
        now_s: float = 0.0,
        *,
        emptied: Iterable[str] = (),
        closed: Iterable[str] = (),
    ) -> None:
        """Count what was started within the last hour, and what is not over however old it is.

        Args:
            budget: The budget.
            past: Moves started before.
            now_s: The present, on the clock of `past`.
            emptied: Nodes that any number of pods may leave.
            closed: Further nodes that no pod may be moved to.
        """
        self._budget = budget
        self._emptied = frozenset(emptied)
        self._closed = tuple(closed)
        self.pods = budget.pods_per_hour
        self._services = Counter[str]()
        self._nodes = Counter[str]()
        self._held: set[str] = set()
        self._is_spent = False
        for move in past:
            self.pods -= move.started_at_s > now_s - _HOUR_S
            if not move.is_over:
                self._count(move.service, move.source, move.target, 1)

    def may_leave(self, movable: Movable) -> bool:
        """Return True if this pod may be moved, wherever it goes."""
        if self.pods < 1:
            self._is_spent = True
            return False
        if not self._service_has_room(movable.service):
            self._held.add(movable.service)
            return False
        return self._may_touch(movable.berth.node)

    def held_back(self) -> str:
        """Return for people what kept pods where they are that would have been moved; "" = nothing did."""
        found = ["no more pods this hour"] if self._is_spent else []
        for service in sorted(self._held)[:_MOST_NAMED]:
            most = self._most(service)
            found.append(f"{most} {'replica' if most == 1 else 'replicas'} of {service} at a time")
        if len(self._held) > _MOST_NAMED:
            found.append(f"and so for {len(self._held) - _MOST_NAMED} other services")
        return ", ".join(found)

    def closed(self) -> list[str]:
        """Return the nodes that no further pod may be moved to."""
        full = (node for node, n in self._nodes.items() if n >= self._budget.per_node and node not in self._emptied)
        return [*self._closed, *full]

    def spend(self, movable: Movable, target: str) -> None:
        """Count a move as started."""
        self.pods -= 1
        self._count(movable.service, movable.berth.node, target, 1)

    def refund(self, movable: Movable, target: str) -> None:
        """Undo `spend`."""
        self.pods += 1
        self._count(movable.service, movable.berth.node, target, -1)

    def _may_touch(self, node: str) -> bool:
        return node in self._emptied or self._nodes[node] < self._budget.per_node

    def _service_has_room(self, service: str) -> bool:
        return not service or self._services[service] < self._most(service)

    def _most(self, service: str) -> int:
        return self._budget.allowed.get(service, self._budget.per_service)

    def _count(self, service: str, source: str, target: str, step: int) -> None:
        self._services[service] += step
        self._nodes[source] += step
        self._nodes[target] += step
