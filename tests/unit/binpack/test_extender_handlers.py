"""The extender over HTTP: kube-scheduler's JSON in, its JSON out, on a real socket and a clock of the test's own."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer

from binpack.extender import Extender
from binpack.extender_handlers import ExtenderHandlers
from binpack.ledger import Ledger
from binpack.server import application
from fleet import labels
from fleet.kube.decode import pod_from
from fleet.telemetry import add_probes
from tests.support.builders import a_node, pod_json, pod_object
from tests.support.eventually import eventually

PIN = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        }
    }
}
EMPTY = {"Nodes": None, "NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}


class TestClock:
    __test__ = False

    def __init__(self):
        self.at_s = 1000.0

    def now_s(self):
        return self.at_s

    def monotonic_s(self):
        return self.at_s

    async def sleep(self, seconds):
        self.at_s += seconds


class World:
    def __init__(self, catch_up_s: float = 60.0):
        self.ledger = Ledger()
        self.extender = Extender(self.ledger)
        self.clock = TestClock()
        self.is_synced = True
        self.handlers = ExtenderHandlers(
            self.extender,
            self.ledger,
            self.clock,
            is_synced=lambda: self.is_synced,
            seen_at_s=lambda: self.clock.at_s - 3.0,
            catch_up_s=catch_up_s,
        )
        self.ledger.set_node(a_node("n1", gpus=1))
        self.client: TestClient

    def see(self, obj):
        pod = pod_from(pod_object(obj))
        self.ledger.set_pod(pod)
        self.extender.pod_seen(pod)
        self.handlers.changed()

    async def post(self, verb, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.client.post(f"/{verb}", data=data) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text.decode()

    async def calls_that_wait(self):
        return self.handlers.waiting

    async def get(self, path):
        async with self.client.get(path) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def world(request):
    world = World(getattr(request, "param", 60.0))
    app = application(world.handlers.posts, largest_body_bytes=100_000)
    add_probes(app, world.handlers.metrics.registry, world.handlers.not_ready)
    async with TestClient(TestServer(app)) as client:
        world.client = client
        yield world


def pinned(name="p", devices="0", **metadata):
    return pod_json(
        name, requests={labels.GPU: "1"}, annotations={labels.DEVICES: devices}, affinity=PIN, metadata=metadata
    )


async def test_a_pinned_pod_is_verified(world):
    status, answer = await world.post("filter", {"Pod": pinned(), "Nodes": None, "NodeNames": ["n1"]})
    assert (status, answer) == (200, EMPTY | {"NodeNames": ["n1"]})


async def test_a_second_veto_waits_a_moment_for_what_the_scheduler_may_have_seen_first(world):
    """The scheduler saw the holder go and tries again; our watch is a moment behind, and nothing wakes it once more."""
    holder = pinned("holder")
    holder["spec"]["nodeName"] = "n1"
    late = pinned("late")
    world.see(holder)
    world.see(late)
    body = {"Pod": late, "NodeNames": ["n1"]}
    _, first = await world.post("filter", body)
    assert "held by another pod" in first["FailedNodes"]["n1"]
    again = asyncio.ensure_future(world.post("filter", body))
    await eventually(world.calls_that_wait, every_s=0.001, what="the second call waits for the watch")
    gone = pod_from(pod_object(holder))
    world.ledger.remove_pod(gone.uid)
    world.extender.pod_gone(gone.uid)
    world.handlers.changed()
    _, second = await again
    assert second == EMPTY | {"NodeNames": ["n1"]}


async def test_a_second_veto_stands_where_nothing_changes(world):
    holder = pinned("holder")
    holder["spec"]["nodeName"] = "n1"
    world.see(holder)
    world.see(pinned("late"))
    body = {"Pod": pinned("late"), "NodeNames": ["n1"]}
    answers = [(await world.post("filter", body))[1] for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[1]["NodeNames"] == []
    assert not world.handlers.waiting


async def test_nodes_given_as_objects_come_back_as_objects(world):
    node = {"metadata": {"name": "n1", "labels": {"a": "b"}}, "status": {"x": [1, None, True]}}
    body = {"Pod": pinned(), "Nodes": {"metadata": {}, "items": [node, {"metadata": {"name": "n2"}}, {}]}}
    status, answer = await world.post("filter", body)
    assert status == 200
    assert answer["Nodes"]["items"] == [node]
    assert answer["NodeNames"] == ["n1"]
    assert set(answer["FailedNodes"]) == {"n2", ""}


@pytest.mark.parametrize(
    ("body", "nodes", "has_error"),
    [
        ({"Pod": "<p>", "Nodes": None, "NodeNames": None}, [], True),
        ({"Pod": "<p>"}, [], True),
        ({"Pod": "<p>", "NodeNames": []}, [], False),
        ({"Pod": "<p>", "Nodes": {"items": None}}, [], False),
        ({"Pod": "<p>", "NodeNames": ["n1", "ghost"]}, ["n1"], False),
        ({"NodeNames": ["n1"]}, [], True),
        ({"Pod": None, "NodeNames": ["n1"]}, [], True),
        ({"Pod": "<p>", "NodeNames": [7]}, [], True),
        ({"Pod": "<p>", "NodeNames": "n1"}, [], True),
        ({"Pod": [], "NodeNames": ["n1"]}, [], True),
        ({}, [], True),
    ],
)
async def test_a_request_that_cannot_be_used_fails_alone(world, body, nodes, has_error):
    """Case filter-without-usable-node-list (Project-HAMi/HAMi#2688): null, empty and unknown nodes, no pod."""
    if body.get("Pod") == "<p>":
        body = body | {"Pod": pinned()}
    before = world.ledger.picture()
    status, answer = await world.post("filter", body)
    assert status == 200
    assert answer["NodeNames"] == nodes
    assert bool(answer["Error"]) is has_error
    assert isinstance(answer["FailedNodes"], dict)
    if "ghost" in (body.get("NodeNames") or []):
        assert "ghost" in answer["FailedNodes"]
    assert await world.get("/healthz") == (200, "ok\n")
    assert world.ledger.picture() == before


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize("body", [b'{"Pod":', b"", b"[]", b"null", b"7", b'"x"', b"\xff\xfe", b"[" * 5000])
async def test_what_is_not_a_request_is_refused(world, verb, body):
    status, _ = await world.post(verb, body)
    assert status == 400
    assert await world.get("/healthz") == (200, "ok\n")


async def test_bodies_are_bounded(world):
    async with world.client.post("/filter", data=b" " * 100_001) as answer:
        assert answer.status == 413
    assert await world.get("/healthz") == (200, "ok\n")


async def test_other_paths_and_verbs_are_refused(world):
    assert (await world.get("/filter"))[0] == 405
    assert (await world.get("/"))[0] == 404


async def test_an_empty_ledger_answers_an_error_to_our_pods_only(world):
    world.is_synced = False
    assert (await world.get("/readyz"))[0] == 503
    status, answer = await world.post("filter", {"Pod": pinned(), "NodeNames": ["n1"]})
    assert (status, answer["NodeNames"]) == (200, [])
    assert "not synced" in answer["Error"]
    foreign = pod_json("f", schedulerName="default-scheduler")
    status, answer = await world.post("filter", {"Pod": foreign, "NodeNames": ["x", "y"]})
    assert (status, answer) == (200, EMPTY | {"NodeNames": ["x", "y"]})
    world.is_synced = True
    assert (await world.get("/readyz"))[0] == 200


async def test_a_refusal_waits_until_the_watch_has_caught_up(world):
    """The device was freed before the pin was written, but the scheduler's watch was faster than ours."""
    old = pod_json("old", requests={labels.GPU: "1"}, annotations={labels.DEVICES: "0"}, node="n1", phase="Running")
    world.see(old)
    new = pinned("new", resourceVersion="50")
    asking = asyncio.create_task(world.post("filter", {"Pod": new, "NodeNames": ["n1"]}))
    while not world.handlers.waiting:
        await world.get("/healthz")
    world.ledger.remove_pod("uid-old")
    world.extender.pod_gone("uid-old")
    world.handlers.changed()
    world.see(new)
    status, answer = await asking
    assert (status, answer["NodeNames"]) == (200, ["n1"])
    assert 'berthmaster_extender_watch_waits_total{caught_up="yes"} 1.0' in (await world.get("/metrics"))[1]


@pytest.mark.parametrize("world", [0.0], indirect=True)
async def test_a_refusal_is_given_in_the_end(world):
    world.see(pod_json("old", requests={labels.GPU: "1"}, annotations={labels.DEVICES: "0"}, node="n1"))
    new = pinned("new", resourceVersion="50")
    status, answer = await world.post("filter", {"Pod": new, "NodeNames": ["n1"]})
    # Not a veto: those count against the pod, and this one may be the fault of a slow watch.
    assert (status, answer["NodeNames"], answer["FailedNodes"]) == (200, [], {})
    assert "not seen" in answer["Error"]
    world.see(new)
    status, answer = await world.post("filter", {"Pod": new, "NodeNames": ["n1"]})
    assert (status, answer["NodeNames"], answer["Error"]) == (200, [], "")
    assert "held by another pod" in answer["FailedNodes"]["n1"]
    assert 'berthmaster_extender_watch_waits_total{caught_up="no"} 1.0' in (await world.get("/metrics"))[1]


async def test_candidates_are_steered_and_scored(world):
    world.ledger.set_node(a_node("n2", gpus=1))
    pod = pod_json("p", requests={labels.GPU: "1"}, annotations={labels.CANDIDATES: "n2=0;n1=0"})
    world.see(pod)
    status, answer = await world.post("filter", {"Pod": pod, "NodeNames": ["n1", "n2"]})
    assert (status, answer["NodeNames"]) == (200, ["n2"])
    status, answer = await world.post("prioritize", {"Pod": pod, "NodeNames": ["n1", "n2", "n3"]})
    assert status == 200
    assert answer == [{"Host": "n1", "Score": 9}, {"Host": "n2", "Score": 10}, {"Host": "n3", "Score": 0}]


async def test_scores_without_nodes_are_a_list(world):
    assert await world.post("prioritize", {"Pod": pinned(), "NodeNames": []}) == (200, [])


VICTIM = {"metadata": {"name": "v", "uid": "u-v"}, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u-v"}], "NumPDBViolations": 2}}}, [{"UID": "u-v"}]),
        ({"NodeNameToVictims": {"n1": {"Pods": [VICTIM], "NumPDBViolations": 2}}}, [{"UID": "u-v"}]),
        ({"NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 2}}}, []),
        ({"NodeNameToMetaVictims": {"n1": {"Pods": None, "NumPDBViolations": 2}}}, []),
        ({"NodeNameToVictims": {"n1": {"Pods": None, "NumPDBViolations": 2}}}, []),
    ],
)
async def test_others_victims_are_agreed_to(world, given, right):
    body = {"Pod": pod_json("f", schedulerName="default-scheduler"), "NodeNameToVictims": None} | given
    status, answer = await world.post("preempt", body)
    assert status == 200
    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": right, "NumPDBViolations": 2}}}


async def test_our_pods_get_no_victims_from_the_scheduler(world):
    body = {"Pod": pinned(), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}}
    assert await world.post("preempt", body) == (200, {"NodeNameToMetaVictims": {}})


async def test_metrics_tell_what_happened(world):
    await world.post("filter", {"Pod": pinned(), "NodeNames": ["n1"]})
    await world.post("filter", {"Pod": None})
    await world.post("preempt", b"x")
    status, text = await world.get("/metrics")
    assert status == 200
    for line in (
        'berthmaster_extender_filter_total{outcome="verified"} 1.0',
        'berthmaster_extender_filter_total{outcome="unusable"} 1.0',
        'berthmaster_extender_unusable_total{status="400",verb="preempt"} 1.0',
        'berthmaster_extender_seconds_count{verb="filter"} 2.0',
        "berthmaster_extender_synced 1.0",
        "berthmaster_extender_watch_silence_seconds 3.0",
        "berthmaster_extender_nodes 1.0",
        "berthmaster_extender_promises 0.0",
    ):
        assert line in text
