"""Client, patches, watch, lease and events against the real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid

import msgspec
import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.clock import SystemClock
from fleet.constraints import Toleration
from fleet.errors import ApiError, Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode import pod_from
from fleet.kube.events import EventRecorder
from fleet.kube.lease import Elector
from fleet.kube.objects import NodeObject, PodObject, ResourceSliceObject
from fleet.kube.patches import candidates_patch, condition_patch, pin_patch, ungate_patch
from fleet.kube.reflector import Reflector
from fleet.pod import Berth, Pod
from tests.support.cluster import StartCluster, access, client_of

pytestmark = pytest.mark.contract

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HAS_A = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
NOT_BAD = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}]}
BERTH = Berth(node="node-7", devices=("0", "3"))


def required(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.fixture
async def client(control_plane: Cluster):
    async with client_of(control_plane) as opened:
        yield opened


@pytest.fixture
async def namespace(client: Client):
    name = f"kube-access-{uuid.uuid4().hex[:8]}"
    await client.create("/api/v1/namespaces", json.dumps({"metadata": {"name": name}}).encode())
    yield name
    await client.delete(f"/api/v1/namespaces/{name}")


def a_pod(name, gates=("other.io/wait", labels.PLAN_GATE), annotations=None, **spec):
    return {
        "metadata": {"name": name, **({"annotations": annotations} if annotations else {})},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "schedulingGates": [{"name": gate} for gate in gates],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            **spec,
        },
    }


async def create(client, namespace, obj) -> Pod:
    body = json.dumps(obj).encode()
    for _ in range(50):
        with contextlib.suppress(ApiError):
            return read(await client.create(f"/api/v1/namespaces/{namespace}/pods", body))
        await SystemClock().sleep(0.1)  # until the controller manager has made the namespace's service account
    raise AssertionError("no pod could be created")


def read(answer: bytes) -> Pod:
    return pod_from(msgspec.json.decode(answer, type=PodObject))


@pytest.mark.parametrize(
    ("affinity", "pins"),
    [
        (None, 1),
        ({}, 1),
        ({"podAntiAffinity": {}}, 1),
        ({"nodeAffinity": {}}, 1),
        (required(HAS_A), 1),
        (required(NOT_BAD), 1),
        (required(HAS_A, HAS_A | NOT_BAD, NOT_BAD), 3),
        (required({}, HAS_A), 1),
    ],
)
async def test_a_pin_is_taken_whatever_affinity_a_pod_has(client, namespace, affinity, pins):
    spec = {} if affinity is None else {"affinity": affinity}
    pod = await create(client, namespace, a_pod("p", **spec))
    toleration = Toleration(key="pool", value="warm", effect="NoSchedule")
    patch = pin_patch(pod, BERTH, tolerations=[toleration])
    answer = await client.json_patch(paths.pod(namespace, "p"), patch)
    pinned = read(answer)
    assert pinned.gates == ("other.io/wait",)
    assert pinned.devices == ("0", "3")
    assert toleration in pinned.constraints.tolerations
    assert set(pod.constraints.tolerations) <= set(pinned.constraints.tolerations)
    assert answer.count(b'"values":["node-7"]') == pins
    with pytest.raises(Invalid):
        await client.json_patch(paths.pod(namespace, "p"), patch)


async def test_a_pin_ends_the_record_of_managers_and_leaves_what_was_applied(client, namespace):
    path, applied = paths.pod(namespace, "applied"), {"apiVersion": "v1", "kind": "Pod"} | a_pod("applied")
    pods = [await create(client, namespace, a_pod("p")), read(await client.apply(path, json.dumps(applied).encode()))]
    for pod in pods:
        await client.json_patch(paths.pod(namespace, pod.name), pin_patch(pod, BERTH))
    p, applied = [json.loads(await client.get(paths.pod(namespace, pod.name))) for pod in pods]
    assert "managedFields" not in p["metadata"]
    assert {one["operation"] for one in applied["metadata"]["managedFields"]} == {"Apply", "Update"}
    # Whoever applies the first one later finds every field owned by somebody, as always.
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {labels.PINNED: "elsewhere"}}}
    with pytest.raises(Conflict):
        await client.apply(paths.pod(namespace, "p"), json.dumps(theirs).encode(), force=False)


async def test_annotations_that_came_meanwhile_are_not_lost(client, namespace):
    pod = await create(client, namespace, a_pod("p"))
    path = paths.pod(namespace, "p")
    await client.merge_patch(path, b'{"metadata":{"annotations":{"theirs":"kept"}}}')
    with pytest.raises(Invalid):
        await client.json_patch(path, pin_patch(pod, BERTH))
    again = read(await client.get(path))
    answer = await client.json_patch(path, candidates_patch(again, [BERTH, Berth(node="node-8")]))
    assert read(answer).candidates == (BERTH, Berth(node="node-8"))
    assert json.loads(answer)["metadata"]["annotations"]["theirs"] == "kept"


async def test_a_pod_of_the_same_name_is_another_pod(client, namespace):
    path = paths.pod(namespace, "p-0")
    old = await create(client, namespace, a_pod("p-0"))
    await client.delete(path, uid=old.uid)
    new = await create(client, namespace, a_pod("p-0"))
    for patch in (pin_patch(old, BERTH), ungate_patch(old), candidates_patch(old, [BERTH])):
        with pytest.raises(Invalid):
            await client.json_patch(path, patch)
    with pytest.raises(Conflict):
        await client.delete(path, uid=old.uid)
    with pytest.raises(Conflict):
        await client.delete(path, uid=new.uid, resource_version=old.resource_version)
    assert read(await client.get(path)).gates == new.gates


async def test_a_condition_stands_beside_the_others(client, namespace):
    await create(client, namespace, a_pod("p"))
    status = paths.pod(namespace, "p", "status")
    for is_true, at in ((True, "2026-01-01T00:00:00Z"), (False, "2026-01-02T00:00:00Z")):
        patch = condition_patch(labels.WAITING_CONDITION, status=is_true, reason="R", message="m", at=at)
        answer = json.loads(await client.merge_patch(status, patch, strategic=True))
    conditions = {c["type"]: c for c in answer["status"]["conditions"]}
    assert conditions[labels.WAITING_CONDITION]["status"] == "False"
    assert conditions[labels.WAITING_CONDITION]["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert conditions["PodScheduled"]["reason"] == "SchedulingGated"


async def test_a_budget_forbids_an_eviction_and_a_gated_pod_goes(client, namespace):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    await client.create(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", json.dumps(budget).encode())
    obj = a_pod("running")
    obj["metadata"]["labels"] = {"app": "x"}
    await create(client, namespace, obj)
    await client.merge_patch(
        paths.pod(namespace, "running", "status"),
        b'{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}',
        strategic=True,
    )
    with pytest.raises(ApiError) as caught:
        await client.evict(namespace, "running")
    assert caught.value.status == 429
    free = await create(client, namespace, a_pod("free"))
    await client.evict(namespace, "free", uid=free.uid)
    with pytest.raises(NotFound):
        await client.get(paths.pod(namespace, "free"))


async def test_server_side_apply_owns_its_fields(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    await client.apply(path, json.dumps(obj | {"data": {"a": "1", "b": "2"}}).encode())
    answer = json.loads(await client.apply(path, json.dumps(obj | {"data": {"a": "3"}}).encode()))
    assert answer["data"] == {"a": "3"}
    assert {field["manager"] for field in answer["metadata"]["managedFields"]} == {labels.FIELD_MANAGER}


async def test_errors_have_their_kinds(client, namespace):
    with pytest.raises(NotFound, match="nope"):
        await client.get(paths.pod(namespace, "nope"))
    await create(client, namespace, a_pod("p"))
    with pytest.raises(Conflict):
        await client.create(f"/api/v1/namespaces/{namespace}/pods", json.dumps(a_pod("p")).encode())
    with pytest.raises(Invalid):
        await client.create(f"/api/v1/namespaces/{namespace}/pods", json.dumps(a_pod("Q!")).encode())
    with pytest.raises(ApiError, match="400"):
        await client.json_patch(paths.pod(namespace, "p"), b"not json")


class Names:
    """A sink that remembers names and can be waited for."""

    def __init__(self):
        self.names, self.syncs = {}, 0
        self._changed = asyncio.Condition()

    def upsert(self, obj):
        self.names[obj.metadata.uid] = obj.metadata.name
        self._notify()

    def delete(self, obj):
        self.names.pop(obj.metadata.uid)
        self._notify()

    def synced(self):
        self.syncs += 1
        self._notify()

    def _notify(self):
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self):
        async with self._changed:
            self._changed.notify_all()

    async def until(self, holds):
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(holds)


@contextlib.asynccontextmanager
async def running(*reflectors):
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_every_collection_of_a_real_cluster_can_be_read(client, namespace):
    sinks = [Names() for _ in range(3)]
    kinds = ((paths.PODS, PodObject), (paths.NODES, NodeObject), (paths.RESOURCE_SLICES, ResourceSliceObject))
    reflectors = [
        Reflector(client, SystemClock(), path, kind, sink) for (path, kind), sink in zip(kinds, sinks, strict=True)
    ]
    pod = await create(client, namespace, a_pod("p"))
    async with running(*reflectors):
        await sinks[0].until(lambda: pod.uid in sinks[0].names)
        await asyncio.gather(*(sink.until(lambda s=sink: s.syncs) for sink in sinks))
        await reflectors[0].refresh()
        await client.delete(paths.pod(namespace, "p"), uid=pod.uid)
        await sinks[0].until(lambda: pod.uid not in sinks[0].names)
    assert [reflector.stats.unreadable for reflector in reflectors] == [0, 0, 0]
    assert all(reflector.stats.failures == 0 for reflector in reflectors)


async def test_a_watch_survives_the_death_of_the_api_server(start_cluster: StartCluster):
    cluster = start_cluster("api-death")
    try:
        async with client_of(cluster) as client:
            sink = Names()
            reflector = Reflector(client, SystemClock(), "/api/v1/namespaces/default/pods", PodObject, sink)
            async with running(reflector):
                await sink.until(lambda: sink.syncs)
                await create(client, "default", a_pod("before"))
                await asyncio.to_thread(cluster.kill, "kube-apiserver")
                await asyncio.to_thread(cluster.start, "kube-apiserver")
                await create(client, "default", a_pod("after"))
                await sink.until(lambda: sorted(sink.names.values()) == ["after", "before"])
                assert reflector.stats.unreadable == 0
            # The new server's watch cache begins after these pods: what is older, it cannot say any more.
            late_sink = Names()
            late = Reflector(client, SystemClock(), paths.PODS, PodObject, late_sink)
            late._version = "1"
            async with running(late):
                await late_sink.until(lambda: {"after", "before"} <= set(late_sink.names.values()))
            assert (late.stats.gone, late.stats.lists) == (1, 1)
    finally:
        cluster.down()


async def test_leaders_follow_each_other(control_plane, client, namespace):
    def elector(through, identity):
        times = {"lease_s": 4.0, "renew_s": 3.0, "retry_s": 0.5}
        return Elector(through, SystemClock(), namespace=namespace, name="l", identity=identity, **times)

    async def lead():
        await asyncio.Event().wait()

    async def until_leading(one):
        async with asyncio.timeout(20):
            while not one.is_leader:
                await SystemClock().sleep(0.05)

    dying = Client(access(control_plane), SystemClock())
    await dying.__aenter__()
    first, second = elector(dying, "first"), elector(client, "second")
    tasks = [asyncio.create_task(first.run(lead))]
    await until_leading(first)
    tasks.append(asyncio.create_task(second.run(lead)))
    await SystemClock().sleep(2.0)
    assert not second.is_leader
    died_at_s = SystemClock().monotonic_s()
    await dying.__aexit__(None, None, None)
    await until_leading(second)
    assert not first.is_leader
    assert SystemClock().monotonic_s() - died_at_s >= 3.0
    lease = json.loads(await client.get(paths.leases(namespace, "l")))["spec"]
    assert (lease["holderIdentity"], lease["leaseTransitions"], second.epoch) == ("second", 1, 1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert json.loads(await client.get(paths.leases(namespace, "l")))["spec"]["holderIdentity"] == ""


async def test_an_event_is_seen_by_everyone(client, namespace):
    pod = await create(client, namespace, a_pod("p"))
    recorder = EventRecorder(client, SystemClock(), "berthmaster-planner")
    await recorder.record(pod, reason="Insufficient", note="needs " + "ü" * 2000, is_warning=True)
    (said,) = recorder._said.values()
    said.sent_at_s -= 120.0
    await recorder.record(pod, reason="Insufficient", note="needs " + "ü" * 2000, is_warning=True)
    assert recorder.stats.failed == 0
    (event,) = json.loads(await client.get(f"/api/v1/namespaces/{namespace}/events"))["items"]
    assert event["involvedObject"]["uid"] == pod.uid
    assert event["series"]["count"] == 2
    assert event["type"] == "Warning"
