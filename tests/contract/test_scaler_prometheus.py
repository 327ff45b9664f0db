"""The scaler's controller between a real API server and a real Prometheus: load by queries, and what pods use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from tests.support.autoscaling import Object, Yard, controller
from tests.support.cluster import StartCluster, add_nodes, client_of
from tests.support.eventually import eventually, never
from tests.support.exporter import FakeExporter, a_server
from tests.support.prometheus import PrometheusProcess, Target, a_prometheus, a_target

pytestmark = pytest.mark.contract

BY_QUERIES = {"prometheus": {"name": "default", "inFlight": "sum(gateway_in_flight)", "queued": "sum(gateway_queued)"}}


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("scaler-prometheus", Options(has_extender=False, has_planner=False, has_scaler=False))
    asyncio.run(add_nodes(cluster, fake_nodes.uniform(2, is_sharing=False, gpus=0)))
    yield cluster
    cluster.down()


@asynccontextmanager
async def a_yard(cluster: Cluster, name: str) -> AsyncIterator[Yard]:
    async with client_of(cluster) as client:
        yard = Yard(client, name)
        await yard.open()
        yield yard
        await yard.close()


@asynccontextmanager
async def measured(folder: Path) -> AsyncIterator[tuple[Target, PrometheusProcess]]:
    async with a_target() as target, a_prometheus(folder, {"pods": (target, {})}) as prometheus:
        yield target, prometheus


def sources(folder: Path, prometheus: PrometheusProcess, exporter: FakeExporter | None = None) -> str:
    balancers = f"{{main: {{url: {exporter.url}}}}}" if exporter else "{}"
    path = folder / "sources.yaml"
    path.write_text(f"balancers: {balancers}\nprometheus: {{default: {{url: {prometheus.url}}}}}\n")
    return str(path)


def gateway(in_flight: float, queued: float = 0.0) -> str:
    return f"gateway_in_flight {in_flight}\ngateway_queued {queued}\n"


async def test_load_that_people_measure_themselves_scales_and_its_loss_takes_nothing_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with a_yard(cluster, "by-queries") as yard, measured(tmp_path) as (target, prometheus):
        target.text = gateway(20.0)
        await yard.workload()
        async with controller(cluster, sources(tmp_path, prometheus)):
            await yard.autoscaler(signals=BY_QUERIES)
            await yard.until_replicas(4, within_s=40)
            await yard.until_condition("Ready", "True", "Acting")
            target.text = "gateway_in_flight NaN\n"  # Prometheus answers, and knows nothing: missing is not zero
            told = await yard.until_condition("SignalsKnown", "False")
            assert "inFlight" in told["message"] or "in_flight" in told["message"]
            await prometheus.freeze()
            await never(yard.replicas, lambda n: n != 4, for_s=8, what="what is not known takes nothing away")
            prometheus.thaw()
            target.text = gateway(30.0)
            await yard.until_replicas(6, within_s=40)


async def test_the_memory_of_pods_reaches_what_is_learnt(cluster: Cluster, tmp_path: Path) -> None:
    """Balancer for the load, cAdvisor's names for the memory: 96 % of it is too full, whatever latency says."""
    async with (
        a_yard(cluster, "by-memory") as yard,
        measured(tmp_path) as (target, prometheus),
        FakeExporter() as exporter,
    ):
        await yard.workload(replicas=2)
        pods = await eventually(yard.pods, lambda pods: len(pods) == 2)
        names = [pod["metadata"]["name"] for pod in pods]
        target.text = "".join(container(yard.namespace, name, used=960) for name in names)
        exporter.servers = lambda backend: [
            a_server(name, in_flight=4.0, completions=8.0, errors=0.0, latency_mean_s=0.5, latency_p95_s=0.6)
            for name in names
        ]
        exporter.say("shop", arrivals=16.0, in_flight=8.0)
        async with controller(cluster, sources(tmp_path, prometheus, exporter)):
            await yard.autoscaler(targetConcurrency={"initial": 4})

            async def learnt() -> Object:
                return (await yard.read()).get("status", {}).get("target", {})

            target_told = await eventually(
                learnt, lambda told: told.get("reason") == "Memory", within_s=100, every_s=1.0, what="memory binds"
            )
            assert target_told["numbers"]["memory_ratio"] == pytest.approx(0.96)
            assert target_told["learnt"] < 4 / 0.7


def container(namespace: str, pod: str, used: float) -> str:
    named = f'{{namespace="{namespace}",pod="{pod}",container="main"}}'
    return f"container_memory_working_set_bytes{named} {used}\ncontainer_spec_memory_limit_bytes{named} 1000\n"
