"""How many pods of a set may be missing at a time: a PodDisruptionBudget as its controller keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.company import Selector
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """One budget with its status (policy/v1).

    Attributes:
        selector: Whose pods of its namespace; None = nobody's.
        allowed: Disruptions that the API lets through now.
        expected: Pods it counts.
        desired_healthy: How many of them must be healthy.
        is_current: The status is of this spec; otherwise nobody may be evicted yet.
    """

    namespace: str
    name: str
    selector: Selector | None
    allowed: int = 0
    expected: int = 0
    desired_healthy: int = 0
    is_current: bool = True

    @property
    def key(self) -> str:
        """Return namespace/name, for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def forbids(self) -> bool:
        """Return True if it lets nobody go even while all its pods are healthy."""
        return self.expected > 0 and self.desired_healthy >= self.expected

    def covers(self, pod: Pod) -> bool:
        """Return True if the pod is one of its set."""
        return self.selector is not None and pod.namespace == self.namespace and self.selector.matches(pod.labels)


def budgets_of(pod: Pod, budgets: Iterable[DisruptionBudget]) -> tuple[DisruptionBudget, ...]:
    """Return those that cover the pod, by name; with more than one, the API evicts it under none of them."""
    return tuple(sorted((one for one in budgets if one.covers(pod)), key=lambda one: one.key))
