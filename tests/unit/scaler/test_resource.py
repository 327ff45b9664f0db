from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import ConfigError
from scaler.policy import Behavior, ForecastMode, Mode, Policy, Promise, Style
from scaler.resource import policy_of, spec_of
from tests.support.replicas import a_spec

FILE = Path(__file__).parents[3] / "manifests/base/crds/concurrencyautoscalers.yaml"
BALANCED: dict[str, Any] = {"balancer": {"name": "m", "backend": "b"}}
CRD = yaml.safe_load(FILE.read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def defaulted(schema: Any, given: Any) -> Any:
    """Fill in what the API server would."""
    if schema.get("type") != "object" or not isinstance(given, dict):
        return given
    filled = dict(given)
    for name, part in schema.get("properties", {}).items():
        if name not in filled and "default" in part:
            filled[name] = part["default"]
        if name in filled:
            filled[name] = defaulted(part, filled[name])
    return filled


def test_the_shortest_spec_means_what_the_values_default_to():
    policy = policy_of(a_spec())
    assert policy == Policy(min_replicas=1, max_replicas=10, target=policy.target)
    assert (policy.promise, policy.behavior) == (Promise(), Behavior())
    assert (policy.target.initial, policy.target.minimum, policy.target.maximum) == (5.0, 1.0, 1000.0)
    assert policy.target.is_learnt


def test_defaults_of_the_definition_are_those_of_the_code():
    assert spec_of(defaulted(SCHEMA, a_spec())) == spec_of(a_spec())


@pytest.mark.parametrize(("initial", "low", "high"), [(0.5, 0.5, 1000.0), (2000.0, 1.0, 2000.0)])
def test_bounds_that_are_not_given_make_room_for_the_start(initial, low, high):
    target = policy_of(a_spec(targetConcurrency={"initial": initial})).target
    assert (target.minimum, target.maximum) == (low, high)


def test_everything_that_can_be_said_is_read():
    spec = spec_of(
        a_spec(
            targetRef={"apiVersion": "x.example.com/v1", "kind": "Fleet", "name": "f"},
            minReplicas=2,
            targetConcurrency={"initial": 8, "min": 2, "max": 64, "learn": False, "limit": 16},
            slo={"queueWaitSeconds": 1, "latencySeconds": 3, "errorRatio": 0.1},
            signals={
                "prometheus": {"name": "default", "inFlight": "a", "queued": "b", "arrivals": "c", "completions": "d"},
                "extra": [{"name": "tokens", "query": "e", "target": 1000}],
            },
            behavior={
                "mode": "thrifty",
                "periodSeconds": 10,
                "scaleUp": {"lookBackSeconds": 30, "maxRatio": 2, "maxReplicas": 1},
                "scaleDown": {"lookBackSeconds": 60, "maxRatio": 0.5},
                "toZeroAfterSeconds": 0,
                "startTimeSeconds": 180,
            },
            forecast={"mode": "act"},
            mode="observe",
        )
    )
    policy = spec.policy
    assert (spec.target.api_version, spec.target.kind) == ("x.example.com/v1", "Fleet")
    assert spec.balancer is None
    assert spec.queries is not None
    assert (spec.queries.in_flight, spec.queries.queued, spec.queries.extra) == ("a", "b", (("tokens", "e"),))
    assert policy.behavior == Behavior(
        style=Style.THRIFTY,
        period_s=10,
        look_back_up_s=30,
        look_back_down_s=60,
        growth_ratio=2,
        growth_replicas=1,
        shrink_ratio=0.5,
        to_zero_after_s=0,
        start_time_s=180,
    )
    assert policy.promise == Promise(queue_wait_s=1, latency_s=3, error_ratio=0.1)
    assert (policy.mode, policy.forecast, policy.extra[0].target) == (Mode.OBSERVE, ForecastMode.ACT, 1000)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"minReplicas": 50, "maxReplicas": 10}, r"minReplicas 50 is above maxReplicas 10: min <= max must hold"),
        ({"targetConcurrency": {"initial": 0}}, r"targetConcurrency.initial must be above 0"),
        ({"targetConcurrency": {"initial": 5, "limit": 3}}, r"initial 5 is above limit 3"),
        ({"targetConcurrency": {"initial": 5, "min": 6}}, r"must lie between min 6"),
        ({"targetConcurrency": {"initial": "5"}}, r"targetConcurrency.initial must be a number, got '5'"),
        ({"targetConcurrency": {"initial": True}}, r"must be a number"),
        ({"targetConcurrency": {"initial": float("nan")}}, r"must be a number"),
        ({"maxReplicas": 2.5}, r"maxReplicas must be a whole number"),
        ({"maxReplicas": None}, r"maxReplicas is missing"),
        ({"targetRef": {"kind": "Deployment"}}, r"targetRef.name is missing"),
        ({"targetRef": "shop"}, r"targetRef must be an object"),
        ({"signals": {}}, r"one of signals.balancer and signals.prometheus.inFlight"),
        ({"signals": {"prometheus": {"name": "p"}}}, r"one of signals.balancer and signals.prometheus.inFlight"),
        ({"signals": BALANCED | {"extra": [{"name": "x", "query": "q", "target": 1}]}}, r"signals.extra is asked of"),
        ({"signals": BALANCED | {"extra": ["x"]}}, r"signals.extra must be a list of objects"),
        ({"behavior": {"mode": "wild"}}, r"behavior.mode must be one of steady, thrifty"),
        ({"mode": "stop"}, r"mode must be one of observe, act"),
        ({"targetConcurrency": {"initial": 5, "learn": "no"}}, r"learn must be true or false"),
    ],
)  # fmt: skip
def test_a_contradiction_is_named(parts, problem):
    with pytest.raises(ConfigError, match=problem):
        spec_of(a_spec(**parts))


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as refused:
        spec_of({"mode": 1})
    assert len(refused.value.problems) >= 5


FIELDS = st.sampled_from(sorted(SCHEMA["properties"]))
SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(FIELDS, JSON), st.booleans())
def test_anything_is_a_valid_policy_or_a_named_problem(parts, whole):
    try:
        problems = spec_of(a_spec(**parts) if whole else parts).policy.problems()
    except ConfigError as error:
        problems = None if error.problems else ("an error without a problem",)
    assert not problems
