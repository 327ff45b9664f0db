"""Autoscalers into what the replicas behind this balancer may hold."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fleet import labels
from scaler.balancer.allowances import Allowances, AutoscalerObject
from scaler.balancer.limits import Allowance


def autoscaler(name: str, *, balancer: str = "edge", backend: str = "be", limit: str | None = "9") -> AutoscalerObject:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "annotations": None if limit is None else {labels.CONCURRENCY_LIMIT: limit},
            },
            "spec": {"signals": {"balancer": {"name": balancer, "backend": backend}}},
        },
        AutoscalerObject,
    )


def test_only_backends_of_this_balancer_count() -> None:
    made = Allowances("edge")
    made.upsert(autoscaler("a"))
    made.upsert(autoscaler("b", balancer="other", backend="elsewhere"))
    made.upsert(AutoscalerObject())
    assert made.by_backend() == {"be": Allowance(limit=9)}
    made.upsert(autoscaler("a", backend="moved"))
    assert list(made.by_backend()) == ["moved"]
    made.delete(autoscaler("a"))
    assert made.by_backend() == {}


def test_a_bad_annotation_is_told_and_sets_nothing() -> None:
    made = Allowances("edge")
    made.upsert(autoscaler("a", limit="many"))
    assert made.by_backend() == {"be": Allowance()}
    assert "'many'" in made.problems["shop/a"][0]
    made.upsert(autoscaler("a", limit="12"))
    assert made.problems == {}


@given(st.permutations(["upsert a", "upsert b", "upsert c"]))
def test_two_claims_to_a_backend_end_alike_in_any_order(order: list[str]) -> None:
    made = Allowances("edge")
    for step in order:
        name = step[-1]
        made.upsert(autoscaler(name, limit={"a": "1", "b": "2", "c": "3"}[name]))
    assert made.by_backend() == {"be": Allowance(limit=1)}
    assert set(made.problems) == {"shop/b", "shop/c"}
    made.delete(autoscaler("a"))
    assert made.by_backend() == {"be": Allowance(limit=2)}
    assert set(made.problems) == {"shop/c"}
