"""What a WarmPool's spec says, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import ConfigError
from fleet.resources import Resources
from warmpool.resource import Serves, spec_of
from warmpool.values import Costs, HitRate, Image, Mode, Offer, ProviderKind

DIGEST = f"sha256:{'b' * 64}"
NODE_CLASS = {"nodeClassGroup": "karpenter.k8s.aws", "nodeClassKind": "EC2NodeClass", "nodeClassName": "gpu"}
LEAST: dict[str, Any] = {
    "shape": {"instanceType": "p5.48xlarge"},
    "size": {"max": 4},
    "provider": {"kind": "karpenter", "settings": NODE_CLASS},
}


def test_what_is_left_out_is_what_the_definition_fills_in() -> None:
    spec = spec_of("g1", LEAST)
    assert spec.pool.objective == HitRate(goal_ratio=0.99)
    assert (spec.pool.mode, spec.pool.min_nodes, spec.pool.surge_nodes) == (Mode.OBSERVE, 0, 1)
    assert spec.pool.shape.offers == (Offer(),)
    assert spec.pull_namespace == "berthmaster-warmpool"
    assert spec.serves == Serves()


def test_everything_that_can_be_said_is_read() -> None:
    spec = spec_of(
        "g1",
        {
            "shape": {
                "instanceType": "p5.48xlarge",
                "resources": {"cpu": "190", "memory": "2000Gi", "vpc.amazonaws.com/efa": 32},
                "devices": {"count": 8, "model": "H100"},
                "labels": {"team": "serving"},
                "offers": [
                    {"zone": "a", "capacityType": "reserved"},
                    {"zone": "b"},
                    {"zone": "a", "capacityType": "reserved"},
                ],
            },
            "images": [{"reference": "reg.example/rt:1", "digest": DIGEST}, {"reference": "busybox"}],
            "pull": {"namespace": "models", "secrets": ["reg"]},
            "models": ["s3://models/llama"],
            "serves": {"namespaces": ["shop"], "matchLabels": {"app": "llm"}},
            "size": {"min": 1, "max": 4},
            "objective": {"missCost": 20, "idleCost": 4},
            "provider": {"kind": "karpenter", "settings": NODE_CLASS},
            "mode": "act",
            "expireAfter": "1h30m",
            "warmTimeout": "90s",
            "rotation": {"surge": 2},
            "history": {"query": "sum(increase(draws[1m]))"},
        },
    )
    assert spec.history_query == "sum(increase(draws[1m]))"
    pool = spec.pool
    assert pool.shape.allocatable == Resources(
        milli_cpu=190_000, memory_bytes=2000 * 2**30, extended=(("vpc.amazonaws.com/efa", 32),)
    )
    assert (pool.shape.devices, pool.shape.device_model, pool.shape.labels) == (8, "H100", (("team", "serving"),))
    assert pool.shape.offers == (Offer(zone="a", capacity_type="reserved"), Offer(zone="b"))
    assert pool.images == (Image(reference="reg.example/rt:1", digest=DIGEST), Image(reference="busybox"))
    assert (pool.pull_secrets, spec.pull_namespace, pool.models) == (("reg",), "models", ("s3://models/llama",))
    assert spec.serves == Serves(namespaces=("shop",), match_labels=(("app", "llm"),))
    assert pool.objective == Costs(per_miss=20, per_idle_hour=4)
    assert pool.idle_hour_cost == 4
    assert (pool.provider, pool.provider_settings) == (ProviderKind.KARPENTER, NODE_CLASS)
    assert (pool.mode, pool.expire_after_s, pool.warm_timeout_s, pool.surge_nodes) == (Mode.ACT, 5400.0, 90.0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": {"max": 4, "min": 5}}, "size.min 5 is above size.max 4"),
        ({"size": {}}, "size.max is missing"),
        ({"size": {"max": 100_000}}, "size.max must be from 1 to 1000"),
        ({"size": {"max": 2.5}}, "size.max must be a whole number"),
        ({"objective": {"hitRate": 1}}, "objective.hitRate must be from 0.5 to 0.9999"),
        ({"objective": {"hitRate": 0.9, "static": 2}}, "objective is one of"),
        ({"objective": {"missCost": 2}}, "objective.idleCost is missing"),
        ({"objective": {"missCost": 0, "idleCost": 1}}, "must be above 0"),
        ({"objective": {"static": 5}}, "objective.static 5 lies outside size.min 0 to size.max 4"),
        ({"images": [{"reference": "a b"}]}, "images[].reference cannot be 'a b'"),
        ({"images": [{"reference": "a", "digest": "sha256:x"}]}, "images[].digest must be sha256:"),
        ({"images": [{"reference": f"a@{DIGEST}", "digest": DIGEST}]}, "holds a digest already"),
        ({"images": "a"}, "images must be a list of objects"),
        ({"shape": {}}, "shape says nothing"),
        ({"shape": {"resources": {"cpu": "many"}}}, "shape.resources.'cpu'"),
        ({"shape": {"devices": {"count": -1}}}, "shape.devices.count must be at least 0"),
        ({"provider": {"kind": "cloud"}}, "provider.kind must be one of"),
        ({"provider": {}}, "provider.kind must be one of"),
        ({"provider": {"kind": "karpenter"}}, "needs the settings nodeClassGroup, nodeClassKind, nodeClassName"),
        ({"provider": {"kind": "machinedeployment", "settings": {"name": "x"}}}, "needs the settings namespace"),
        ({"provider": {"kind": "adopt", "settings": {"selector": "a=b"}}}, "label them instead of"),
        ({"provider": {"kind": "kwok"}}, "provider kwok makes the node itself"),
        ({"expireAfter": "a while"}, "expireAfter must be a duration"),
        ({"expireAfter": "0s"}, "expireAfter must be above 0"),
        ({"expireAfter": "1h", "provider": {"kind": "adopt"}}, "expireAfter cannot be kept"),
        ({"warmTimeout": 7}, "warmTimeout must be a duration"),
        ({"rotation": {"surge": 0}}, "rotation.surge must be at least 1"),
        ({"serves": {"matchLabels": {"a": "b"}}}, "names nobody"),
        ({"pull": {"namespace": "../kube-system"}}, "pull.namespace cannot be"),
        ({"mode": "go"}, "mode must be one of observe, act"),
        ({"idleHourCost": -1}, "idleHourCost must be at least 0"),
    ],
)
def test_what_contradicts_itself_is_told_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        spec_of("g1", LEAST | change)
    assert message in str(told.value)


@pytest.mark.parametrize("name", ["", "G1", "g_1", "a.b", "x" * 41, "-a"])
def test_a_name_must_fit_into_what_is_named_for_it(name: str) -> None:
    with pytest.raises(ConfigError, match="stands in names of nodes"):
        spec_of(name, LEAST)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        spec_of("g1", {"size": {"max": "x"}, "provider": {"kind": 3}, "shape": [], "mode": 1})
    assert len(told.value.problems) >= 4


def test_the_empty_selector_names_nobody() -> None:
    assert not Serves().names("shop", {"app": "llm"})
    assert Serves(namespaces=("shop",)).names("shop", {})
    named = Serves(namespaces=("shop",), match_labels=(("app", "llm"),))
    assert named.names("shop", {"app": "llm", "x": "y"})
    assert not named.names("shop", {})
    assert not named.names("other", {"app": "llm"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("shape", "images", "pull", "models", "serves", "size", "objective", "provider", "mode", "expireAfter")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from([{}, LEAST]))
def test_any_json_is_a_spec_or_a_problem(change: dict[str, Any], base: dict[str, Any]) -> None:
    try:
        spec = spec_of("g1", {**base, **change})
    except ConfigError:
        return
    assert 0 <= spec.pool.min_nodes <= spec.pool.max_nodes
