"""The scaler's controller on a real API server, under its own account: counts follow load, and everything is told."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import Invalid
from fleet.kube import paths
from scaler.recorded import from_json
from tests.support.autoscaling import QUICK, Yard, controller
from tests.support.cluster import POLICED, StartCluster, add_nodes, client_of, kubectl
from tests.support.eventually import eventually, never
from tests.support.exporter import FakeExporter, a_server

pytestmark = pytest.mark.contract
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("scaler", POLICED)
    asyncio.run(add_nodes(cluster, fake_nodes.uniform(2, is_sharing=False, gpus=0)))
    yield cluster
    cluster.down()


@pytest.fixture
async def exporter() -> AsyncIterator[FakeExporter]:
    async with FakeExporter(token="secret-of-the-test") as opened:
        yield opened


@pytest.fixture
async def yard(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    async with client_of(cluster) as client:
        opened = Yard(client, f"{words[:40].strip('-')}-{next(_NUMBERS)}")
        await opened.open()
        yield opened
        await opened.close()


def loaded(exporter: FakeExporter, in_flight: float | None, backend: str = "shop", queued: float | None = 0.0) -> None:
    """Say load without rates: then the base rule decides, whose windows a test can make short."""
    exporter.say(backend, arrivals=None, in_flight=in_flight, queued=queued)


async def test_a_deployment_grows_and_shrinks_with_its_load(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await yard.workload()
    loaded(exporter, 20.0)
    with caplog.at_level(logging.INFO):
        async with controller(cluster, exporter.sources(tmp_path)):
            await yard.autoscaler()
            await yard.until_replicas(4)
            await yard.until_condition("Ready", "True", "Acting")
            told = await eventually(yard.read, lambda ca: "lastChange" in ca["status"], what="the change is told")
            assert told["status"]["lastChange"]["to"] == 4
            assert told["metadata"]["annotations"][labels.TARGET_CONCURRENCY] == "5"
            loaded(exporter, 4.0)
            await yard.until_replicas(1)
            await eventually(yard.pods, lambda pods: len(pods) == 1, what="one pod")
            told_changes = [change async for change in changes(yard)]
            assert (told_changes[0], told_changes[-1][-4:]) == ("1 -> 4", "-> 1")
    for record in caplog.records:
        # It runs with the rights of the manifests, and they were enough.
        assert record.levelno < logging.ERROR, record.getMessage()
        assert "forbidden" not in record.getMessage().lower()


async def changes(yard: Yard) -> AsyncIterator[str]:
    events = await eventually(
        yard.events, lambda events: any("-> 1 (" in event["note"] for event in events), what="the last change is told"
    )
    for event in sorted(events, key=lambda event: event["metadata"]["creationTimestamp"]):
        if event["reason"].startswith("Scaled"):
            yield event["note"].partition(": ")[2].partition(" (")[0]


async def test_the_least_busy_go_first(cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path) -> None:
    await yard.workload(replicas=3)
    pods = await eventually(yard.pods, lambda pods: len(pods) == 3)
    names = sorted(pod["metadata"]["name"] for pod in pods)
    exporter.servers = lambda backend: [
        a_server("gone", "10.255.255.254:8000", 900.0),
        a_server(names[0], in_flight=1.0),
        a_server(names[1], in_flight=4.0),
        a_server(names[2], in_flight=3.0),
    ]
    loaded(exporter, 908.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler()
        await yard.until_replicas(2)
        left = await eventually(yard.pods, lambda pods: len(pods) == 2)
        assert sorted(pod["metadata"]["name"] for pod in left) == names[1:]


async def test_a_stateful_set_is_scaled_too(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload(kind="StatefulSet")
    loaded(exporter, 12.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler(targetRef={"kind": "StatefulSet", "name": "shop"})
        await yard.until_replicas(3, kind="StatefulSet")


async def test_any_kind_with_a_scale_is_scaled_once_the_right_is_given(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    kubectl(cluster, "apply", "-f", "-", text=BERTHS)
    kubectl(cluster, "wait", "--for=condition=Established", "crd/berths.tests.example.com", "--timeout=30s")
    path = f"/apis/tests.example.com/v1/namespaces/{yard.namespace}/berths"
    await yard.post(
        path,
        {"apiVersion": "tests.example.com/v1", "kind": "Berth", "metadata": {"name": "shop"}, "spec": {"replicas": 1}},
    )
    loaded(exporter, 12.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler(targetRef={"apiVersion": "tests.example.com/v1", "kind": "Berth", "name": "shop"})

        async def replicas() -> int:
            return int(json.loads(await yard.client.get(f"{path}/shop"))["spec"]["replicas"])

        await eventually(replicas, lambda n: n == 3, within_s=30, what="3 replicas")


async def test_an_edit_is_in_force_without_a_restart(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    loaded(exporter, 20.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler()
        await yard.until_replicas(4)
        await yard.edit(targetConcurrency={"initial": 2})
        await yard.until_replicas(10)
        await yard.edit(maxReplicas=6)
        await yard.until_replicas(6)
        assert (await yard.read())["status"]["lastDecision"]["reason"] == "MaxReplicas"
        with pytest.raises(Invalid, match="min <= max must hold"):
            await yard.edit(minReplicas=50, maxReplicas=10)
        kubectl(cluster, "-n", yard.namespace, "scale", "ca/shop", "--replicas=6")
        loaded(exporter, 0.0)
        await never(yard.replicas, lambda n: n != 6, for_s=8, what="the provisioned minimum holds")


async def test_a_target_that_is_deleted_is_named_and_found_again(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    loaded(exporter, 20.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler()
        found = await yard.until_condition("TargetReady", "False", "TargetNotFound")
        assert "Deployment shop does not exist" in found["message"]
        await yard.workload(replicas=2)
        await yard.until_replicas(4)
        await yard.until_condition("Ready", "True")
        await yard.client.delete(f"/apis/apps/v1/namespaces/{yard.namespace}/deployments/shop")
        await yard.until_condition("Ready", "False", "TargetNotFound")


async def test_one_workload_has_one_master(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    loaded(exporter, 5.0)
    loaded(exporter, 100.0, "greedy")
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler()
        await yard.until_condition("Ready", "True")
        greedy = {
            "targetRef": {"kind": "Deployment", "name": "shop"},
            "signals": {"balancer": {"name": "main", "backend": "greedy"}},
        }
        await yard.autoscaler("shop-2", **greedy)
        told = await yard.until_condition("TargetReady", "False", "ClaimedByAnother", name="shop-2")
        assert "ConcurrencyAutoscaler shop " in told["message"]
        await never(yard.replicas, lambda n: n != 1, for_s=4, what="the older one decides")
        await yard.post(
            f"/apis/autoscaling/v2/namespaces/{yard.namespace}/horizontalpodautoscalers",
            {
                "metadata": {"name": "hpa"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
                    "maxReplicas": 3,
                },
            },
        )
        await yard.until_condition("TargetReady", "False", "HorizontalPodAutoscalerPresent")
        loaded(exporter, 50.0)
        await never(yard.replicas, lambda n: n > 3, for_s=4, what="ours stands back")


async def test_observing_writes_nothing_but_the_status(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    loaded(exporter, 20.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler(mode="observe")
        await yard.until_condition("Ready", "True", "Observing")
        await eventually(yard.read, lambda ca: ca["status"]["desiredReplicas"] == 4, what="it says 4")
        assert await yard.replicas() == 1
        await yard.edit(mode="act")
        await yard.until_replicas(4)


async def test_one_controller_leads_and_the_next_one_shrinks_nothing_at_first(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    loaded(exporter, 20.0)
    sources = exporter.sources(tmp_path)
    behavior = QUICK | {"scaleDown": {"lookBackSeconds": 15}}
    async with client_of(cluster) as client:
        path = paths.leases(labels.NAMESPACE, "berthmaster-scaler")

        async def holder() -> str:
            return str(json.loads(await client.get(path))["spec"]["holderIdentity"])

        async with AsyncExitStack() as second:
            async with controller(cluster, sources):
                await yard.autoscaler(behavior=behavior)
                await yard.until_replicas(4)
                await second.enter_async_context(controller(cluster, sources))
                first = await holder()
                starts = (await yard.read())["status"]["startTime"]["seconds"]
                await never(holder, lambda name: name != first, for_s=3, what="the first leads on")
                loaded(exporter, 0.0)
            await eventually(holder, lambda name: name not in ("", first), what="the other leads")
            await never(yard.replicas, lambda n: n != 4, for_s=9, what="nothing shrinks after a change of leader")
            await yard.until_replicas(1)
            assert (await yard.read())["status"]["startTime"]["seconds"][: len(starts)] == starts


async def test_an_idle_endpoint_sleeps_and_one_waiting_request_wakes_it(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    loaded(exporter, 0.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler(minReplicas=0, behavior=QUICK | {"periodSeconds": 20})
        await yard.until_replicas(0, within_s=60)
        await eventually(yard.pods, lambda pods: not pods, what="no pod")
        loaded(exporter, 0.0, queued=1.0)
        # Far sooner than the period: who waits wakes.
        await yard.until_replicas(1, within_s=6)


async def test_a_silent_source_takes_nothing_away_and_hinders_nobody(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    await yard.workload("other", replicas=4)
    async with FakeExporter() as silent:
        loaded(silent, 20.0, "other")
        loaded(exporter, 20.0)
        async with controller(cluster, exporter.sources(tmp_path, second=silent.url)):
            balancer = {"balancer": {"name": "second", "backend": "other"}}
            await yard.autoscaler("other", signals=balancer, behavior=QUICK)
            await yard.until_condition("Ready", "True", name="other")
            silent.is_silent = True
            told = await yard.until_condition("SignalsKnown", "False", name="other")
            assert told["message"]
            await yard.autoscaler()
            await yard.until_replicas(4)
            assert await yard.replicas("other") == 4


async def test_a_source_that_is_not_defined_is_named_and_asked_once_it_is(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler(signals={"balancer": {"name": "nowhere", "backend": "shop"}})
        told = await yard.until_condition("Ready", "False", "SourceFailed")
        assert "no balancer 'nowhere'" in told["message"]
        assert "main" in told["message"]
        loaded(exporter, 20.0)
        exporter.sources(tmp_path, name="nowhere")
        await yard.until_replicas(4)
        await yard.until_condition("Ready", "True")


async def test_the_list_reads_like_a_dashboard(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    exporter.say("shop", arrivals=20.0, in_flight=20.0)
    async with controller(cluster, exporter.sources(tmp_path)):
        await yard.autoscaler(targetConcurrency={"initial": 5})
        await yard.until_replicas(4)
        await eventually(yard.read, lambda ca: ca["status"].get("readyReplicas") == 4, what="4 are ready")
    head, line = kubectl(cluster, "-n", yard.namespace, "get", "ca").splitlines()
    assert head.split() == [
        "NAME",
        "TARGET",
        "READY",
        "DESIRED",
        "MIN",
        "MAX",
        "LOAD",
        "CONCURRENCY",
        "REASON",
        "MODE",
        "OK",
        "AGE",
    ]
    assert re.match(r"shop +shop +4 +4 +1 +20 +20 in flight, 20/s +5 .*\w+ +act +True ", line), line


async def test_the_last_hour_is_told_to_who_shows_the_token(
    cluster: Cluster, exporter: FakeExporter, yard: Yard, tmp_path: Path
) -> None:
    await yard.workload()
    loaded(exporter, 20.0)
    token = tmp_path / "history"
    token.write_text("for-the-history")
    async with (
        controller(cluster, exporter.sources(tmp_path), token=str(token)) as url,
        aiohttp.ClientSession() as http,
    ):
        await yard.autoscaler()
        await yard.until_replicas(4)
        where = f"{url}/v1/history/{yard.namespace}/shop"
        assert (await http.get(where)).status == 401
        shown = {"Authorization": "Bearer for-the-history"}
        answer = await http.get(where, headers=shown)
        told = from_json(await answer.read())
        assert told.autoscaler == f"{yard.namespace}/shop"
        assert 20.0 in told.history.seconds["in_flight"]
        assert 4.0 in told.history.decisions["desired"]
        assert (await http.get(f"{url}/v1/history/x/y", headers=shown)).status == 404
        metrics = await (await http.get(f"{url}/metrics")).text()
        assert "berthmaster_scaler_leader 1.0" in metrics
        assert 'berthmaster_scaler_scale_writes_total{outcome="set"} 1.0' in metrics


BERTHS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: berths.tests.example.com}
spec:
  group: tests.example.com
  scope: Namespaced
  names: {kind: Berth, plural: berths}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {replicas: {type: integer}}}
            status: {type: object, properties: {replicas: {type: integer}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scaler-of-berths, labels: {berthmaster.dev/aggregate-to-scaler: "true"}}
rules:
  - {apiGroups: [tests.example.com], resources: [berths/scale], verbs: [get, patch]}
"""
