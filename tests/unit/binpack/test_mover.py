"""Moves carried out against an API server that can fail: what is read of workloads, what is written, how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from binpack.controller.metrics import PlannerMetrics
from binpack.controller.mover import Mover, Order
from binpack.controller.moves import Moves
from binpack.controller.workloads import Workloads
from binpack.controller.writer import PodWriter
from binpack.ledger import Ledger
from binpack.relocation.record import Way, WayKind, format_way
from binpack.relocation.ways import Scaler, Writer
from binpack.tenants import Tenants
from fleet import labels
from fleet.errors import Invalid
from fleet.kube.client import Client
from fleet.kube.decode import pod_from
from fleet.kube.events import EventRecorder
from fleet.pod import Berth, Owner
from tests.support.builders import a_node, a_pod, pod_json, pod_object
from tests.support.clock import ManualClock
from tests.support.fake_api import FakeApi

PODS, EVENTS = "/api/v1/pods", "/apis/events.k8s.io/v1/events"
DEPLOYMENTS, REPLICA_SETS = "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets"
AUTOSCALERS = "/apis/berthmaster.dev/v1alpha1/concurrencyautoscalers"
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
SCALE = Way(kind=WayKind.SCALE, name="llm", base=2)
OURS = Way(kind=WayKind.AUTOSCALER, name="llm")
TARGET = Berth(node="n2", devices=("0",))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(api: FakeApi, clock: ManualClock) -> AsyncIterator[Client]:
    async with Client(api.connection(clock), clock) as opened:
        yield opened


def put_workload(api, *, replicas=2, revision="1", of="1", managed=(), **status):
    meta = {"namespace": "default", "generation": 3}
    api.put(
        DEPLOYMENTS,
        {
            "metadata": meta
            | {
                "name": "llm",
                "uid": "d",
                "annotations": {"deployment.kubernetes.io/revision": revision},
                "managedFields": list(managed),
            },
            "spec": {"replicas": replicas},
            "status": {"observedGeneration": 3, "updatedReplicas": replicas, "readyReplicas": replicas} | status,
        },
    )
    api.put(
        REPLICA_SETS,
        {
            "metadata": meta
            | {
                "name": "rs",
                "uid": "uid-rs",
                "annotations": {"deployment.kubernetes.io/revision": of},
                "ownerReferences": [{"kind": "Deployment", "name": "llm", "uid": "d", "controller": True}],
            },
            "spec": {},
        },
    )


def count(api) -> int:
    return int(api.objects(DEPLOYMENTS)["default", "llm"]["spec"]["replicas"])


def scaled_by(manager, *, subresource=None, operation="Update"):
    entry = {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return entry | ({"subresource": subresource} if subresource else {})


# -- workloads ---------------------------------------------------------------------------------------------------


async def test_a_deployment_is_read_through_its_replica_set(api: FakeApi, client: Client):
    managed = [
        scaled_by("helm"),
        scaled_by("keda", subresource="scale"),
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}},
        {"manager": "odd", "operation": "Update", "fieldsV1": None},
    ]
    put_workload(api, managed=managed, readyReplicas=1)
    for name, of in (("h", "llm"), ("x", "y")):
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": of}}
        api.put(HPAS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    target = {"targetRef": {"kind": "Deployment", "name": "llm"}}
    api.put(AUTOSCALERS, {"metadata": {"name": "a", "namespace": "default"}, "spec": target | {"mode": "observe"}})
    found = await Workloads(client).of(a_pod("p", node="n1"))
    assert found is not None
    assert (found.kind, found.name, found.replicas, found.updated, found.ready) == ("Deployment", "llm", 2, 2, 1)
    assert found.is_current
    assert found.writers == (Writer(manager="helm"), Writer(manager="keda", subresource="scale"))
    assert found.scalers == (
        Scaler(kind="ConcurrencyAutoscaler", name="a", is_ours=True, is_acting=False),
        Scaler(kind="HorizontalPodAutoscaler", name="h"),
    )


async def test_a_cluster_without_our_autoscalers_has_none(api: FakeApi, client: Client):
    put_workload(api)
    api.absent(AUTOSCALERS)
    found = await Workloads(client).of(a_pod("p", node="n1"))
    assert found is not None
    assert found.scalers == ()


async def test_a_replica_set_of_an_older_template_is_told_and_so_is_a_status_of_an_older_spec(
    api: FakeApi, client: Client
):
    put_workload(api, revision="2", of="1")
    assert await Workloads(client).is_of_old_template(a_pod("p", node="n1"))
    put_workload(api, observedGeneration=2)
    found = await Workloads(client).of(a_pod("p", node="n1"))
    assert found is not None
    assert not found.is_observed


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        (Owner(kind="StatefulSet", name="db", uid="s"), "StatefulSet"),
        (Owner(kind="ReplicaSet", name="gone", uid="g"), None),
        (Owner(kind="ReplicaSet", name="rs", uid="another"), None),
        (None, None),
    ],
)
async def test_others_and_those_that_are_gone(api: FakeApi, client: Client, owner, kind):
    put_workload(api)
    found = await Workloads(client).of(replace(a_pod("p", node="n1"), owner=owner))
    assert (found.kind if found is not None else None) == kind


async def test_a_count_is_raised_and_lowered_only_from_where_it_was(api: FakeApi, client: Client):
    put_workload(api)
    workloads, pod = Workloads(client), a_pod("old", node="n1")
    assert await workloads.count("default", "llm") == 2
    assert await workloads.count("default", "none") is None
    await workloads.surge(pod, SCALE)
    assert count(api) == 3
    with pytest.raises(Invalid):
        await workloads.surge(pod, SCALE)
    await workloads.settle("default", pod.uid, SCALE)
    assert count(api) == 2
    put_workload(api, replicas=7)
    with pytest.raises(Invalid):
        await workloads.settle("default", pod.uid, SCALE)
    assert count(api) == 7


async def test_an_autoscaler_is_asked_for_one_pod_at_a_time_and_other_annotations_stay(api: FakeApi, client: Client):
    api.put(AUTOSCALERS, {"metadata": {"name": "llm", "namespace": "default", "annotations": {"x": "y"}}})
    workloads = Workloads(client)
    for pod in (a_pod("old"), a_pod("old"), a_pod("other")):
        await workloads.surge(pod, OURS)
    assert await workloads.listed("default", "llm") == ("uid-other",)
    await workloads.settle("default", "uid-old", OURS)
    assert await workloads.listed("default", "llm") == ("uid-other",)
    await workloads.settle("default", "uid-other", OURS)
    await workloads.settle("default", "uid-other", OURS)
    notes = api.objects(AUTOSCALERS)["default", "llm"]["metadata"]["annotations"]
    assert notes == {"x": "y"}
    assert await workloads.listed("default", "none") == ()


# -- the mover ---------------------------------------------------------------------------------------------------


class Stage:
    """A mover, an API, and a watch that shows what the API has when it is told to."""

    def __init__(self, api, client, clock, *, may_move=True):
        self.api, self.clock, self.registry = api, clock, CollectorRegistry()
        self.ledger, self.tenants = Ledger(), Tenants()
        self.moves = Moves(self.ledger, self.tenants, lambda pod, name: True)
        for name in ("n1", "n2"):
            self.ledger.set_node(a_node(name, gpus=1))
        self.workloads = Workloads(client)
        self.mover = Mover(
            self.moves,
            client,
            PodWriter(client),
            self.workloads,
            EventRecorder(client, clock, "test"),
            clock,
            PlannerMetrics(self.registry),
            may_move=may_move,
        )

    def put(self, name, *, node="n1", ready=True, notes=None, gated=False):
        obj = pod_json(
            name,
            requests={labels.GPU: "1"},
            node=None if gated else node,
            annotations={labels.DEVICES: "0"} | (notes or {}),
            metadata={"ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": True}]},
        )
        obj["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        self.api.put(PODS, obj)
        self.show()

    def show(self):
        there = {obj["metadata"]["uid"] for obj in self.api.objects(PODS).values()}
        for obj in self.api.objects(PODS).values():
            pod = pod_from(pod_object(obj))
            self.ledger.set_pod(pod)
            self.tenants.seen(pod)
        for uid in {pod.uid for pod in self.tenants} - there:
            self.lose(uid)

    def lose(self, uid):
        self.ledger.remove_pod(uid)
        self.tenants.gone(uid)
        self.moves.pod_gone(uid)

    def pod(self, name):
        return pod_from(pod_object(self.api.objects(PODS)["default", name]))

    def notes(self, name):
        return self.api.objects(PODS)["default", name]["metadata"]["annotations"]

    def remove(self, name):
        self.api.remove(PODS, name, "default")
        self.show()

    async def begin(self, way=SCALE):
        order = Order(pod=self.pod("old"), target=TARGET, way=way, why="makes room for default/big")
        done = await self.mover.begin(order)
        self.show()
        return done

    async def turn(self, seconds=1.0):
        await self.clock.advance(seconds)
        await self.mover.turn()
        self.show()

    def events(self):
        return [obj["reason"] for obj in self.api.objects(EVENTS).values()]

    def told(self, stage):
        return self.registry.get_sample_value("berthmaster_moves_total", {"stage": stage}) or 0.0


@pytest.fixture
def stage(api: FakeApi, client: Client, clock: ManualClock) -> Stage:
    put_workload(api)
    opened = Stage(api, client, clock)
    opened.put("old")
    return opened


def successor_notes(way=SCALE):
    return {labels.MOVED_FROM: "uid-old", labels.MOVING_BY: format_way(way)}


async def test_a_move_from_beginning_to_end(stage: Stage, api: FakeApi):
    assert await stage.begin()
    assert stage.notes("old")[labels.MOVING_TO] == "n2=0"
    assert stage.ledger.keeps_seat("uid-old")
    await stage.turn()
    assert count(api) == 3
    stage.put("new", node="n2", ready=False, notes=successor_notes())
    await stage.turn()
    assert labels.POD_DELETION_COST not in stage.notes("old")
    stage.put("new", node="n2", notes=successor_notes())
    await stage.turn()
    assert stage.notes("old")[labels.POD_DELETION_COST] == labels.LEAVES_FIRST
    assert count(api) == 3
    await stage.turn()
    assert count(api) == 2
    stage.remove("old")
    await stage.turn()
    assert labels.MOVING_BY not in stage.notes("new")
    assert stage.told("Moved") == 1
    assert {"Moving", "Moved"} <= set(stage.events())
    await stage.turn()
    assert not list(stage.moves.open(stage.clock.monotonic_s()))


@pytest.mark.parametrize("dies", [False, True])
async def test_two_that_are_marked_at_once_move_one_after_the_other_by_one_surge_each(api, client, clock, dies):
    put_workload(api, replicas=3)
    mark = {labels.MOVING_BY: format_way(replace(SCALE, base=3))}
    stage = Stage(api, client, clock)
    stage.put("old", notes={labels.MOVING_TO: "n2=0"} | mark)
    stage.put("too", node="n3", notes={labels.MOVING_TO: "n4=0"} | mark)
    most = 0
    for old, new, node in (("old", "new", "n2"), ("too", "two", "n4")):
        for ready in (False, True, True):
            await stage.turn()
            most = max(most, count(api))
            stage.put(new, node=node, ready=ready, notes={labels.MOVED_FROM: f"uid-{old}"} | mark)
            if dies:
                stage = Stage(api, client, clock)
                stage.show()
        assert count(api) == 4
        await stage.turn()
        await stage.turn()
        assert count(api) == 3
        stage.remove(old)
        await stage.turn()
        await stage.turn(0.0)
    assert most == 4
    assert {name for _, name in api.objects(PODS)} == {"new", "two"}
    assert not any(labels.MOVING_BY in stage.notes(name) for name in ("new", "two"))
    assert "Overruled" not in stage.events()


async def test_a_pod_that_changed_hands_is_not_begun(stage: Stage, api: FakeApi):
    old = stage.pod("old")
    stage.put("old", notes={labels.MOVING_TO: "n9", labels.MOVING_BY: "eviction"})
    assert not await stage.mover.begin(Order(pod=old, target=TARGET, way=SCALE, why=""))
    assert stage.notes("old")[labels.MOVING_TO] == "n9"


async def test_a_refused_mark_keeps_no_seat(stage: Stage, api: FakeApi):
    api.fail(403, method="PATCH")
    assert not await stage.begin()
    assert not stage.ledger.keeps_seat("uid-old")


async def test_a_successor_that_does_not_come_is_waited_for_and_then_all_is_undone(stage: Stage, api: FakeApi):
    await stage.begin()
    await stage.turn()
    await stage.turn()
    assert count(api) == 3
    await stage.turn(125.0)
    assert count(api) == 2
    await stage.turn()
    assert labels.MOVING_TO not in stage.notes("old")
    assert stage.told("SuccessorMissing") == 1
    assert "SuccessorMissing" in stage.events()
    assert not stage.ledger.keeps_seat("uid-old")


async def test_what_an_earlier_process_began_is_undone_where_moves_are_off(api, client, clock):
    put_workload(api, replicas=3)
    opened = Stage(api, client, clock, may_move=False)
    opened.put("old", notes={labels.MOVING_TO: "n2=0", labels.MOVING_BY: format_way(SCALE)})
    await opened.turn()
    assert count(api) == 2
    await opened.turn()
    assert labels.MOVING_TO not in opened.notes("old")
    assert opened.told("Withdrawn") == 1


async def test_what_an_earlier_process_had_almost_done_is_ended_even_where_moves_are_off(api, client, clock):
    put_workload(api, replicas=3)
    opened = Stage(api, client, clock, may_move=False)
    opened.put("old", notes={labels.MOVING_TO: "n2=0", labels.MOVING_BY: format_way(SCALE)})
    opened.put("new", node="n2", notes=successor_notes())
    await opened.turn()
    await opened.turn()
    assert count(api) == 2
    opened.remove("old")
    await opened.turn()
    assert opened.told("Moved") == 1


async def test_an_old_pod_that_dies_on_the_way_leaves_no_replica_too_many(stage: Stage, api: FakeApi):
    await stage.begin()
    await stage.turn()
    stage.put("new", node="n2", ready=False, notes=successor_notes())
    stage.remove("old")
    await stage.turn()
    assert count(api) == 2
    await stage.turn()
    assert labels.MOVING_BY not in stage.notes("new")


async def test_an_old_pod_that_vanishes_before_its_successor_comes_leaves_no_replica_too_many(
    stage: Stage, api: FakeApi
):
    await stage.begin()
    await stage.turn()
    assert count(api) == 3
    stage.remove("old")
    await stage.turn()
    assert count(api) == 2
    await stage.turn()
    assert stage.told("SuccessorMissing") == 1
    await stage.turn(20.0)
    assert not list(stage.moves.open(stage.clock.monotonic_s()))


async def test_a_mark_that_nobody_can_read_is_taken_off(api, client, clock):
    put_workload(api)
    opened = Stage(api, client, clock)
    opened.put("old", notes={labels.MOVING_TO: "n2=0", labels.MOVING_BY: "by magic"})
    await opened.turn()
    assert labels.MOVING_TO not in opened.notes("old")
    assert count(api) == 2
    assert opened.told("Unreadable") == 1


async def test_while_the_api_does_not_answer_nothing_is_done(stage: Stage, api: FakeApi):
    await stage.begin()
    api.fail(403, times=50, method="GET")
    await stage.turn()
    assert count(api) == 2
    assert labels.MOVING_TO in stage.notes("old")


async def test_only_the_record_of_the_successor_is_taken_where_the_old_pod_was_cleared(stage: Stage, api: FakeApi):
    put_workload(api, replicas=3)
    stage.put("new", node="n2", notes=successor_notes())
    await stage.turn()
    assert labels.MOVING_BY not in stage.notes("new")
    assert count(api) == 3, "the third replica is somebody else's wish"


async def test_a_move_that_we_fail_on_does_not_hold_up_the_others(stage: Stage, api: FakeApi, monkeypatch):
    assert await stage.begin()
    stage.put("another", notes={labels.MOVING_TO: "n2=1", labels.MOVING_BY: "nonsense"})
    looked = []

    async def fails(self, namespace, name):
        looked.append(name)
        raise ValueError("an answer that nobody expects")

    monkeypatch.setattr(Workloads, "count", fails)
    await stage.turn()
    assert looked
    assert stage.told("Unreadable") == 1
    assert stage.registry.get_sample_value("berthmaster_faults_total", {"where": "move"}) == 1


async def test_a_deployment_that_is_gone_ends_its_moves(stage: Stage, api: FakeApi):
    await stage.begin()
    api.remove(DEPLOYMENTS, "llm", "default")
    await stage.turn()
    assert labels.MOVING_TO not in stage.notes("old")


async def test_one_that_goes_first_is_evicted_and_its_seat_kept(stage: Stage, api: FakeApi, monkeypatch):
    await stage.begin(Way(kind=WayKind.EVICTION))
    answer = stage.mover._writer.evict

    async def gone_before_the_answer(pod):
        found = await answer(pod)
        stage.show()
        return found

    monkeypatch.setattr(stage.mover._writer, "evict", gone_before_the_answer)
    await stage.turn()
    assert [json.loads(asked.body)["kind"] for asked in api.asked("POST", "/eviction")] == ["Eviction"]
    assert ("default", "old") not in api.objects(PODS)
    assert stage.ledger.keeps_seat("uid-old")
    await stage.turn()
    stage.put("new", node="n2", notes=successor_notes(Way(kind=WayKind.EVICTION)))
    assert not stage.ledger.keeps_seat("uid-old")
    await stage.turn()
    assert stage.told("Moved") == 1
    assert labels.MOVING_BY not in stage.notes("new")
