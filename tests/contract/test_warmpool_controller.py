"""The warm pool's controller on a real API server, under its own account, with nodes that kwok keeps."""

from __future__ import annotations

import logging
import random
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import count

import msgspec
import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.clock import SystemClock
from fleet.draw import MissReason, format_draw, hit, miss
from fleet.kube import paths
from fleet.kube.claimer import Candidate, Claimer, Held
from tests.support.cluster import POLICED, StartCluster, client_of
from tests.support.eventually import eventually, never
from tests.support.warming import IMAGE, ControllerProcess, Dock, Object, controller, notes, taints

pytestmark = pytest.mark.contract
_NUMBERS = count(1)
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("warmpool", POLICED)
    yield cluster
    cluster.down()


@pytest.fixture
async def dock(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Dock]:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    async with client_of(cluster) as client, client_of(cluster, "planner") as planner:
        opened = Dock(client, f"{words[5:35].strip('-')}-{next(_NUMBERS)}", planner)
        yield opened
        await opened.clear()


def candidate(node: Object) -> Candidate:
    meta = node["metadata"]
    return Candidate(
        name=meta["name"],
        uid=meta["uid"],
        warm=notes(node).get(labels.WARM, ""),
        claim=notes(node).get(labels.CLAIM, ""),
    )


async def test_a_pool_fills_with_nodes_that_are_proven_warm(
    cluster: Cluster, dock: Dock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with controller(cluster):
            await dock.create()
            await dock.until_warm(2)
            told = await dock.until_told(wanted=2, warm=2, coming=0, nodes=2)
            await dock.until_condition("Ready", "True", "Acting")
            assert told["leadTime"]["count"] == 2
            for node in await dock.nodes():
                assert taints(node) == {labels.POOL}
                assert notes(node)[labels.WARM] == IMAGE
                (warm,) = (c for c in node["status"]["conditions"] if c["type"] == labels.WARM_CONDITION)
                assert (warm["status"], warm["reason"]) == ("True", "Proven")
            # Each node keeps a pod that holds the images, and it is nobody's user of the node.
            assert len(await dock.pullers()) == 2
            await never(dock.nodes, lambda nodes: len(nodes) != 2, for_s=2.0, what="two and no more")
    for record in caplog.records:
        # It runs with the rights of the manifests, and they were enough.
        assert record.levelno < logging.ERROR, record.getMessage()
        assert "forbidden" not in record.getMessage().lower()


async def test_an_image_that_vanishes_takes_the_node_out_until_it_is_back(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster):
        await dock.create(objective={"static": 1}, provider={"kind": "adopt"})
        body = {
            "metadata": {
                "name": dock.name,
                "labels": {labels.POOL: dock.name},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "status": {
                "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4"},
                "capacity": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4"},
            },
        }
        await dock.client.create(paths.NODES, msgspec.json.encode(body))

        async def tainted() -> set[str]:
            return taints((await dock.nodes())[0])

        readiness = f"{labels.READINESS_PREFIX}{dock.name}"
        await eventually(tainted, lambda keys: readiness in keys and labels.POOL in keys, what="closed while cold")
        await list_images(dock, [IMAGE])
        await dock.until_warm(1)
        await list_images(dock, [])
        await eventually(tainted, lambda keys: readiness in keys, what="closed as soon as the image is gone")
        await dock.until_told(warm=0, coming=1)
        (node,) = await dock.nodes()
        assert labels.WARM not in notes(node)
        await list_images(dock, [IMAGE])
        await dock.until_warm(1)


async def list_images(dock: Dock, images: list[str]) -> None:
    body = {"status": {"images": [{"names": [image], "sizeBytes": 1} for image in images]}}
    await dock.client.merge_patch(f"{paths.node(dock.name)}/status", msgspec.json.encode(body))


async def test_a_claim_orders_its_own_refill_and_a_lapsed_one_returns(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster), client_of(cluster, "planner") as planner:
        await dock.create()
        await dock.until_warm(2)
        claimer = Claimer(planner, lambda: uuid.uuid4().hex)
        held = await claimer.draw("set-1", ["uid-1"], [candidate((await dock.nodes())[0])], seconds=8)
        assert isinstance(held, Held)
        await dock.until_told(claimed=1)
        nodes = await dock.until_nodes(3)
        assert sum(labels.CLAIM in notes(node) for node in nodes) == 1
        await dock.until_warm(2)
        # Nobody came: the claim lapses, the node is warm again, and what is too much is given back.
        await dock.until_told(claimed=0, warm=2, nodes=2, within_s=60.0)
        assert len(await dock.until_nodes(2)) == 2
        assert await dock.records() == await dock.warm()


async def test_a_node_with_somebodys_pod_is_never_given_up(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster):
        await dock.create()
        first, _ = await dock.until_warm(2)
        await dock.place(f"{dock.name}-pod", first)
        await dock.until_told(serving=1, warm=2)
        await dock.edit(objective={"static": 0})
        nodes = await dock.until_nodes(1)
        assert nodes[0]["metadata"]["name"] == first
        assert labels.CLOSING not in notes(nodes[0])
        await never(dock.nodes, lambda nodes: len(nodes) != 1, for_s=3.0, what="the serving node stays")


async def test_draws_are_counted_once_whoever_counts(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster):
        await dock.create()
        first, _ = await dock.until_warm(2)
        await dock.place(f"{dock.name}-hit", first, format_draw(hit(dock.name, first)))
        await dock.place(f"{dock.name}-miss", first, format_draw(miss(dock.name, MissReason.NO_NODES)))

        async def counted() -> tuple[int, int]:
            told = (await dock.status())["hitRate"]
            return told["draws"], told["misses"]

        await eventually(counted, lambda seen: seen == (2, 1), what="two draws, one missed")
        await eventually(lambda: memory_of(dock), lambda data: bool(data.get("counted")), what="it is written down")
    async with controller(cluster):
        await dock.until_condition("Ready", "True")
        await never(counted, lambda seen: seen != (2, 1), for_s=4.0, what="nothing is counted anew")


async def test_who_misses_gets_a_node_of_its_own_and_the_learnt_size_tells_why(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster):
        await dock.create(objective={"hitRate": 0.95}, size={"min": 1, "max": 8}, idleHourCost=2.5)
        await dock.until_told(wanted=2, warm=2)  # the first day keeps two
        # Three pods of half a node each have missed and wait.
        for number in range(3):
            text = format_draw(miss(dock.name, MissReason.ON_THEIR_WAY))
            await dock.wait(f"{dock.name}-{number}", {"cpu": "16"}, text)
        told = await dock.until_told(wanted=4, nodes=4)
        assert told["lastDecision"]["reason"] == "FirstDay"
        assert told["hitRate"]["misses"] == 3
        assert "2 for pods that missed" in told["plan"]["message"]
        await dock.until_condition("HistorySuffices", "False", "TooLittleHistory")


async def memory_of(dock: Dock) -> Object:
    body = await dock.client.get(
        paths.config_maps(labels.PULL_NAMESPACE), {"labelSelector": f"{labels.POOL}={dock.name}"}
    )
    items = msgspec.json.decode(body)["items"]
    found: Object = next((item["data"] for item in items if "ledger" in item.get("data", {})), {})
    return found


async def test_to_observe_is_to_tell_and_to_touch_nothing(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster):
        await dock.create(mode="observe")
        told = await dock.until_told(wanted=2, warm=0)
        assert told["plan"]["orders"] == 2
        assert "would order 2" in told["plan"]["message"]
        await dock.until_condition("Ready", "True", "Observing")
        await never(dock.nodes, bool, for_s=3.0, what="no node")
        assert await dock.records() == []
        assert await dock.pullers() == []
        assert "finalizers" not in (await dock.read())["metadata"]


async def test_a_deleted_pool_goes_after_its_nodes(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster):
        await dock.create()
        first, _ = await dock.until_warm(2)
        await dock.place(f"{dock.name}-pod", first)
        await dock.until_told(serving=1)
        await dock.delete()
        await dock.until_nodes(1)
        assert not await dock.is_gone()
        await dock.client.delete(paths.pod("default", f"{dock.name}-pod"), grace_s=0)
        await eventually(dock.is_gone, within_s=40.0, what="the pool is gone")
        assert await dock.nodes() == []
        assert await dock.records() == []


async def test_no_capacity_is_told_and_not_stormed_against(cluster: Cluster, dock: Dock) -> None:
    async with controller(cluster, **{"kwok.shortage_ratio": 1.0}):
        await dock.create()
        await dock.until_condition("CapacityAvailable", "False", "InsufficientCapacity")
        seen: set[str] = set()

        async def orders() -> int:
            seen.update(await dock.records())
            return len(seen)

        await never(orders, lambda made: made > 4, for_s=8.0, what="a storm of orders")


async def test_an_agent_that_would_stay_away_is_named(cluster: Cluster, dock: Dock) -> None:
    tags = {"app": dock.name}
    agent = {
        "metadata": {"name": f"{dock.name}-device-plugin"},
        "spec": {
            "selector": {"matchLabels": tags},
            "template": {
                "metadata": {"labels": tags},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
            },
        },
    }
    path = "/apis/apps/v1/namespaces/default/daemonsets"
    async with controller(cluster):
        await dock.create(mode="observe")
        await dock.until_condition("AgentsTolerate", "True")
        await dock.client.create(path, msgspec.json.encode(agent))
        try:
            told = await dock.until_condition("AgentsTolerate", "False", "AgentsStayAway")
            assert f"default/{dock.name}-device-plugin" in told["message"]
        finally:
            await dock.client.delete(f"{path}/{dock.name}-device-plugin")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_any_time_it_leaves_no_taint_and_no_node_behind(
    cluster: Cluster, dock: Dock, seed: int
) -> None:
    draw = random.Random(seed)
    process = ControllerProcess(cluster)
    await process.start()
    try:
        await dock.create(objective={"static": 3})
        for wanted in (3, 1, 4):
            await dock.edit(objective={"static": wanted})
            # The lease is waited out (15 s), then it is killed in the middle of filling or emptying the pool.
            await eventually(dock.nodes, lambda nodes: bool(nodes), within_s=60.0, what="it began")
            await CLOCK.sleep(draw.uniform(0.0, 4.0))
            await process.kill()
            await process.start()
        names = await dock.until_warm(4, within_s=90.0)
        await eventually(dock.records, lambda records: records == names, what="no machine beyond the nodes")
        for node in await dock.nodes():
            assert taints(node) == {labels.POOL}
            assert labels.CLOSING not in notes(node)
        await dock.delete()
        await CLOCK.sleep(draw.uniform(0.0, 3.0))
        await process.kill()
        await process.start()
        await eventually(dock.is_gone, within_s=90.0, what="the pool is gone")
        assert (await dock.nodes(), await dock.records()) == ([], [])
    finally:
        await process.kill()
