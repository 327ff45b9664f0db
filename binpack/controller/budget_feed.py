"""The watch of PodDisruptionBudgets: who may be missing, as the API says now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from fleet.budget import DisruptionBudget, budgets_of
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode_budget import BudgetObject, budget_from
from fleet.kube.reflector import Reflector
from fleet.pod import Pod

log = logging.getLogger(__name__)


class Budgets:
    """All budgets by namespace and name. No I/O; the watch fills it.

    Attributes:
        is_known: Whether they were listed: until then nobody can tell who may go.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}

    def set(self, budget: DisruptionBudget) -> None:
        """Take a new or changed budget."""
        self._by_namespace.setdefault(budget.namespace, {})[budget.name] = budget

    def remove(self, namespace: str, name: str) -> None:
        """Forget a budget."""
        self._by_namespace.get(namespace, {}).pop(name, None)

    def of(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """Return those that cover the pod."""
        return budgets_of(pod, self.within(pod.namespace))

    def within(self, namespace: str) -> Collection[DisruptionBudget]:
        """Return those of one namespace."""
        return self._by_namespace.get(namespace, {}).values()


class _Sink:
    """Sink of the watch."""

    def __init__(self, budgets: Budgets, changed: Callable[[], None]) -> None:
        self._budgets = budgets
        self._changed = changed

    def upsert(self, obj: BudgetObject) -> None:
        try:
            self._budgets.set(budget_from(obj))
        except Exception:
            # Broad on purpose: an object that we fail on must not end the watch of all the others.
            log.exception("budget %s/%s could not be dealt with", obj.metadata.namespace, obj.metadata.name)
            self._budgets.remove(obj.metadata.namespace, obj.metadata.name)
        self._changed()

    def delete(self, obj: BudgetObject) -> None:
        self._budgets.remove(obj.metadata.namespace, obj.metadata.name)
        self._changed()

    def synced(self) -> None:
        self._budgets.is_known = True


def watch_budgets(
    client: Client, clock: Clock, budgets: Budgets, changed: Callable[[], None] = lambda: None
) -> Reflector[BudgetObject]:
    """Return the watch, not running yet."""
    return Reflector(client, clock, paths.BUDGETS, BudgetObject, _Sink(budgets, changed))
