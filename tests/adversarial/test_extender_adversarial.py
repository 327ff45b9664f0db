"""Whatever is posted, the extender answers by the protocol, lives on and keeps its ledger."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from binpack.extender import Extender
from binpack.extender_handlers import ExtenderHandlers
from binpack.ledger import Ledger
from binpack.server import Reply
from fleet import labels
from fleet.clock import SystemClock
from tests.support.builders import a_node, a_pod, pod_json


class Harness:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.extender = Extender(self.ledger)
        self.handlers = ExtenderHandlers(
            self.extender,
            self.ledger,
            SystemClock(),
            is_synced=lambda: True,
            seen_at_s=lambda: 0.0,
            catch_up_s=0.0,
        )
        for name in ("n1", "n2"):
            self.ledger.set_node(a_node(name, gpus=2, memory_mib=1000))
        self.ledger.set_pod(a_pod("held", whole=1, node="n1", devices=("0",)))

    async def post(self, verb: str, body: bytes) -> Reply:
        before = self.ledger.picture()
        promises = self.extender.promises
        reply = await self.handlers.posts[f"/{verb}"](body)
        assert self.handlers.not_ready() == ""
        assert generate_latest(self.handlers.metrics.registry)
        if self.extender.promises == promises:
            assert self.ledger.picture() == before
        check(verb, reply)
        return reply


def check(verb: str, reply: Reply) -> None:
    assert reply.status in (200, 400)
    reply.body.decode()
    if reply.status == 400:
        return
    answer = json.loads(reply.body)
    if verb == "filter":
        assert isinstance(answer["NodeNames"], list)
        assert isinstance(answer["FailedNodes"], dict)
        assert isinstance(answer["FailedAndUnresolvableNodes"], dict)
        assert isinstance(answer["Error"], str)
    elif verb == "prioritize":
        assert isinstance(answer, list)
        assert all(isinstance(x["Host"], str) and 0 <= x["Score"] <= 10 for x in answer)
    else:
        for victims in answer["NodeNameToMetaVictims"].values():
            assert isinstance(victims["Pods"], list)


VERBS = st.sampled_from(["filter", "prioritize", "preempt"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(
        ["n1", "n2", labels.SCHEDULER_NAME, "0", "0,0", "n1=0;n2", "NaN", "1e400", "-1", "9" * 30, "1Ei", "💥", "\x00"]
    )
)
NAMES = [
    *("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations"),
    *("metadata", "spec", "status", "items", "name", "uid", "annotations", "schedulerName", "containers", "resources"),
    *("requests", "limits", "affinity", "nodeAffinity", "schedulingGates", "nodeName", "phase", "resourceVersion"),
    *(labels.GPU, labels.GPU_MILLI, labels.DEVICES, labels.CANDIDATES, labels.KAI_GPU_FRACTION),
]
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=5),
    max_leaves=20,
)


@st.composite
def nearly_right(draw: st.DrawFn) -> dict[str, Any]:
    """A real request in which one or two places hold something else."""
    pod: Any = pod_json(
        "p",
        requests={labels.GPU: "1", "cpu": "1"},
        annotations={labels.DEVICES: "1", labels.CANDIDATES: "n1=1;n2=0"},
        schedulerName=draw(st.sampled_from([labels.SCHEDULER_NAME, "other"])),
    )
    request: Any = {
        "Pod": pod,
        "Nodes": None,
        "NodeNames": ["n1", "n2", "ghost"],
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}},
        "NodeNameToVictims": {"n2": {"Pods": [pod], "NumPDBViolations": 0}},
    }
    for _ in range(draw(st.integers(1, 2))):
        place, key = request, draw(st.sampled_from(sorted(request)))
        while isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        place[key] = draw(VALUES)
    return request


many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(verb=VERBS, body=st.binary(max_size=200))
@example(verb="filter", body=b"\x00")
@example(verb="filter", body=b"{" * 100_000)
@example(verb="filter", body=b'{"Pod":' * 50_000)
@example(verb="preempt", body=b'{"Pod":{"spec":{"x":' + b"[" * 100_000)
@example(verb="filter", body=b'{"Pod":{},"NodeNames":["\\ud800"]}')
@example(verb="filter", body=b'{"Pod":{},"NodeNames":["\xff"]}')
@example(verb="filter", body=b'{"Pod":{},"NodeNames":[NaN]}')
@example(verb="prioritize", body=b'{"Pod":{},"NodeNames":["a"],"NodeNames":null}')
@example(verb="filter", body=b'{"Pod":{"spec":{"priority":1e999}},"NodeNames":["a"]}')
async def test_any_bytes(verb: str, body: bytes) -> None:
    await Harness().post(verb, body)


@many
@given(verb=VERBS, value=VALUES)
async def test_any_json(verb: str, value: Any) -> None:
    reply = await Harness().post(verb, json.dumps(value).encode())
    if not isinstance(value, dict):
        assert reply.status == 400
    elif verb == "filter":
        assert reply.status == 200


@many
@given(verb=VERBS, request=nearly_right())
async def test_nearly_right_requests(verb: str, request: dict[str, Any]) -> None:
    reply = await Harness().post(verb, json.dumps(request).encode())
    if verb == "filter":
        assert reply.status == 200


@pytest.mark.parametrize("scheduler", [labels.SCHEDULER_NAME, "other"])
async def test_a_hundred_thousand_unknown_names(scheduler: str) -> None:
    pod = pod_json("p", requests={"cpu": "1"}, schedulerName=scheduler)
    names = [f"ghost-{i}" for i in range(100_000)]
    reply = await Harness().post("filter", msgspec.json.encode({"Pod": pod, "NodeNames": names}))
    answer = json.loads(reply.body)
    assert len(answer["FailedNodes"]) == (100_000 if scheduler == labels.SCHEDULER_NAME else 0)


async def test_names_that_come_twice_and_odd_ones() -> None:
    pod = pod_json("p", requests={"cpu": "1"})
    names = ["n1", "n1", "", " ", "n1/../n2", "💥" * 1000]
    reply = await Harness().post("filter", msgspec.json.encode({"Pod": pod, "NodeNames": names}))
    assert json.loads(reply.body)["NodeNames"] == ["n1", "n1"]
