"""Whatever stands in a ConcurrencyAutoscaler, it is refused with its name, or it scales within its bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fleet.errors import ConfigError
from scaler.balancer.values import ServerSecond, ServerState
from scaler.controller.census import Order, census
from scaler.controller.endpoint import Endpoint
from scaler.controller.metrics import ScalerMetrics
from scaler.controller.objects import AutoscalerObject
from scaler.controller.rounds import Rounds
from scaler.controller.status import annotations_of, status_of
from scaler.controller.world import Key, World
from scaler.resource import spec_of
from tests.support.clock import ManualClock
from tests.support.replicas import a_pod, a_second, a_spec, read

KEY = Key(namespace="n", name="a")
EPOCH_S = 1_800_000_000.0
FILE = Path(__file__).parents[2] / "manifests/base/crds/concurrencyautoscalers.yaml"
EXTREMES = (1e308, 1.7e308, 5e-324, 1e-300, 1e12, -1.0, 0.0, 10**400)


class Nobody:
    """Stands in for who writes: nothing is carried out or told."""

    def forget(self, _: object) -> None: ...

    def consider(self, *_: object) -> None: ...

    def problem(self, _: object) -> str:
        return ""


def an_endpoint(spec: dict[str, Any], status: dict[str, Any] | None = None) -> tuple[Rounds, Endpoint]:
    """Let an autoscaler be seen for the first time, with a status that an earlier controller or somebody else wrote."""
    meta = {"name": "a", "namespace": "n", "uid": "u", "generation": 1}
    world, nobody = World(), Nobody()
    metrics = ScalerMetrics(CollectorRegistry())
    rounds = Rounds(world, {}, {}, nobody, nobody, ManualClock(), metrics)  # type: ignore[arg-type]
    rounds.autoscaler_seen(
        world.set_autoscaler(read(AutoscalerObject, {"metadata": meta, "spec": spec, "status": status}))
    )
    return rounds, rounds.endpoints[KEY]


def lived(spec: dict[str, Any], status: dict[str, Any] | None = None, *, load: float = 10.0) -> dict[str, Any]:
    """Live 70 s of a load under a spec and after a status; return the status that is told then."""
    policy = spec_of(spec).policy
    rounds, endpoint = an_endpoint(spec, status)
    endpoint.census = census([a_pod("p1"), a_pod("p2")], Order(replicas=3, at_s=0.0))
    extra = {one.name: load for one in policy.extra}
    for now_s in range(1001, 1071):
        servers = [
            ServerSecond(name=name, address="", state=ServerState.SERVING, in_flight=load / 2, completions=load / 2)
            for name in ("p1", "p2")
        ]
        second = a_second(servers, arrivals=load, completions=load, in_flight=load, queued=load)
        endpoint.see(replace(second, at_s=float(now_s)), extra)
        decision = endpoint.decide(float(now_s))
        assert policy.min_replicas <= decision.desired <= policy.max_replicas
        assert decision.desired >= min(3, policy.max_replicas), "nothing shrinks before a full window"
        endpoint.learn_if_due(float(now_s))
        endpoint.look_ahead_if_due(float(now_s), EPOCH_S + now_s)
    annotations_of(endpoint)
    return told(rounds, 1070.0)


def told(rounds: Rounds, now_s: float) -> dict[str, Any]:
    picture = rounds.picture(KEY)
    assert picture is not None
    written = status_of(picture, now_s=now_s, wall_s=EPOCH_S + now_s)
    assert b"null" not in msgspec.json.encode(written), "the API takes no null where a number is wanted"
    return written


def a_spec_with(path: str, value: object) -> dict[str, Any]:
    """Return a valid spec but for one field."""
    spec = a_spec()
    *parents, name = path.split(".")
    part: Any = spec
    for parent in parents:
        part = part.setdefault(parent, {"initial": 5} if parent == "targetConcurrency" else {})
    part[name] = value
    return spec


def refused(spec: dict[str, Any]) -> str:
    """Return why a spec is refused; "" = it is valid."""
    try:
        spec_of(spec)
    except ConfigError as error:
        return str(error) or "for no reason"
    return ""


NUMBERS = (
    "minReplicas",
    "maxReplicas",
    "targetConcurrency.initial",
    "targetConcurrency.min",
    "targetConcurrency.max",
    "targetConcurrency.limit",
    "slo.queueWaitSeconds",
    "slo.latencySeconds",
    "slo.errorRatio",
    "behavior.periodSeconds",
    "behavior.scaleUp.lookBackSeconds",
    "behavior.scaleUp.maxRatio",
    "behavior.scaleUp.maxReplicas",
    "behavior.scaleDown.lookBackSeconds",
    "behavior.scaleDown.maxRatio",
    "behavior.toZeroAfterSeconds",
    "behavior.startTimeSeconds",
)


@pytest.mark.parametrize("is_learnt", [True, False])
@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_at_its_extremes_is_refused_by_name_or_scales_within_bounds(path: str, is_learnt: bool) -> None:
    for value in EXTREMES:
        spec = a_spec_with(path, value)
        spec["targetConcurrency"]["learn"] = is_learnt
        refusal = refused(spec)
        if refusal:
            assert path.rpartition(".")[2] in refusal
            assert len(refusal) < 1000
        else:
            lived(spec)


@pytest.mark.parametrize("target", EXTREMES)
def test_a_further_signal_at_its_extremes_too(target: float) -> None:
    signals = {
        "prometheus": {"name": "p", "inFlight": "q"},
        "extra": [{"name": "\x1b[31mred\n", "query": "q", "target": target}],
    }
    refusal = refused(a_spec(signals=signals))
    if refusal:
        assert "target" in refusal
    else:
        lived(a_spec(signals=signals))


@pytest.mark.parametrize("load", [1e308, 1e39, 5e-324])
def test_a_load_that_cannot_be_is_none(load: float) -> None:
    lived(a_spec(), load=load)


@pytest.mark.parametrize(
    "path", ["behavior.startTimeSeconds", "behavior.scaleDown.lookBackSeconds", "behavior.scaleUp.lookBackSeconds"]
)
def test_no_window_of_one_endpoint_takes_the_memory_of_all(path: str) -> None:
    with pytest.raises(ConfigError, match="must lie between"):
        spec_of(a_spec_with(path, 1e9))


def test_the_api_server_refuses_what_the_controller_would() -> None:
    """Every number that people write has an upper bound in the definition too."""
    versions = yaml.safe_load(FILE.read_text())["spec"]["versions"]
    spec = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for path in NUMBERS:
        part: Any = {"properties": spec}
        for name in path.split("."):
            part = part["properties"][name]
        has_rule = path in ("slo.errorRatio", "behavior.scaleDown.maxRatio", "behavior.toZeroAfterSeconds")
        assert has_rule or "maximum" in part or part.get("format") == "int32", path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("apiVersion", "v1/namespaces/kube-system/secrets/token?"),
        ("apiVersion", "../../api/v1"),
        ("apiVersion", "apps/v1#"),
        ("apiVersion", "apps/v1\n"),
        ("apiVersion", "x.example.com/v1"),
        ("kind", "Deployment/../x"),
        ("kind", "\x1b[2J"),
        ("name", ".."),
        ("name", "a/../../b"),
        ("name", "a?b"),
        ("name", "пример"),
    ],
)
def test_a_target_leads_to_the_object_it_names_and_nowhere_else(field: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"targetRef.{field}"):
        spec_of(a_spec(targetRef={"kind": "Deployment", "name": "shop"} | {field: value}))


def test_a_refusal_does_not_repeat_all_that_was_written() -> None:
    with pytest.raises(ConfigError) as refused:
        spec_of(a_spec(behavior="x" * 1_000_000, mode="y" * 1_000_000, targetRef={"kind": "Z" * 10**6, "name": []}))
    assert len(str(refused.value)) < 2000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([*NUMBERS, "targetRef", "signals", "signals.extra", "mode", "forecast", "slo", "behavior"]), JSON
)
def test_any_value_anywhere_is_read_or_refused(path: str, value: object) -> None:
    refused(a_spec_with(path, value))


STATUSES: tuple[dict[str, Any], ...] = (
    {"startTime": {"seconds": [1e308] * 64}},
    {"startTime": {"seconds": [1e12] * 64}},
    {"startTime": {"seconds": [1, "a", None, True, [], -3]}},
    {"serviceSeconds": 1e308},
    {"serviceSeconds": 5e-324},
    {"serviceSeconds": -1},
    {"target": {"learnt": 1e308}},
    {"target": {"learnt": 5e-324}},
    {"target": {"learnt": []}},
    {"forecast": {"history": "é"}},
    {"forecast": {"history": "QkgxAAAAAAAAAAD/////"}},
    {"forecast": {"history": 3}},
    {"conditions": [{"type": "Ready", "status": "True"}, {"type": "", "status": "", "lastTransitionTime": ""}]},
)


@pytest.mark.parametrize("status", STATUSES, ids=range(len(STATUSES)))
@pytest.mark.parametrize("load", [10.0, 0.1])
def test_a_status_that_somebody_edited_poisons_nothing(status: dict[str, Any], load: float) -> None:
    written = lived(a_spec(), status, load=load)
    assert {one["type"] for one in written["conditions"]} == {"Ready", "Valid", "TargetReady", "SignalsKnown"}
    assert all(one["lastTransitionTime"] for one in written["conditions"])
    assert written["startTime"]["planningSeconds"] <= 86_400
