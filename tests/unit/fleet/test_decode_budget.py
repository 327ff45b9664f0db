"""PodDisruptionBudgets: whom they cover, and whether they let anybody go."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from fleet.budget import budgets_of
from fleet.kube.decode_budget import BudgetObject, budget_from
from tests.support.builders import a_pod


def a_budget(selector=None, generation=1, **status):
    obj = {"metadata": {"name": "b", "namespace": "default", "generation": generation}, "spec": {}}
    if selector is not None:
        obj["spec"]["selector"] = selector
    if status:
        obj["status"] = status
    return budget_from(msgspec.json.decode(msgspec.json.encode(obj), type=BudgetObject))


def labelled(**labels):
    return replace(a_pod("p"), labels=labels)


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}, True),
    ],
)
def test_whom_a_budget_covers(selector, covers):
    budget = a_budget(selector)
    assert budget.covers(labelled(app="a")) is covers
    assert budgets_of(labelled(app="a"), [budget]) == ((budget,) if covers else ())


def test_a_pod_of_another_namespace_is_never_covered():
    assert not a_budget({}).covers(replace(labelled(app="a"), namespace="other"))


def test_what_the_status_says():
    budget = a_budget({}, observedGeneration=1, disruptionsAllowed=2, expectedPods=5, desiredHealthy=3)
    assert (budget.allowed, budget.expected, budget.desired_healthy, budget.is_current) == (2, 5, 3, True)
    assert not budget.forbids
    assert a_budget({}, observedGeneration=1, expectedPods=2, desiredHealthy=2).forbids


def test_a_status_of_an_older_spec_and_none_at_all():
    assert not a_budget({}, generation=2, observedGeneration=1, disruptionsAllowed=1).is_current
    assert a_budget({}).allowed == 0
    assert not a_budget({}).is_current
