"""Moves of pods with resource claims on a real cluster: the successor's own claim has a device before the pod goes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet.clock import SystemClock
from tests.support import dra
from tests.support.cluster import StartCluster, add_nodes, client_of, kubectl
from tests.support.moving import Pier, is_ready
from tests.support.quay import POOL

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
MANIFESTS = Path(__file__).parents[2] / "manifests"
_NUMBERS = itertools.count(1)


class ClaimPier(Pier):
    """Replicas that ask their devices by claims of their own, made from templates."""

    def _workload(self, name: str, replicas: int, gpus: int, *, cpu: str = "1") -> dict[str, Any]:
        found = super()._workload(name, replicas, gpus, cpu=cpu)
        spec = found["spec"]["template"]["spec"]
        spec["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "claims": [{"name": "dev"}]}
        spec["resourceClaims"] = [{"name": "dev", "resourceClaimTemplateName": f"of-{gpus}"}]
        return found


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_SETTING_MOVES_MODE", "act")
        patch.setenv("BERTHMASTER_SETTING_MOVES_WAITS_S", "2")
        patch.setenv("BERTHMASTER_SETTING_HAND_OVER_AFTER_S", "3600")
        started = start_cluster("claimmoves", Options(has_scaler=False, has_warmpool=False))
    kubectl(started, "apply", "-k", str(MANIFESTS / "moves"))
    yield started
    started.down()


@contextlib.asynccontextmanager
async def pier(cluster: Cluster, nodes: int) -> AsyncIterator[tuple[ClaimPier, dra.Pier]]:
    """A namespace with nodes of its own, each with two devices for claims, and templates of one and two."""
    name = f"claimmoves-{next(_NUMBERS)}"
    made = fake_nodes.uniform(nodes, is_sharing=False, prefix=name, gpus=0, milli_cpu=32_000)
    await add_nodes(cluster, [replace(node, labels={POOL: name}) for node in made])
    async with client_of(cluster) as client:
        opened = ClaimPier(client, name, name)
        await opened.open()
        devices = dra.Pier(opened)
        await devices.open()
        for node in made:
            await devices.publish(node.name, [dra.device(f"d{i}") for i in range(2)])
        for count in (1, 2):
            await devices.add_template(f"of-{count}", [dra.request("gpu", devices.device_class, count=count)])
        try:
            yield opened, devices
        finally:
            await opened.close()
            await devices.close()
            for node in made:
                await client.delete(f"/api/v1/nodes/{node.name}")


async def held(devices: dra.Pier) -> Counter[tuple[str, str]]:
    """Return how many claims have each device."""
    return Counter(
        (result["pool"], result["device"])
        for claim in await devices.claims()
        for result in dra.allocation_of(claim).get("devices", {}).get("results", [])
    )


@contextlib.asynccontextmanager
async def watched(opened: ClaimPier, devices: dra.Pier, replicas: int) -> AsyncIterator[None]:
    """See to it all the while that as many replicas serve as are wanted and that no device is given twice."""

    async def look() -> None:
        while True:
            assert max((await held(devices)).values(), default=0) <= 1
            assert sum(map(is_ready, await opened.replicas())) >= replicas
            await CLOCK.sleep(0.05)

    watch = asyncio.create_task(look())
    try:
        yield
        assert not watch.done(), watch.exception()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_a_replica_moves_with_a_claim_of_its_own_and_the_pair_gets_the_devices(cluster: Cluster) -> None:
    async with pier(cluster, 2) as (opened, devices):
        await opened.lie_thinly(2)
        async with watched(opened, devices, 2):
            await opened.want_pairs(1)
            await opened.until_placed(pairs=1, within_s=120.0)
            await opened.until_at_rest(within_s=90.0)
        assert await opened.count() == 2
        assert await opened.moved() == 1
        assert await opened.events("Moved")
        assert sum((await held(devices)).values()) == 4


async def test_a_move_with_claims_through_kills_of_the_planner_gives_no_device_twice(cluster: Cluster) -> None:
    draw = random.Random(11)
    async with pier(cluster, 4) as (opened, devices):
        await opened.lie_thinly(4)
        async with watched(opened, devices, 4):
            await opened.want_pairs(2)
            for _ in range(4):
                await CLOCK.sleep(draw.uniform(1.0, 6.0))
                await asyncio.to_thread(cluster.kill, "planner")
                await asyncio.to_thread(cluster.start, "planner")
            await opened.until_placed(pairs=2, within_s=240.0)
            await opened.until_at_rest(within_s=120.0)
        assert await opened.count() == 4
