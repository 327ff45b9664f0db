"""explain autoscaler, top and replay against a real API server and a controller that scales on it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from fleet.clock import SystemClock
from tests.support.autoscaling import Yard, controller
from tests.support.cluster import POLICED, StartCluster, add_nodes, client_of
from tests.support.eventually import eventually
from tests.support.exporter import FakeExporter

pytestmark = pytest.mark.contract
NAMESPACE = "told"


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("told", POLICED)
    asyncio.run(add_nodes(cluster, fake_nodes.uniform(2, is_sharing=False, gpus=0)))
    yield cluster
    cluster.down()


@pytest.fixture
async def yard(cluster: Cluster) -> AsyncIterator[Yard]:
    async with client_of(cluster) as client:
        opened = Yard(client, NAMESPACE)
        await opened.open()
        yield opened
        await opened.close()


async def ask(*arguments: str, expected: int = 0) -> str:
    """Run the command as a person does, beside the controller in this loop, and return what it prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "berthmaster", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == expected, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout if expected == 0 else done.stderr


async def test_what_a_person_asks_while_it_scales(cluster: Cluster, yard: Yard, tmp_path: Path) -> None:
    at = f"--kubeconfig={cluster.kubeconfig}"
    token = tmp_path / "readers-token"
    token.write_text("of-the-readers\n")
    async with FakeExporter(token="of-the-exporter") as exporter:
        await yard.workload()
        exporter.say("shop", arrivals=20.0, in_flight=20.0)
        async with controller(cluster, exporter.sources(tmp_path), token=str(token)) as url:
            await yard.autoscaler()
            await yard.until_replicas(4)
            await yard.until_condition("Ready", "True", "Acting")

            async def explained() -> str:
                return await ask("explain", "autoscaler", f"{NAMESPACE}/shop", at)

            text = await eventually(explained, lambda told: "4 ready, 0 starting" in told, what="4 ready are told")
            for words in (
                "scales Deployment shop between 1 and 20 replicas; mode act",
                "20 requests in progress, 0 queued, 20 requests/s",
                "1 -> 4",
                "this means:",
                "5 in progress are aimed at",
                "Ready True: Acting",
            ):
                assert words in text
            found = json.loads(await ask("explain", "autoscaler", "shop", "-n", NAMESPACE, at, "--json"))
            assert found["status"]["readyReplicas"] == 4
            assert found["meanings"]

            missing = await ask("explain", "autoscaler", "shop", at, expected=1)
            assert f"no ConcurrencyAutoscaler default/shop; there is one in namespace {NAMESPACE}" in missing

            (row,) = json.loads(await ask("top", at, "--json"))["autoscalers"]
            assert (row["autoscaler"], row["ready"], row["desired"], row["target"]) == (f"{NAMESPACE}/shop", 4, 4, 5)
            assert row["is_well"]
            assert f"{NAMESPACE}/shop" in await ask("top", "--once", at)

            await SystemClock().sleep(62.0)  # a replay needs a minute of seconds
            saved = tmp_path / "history.json"
            asked = ("replay", f"{NAMESPACE}/shop", "--url", url, "--token-file", str(token))
            told = json.loads(await ask(*asked, "--set", "maxReplicas=2", "--save", str(saved), "--json"))
            assert told["autoscaler"] == f"{NAMESPACE}/shop"
            assert max(told["replicas_was"]) == told["outcomes"]["was"]["peak_replicas"] >= 4
            assert told["outcomes"]["would"]["replica_s"] < told["outcomes"]["was"]["replica_s"]
            assert "nothing is known of" in await ask("replay", "x/y", *asked[2:], expected=1)
            assert "a bearer token is needed" in await ask(*asked[:4], expected=1)
    again = json.loads(await ask("replay", "--file", str(saved), "--json"))
    assert again["outcomes"]["was"] == told["outcomes"]["was"]
