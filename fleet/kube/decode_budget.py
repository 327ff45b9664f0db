"""A policy/v1 PodDisruptionBudget to a `DisruptionBudget`."""

from __future__ import annotations

import msgspec

from fleet.budget import DisruptionBudget
from fleet.kube.company import selector_from
from fleet.kube.objects import LabelSelectorObject, MetaObject, Object


class _Meta(MetaObject):
    generation: int = 0


class _Spec(Object):
    selector: LabelSelectorObject | None = None


class _Status(Object):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    expected_pods: int = 0
    desired_healthy: int = 0


class BudgetObject(Object):
    """A policy/v1 PodDisruptionBudget."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec | None = None
    status: _Status | None = None


def budget_from(obj: BudgetObject) -> DisruptionBudget:
    """Return the budget; one without a status lets nobody go."""
    meta, spec, status = obj.metadata, obj.spec or _Spec(), obj.status or _Status()
    return DisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=selector_from(spec.selector),
        allowed=max(0, status.disruptions_allowed),
        expected=status.expected_pods,
        desired_healthy=status.desired_healthy,
        is_current=status.observed_generation >= meta.generation,
    )
