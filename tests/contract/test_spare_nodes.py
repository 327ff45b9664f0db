"""After a peak, replicas lie thinly on a pool's nodes: planner and pool pack them together, and nodes go back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from itertools import count

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import NotFound
from fleet.kube import paths
from tests.support.cluster import StartCluster, add_nodes
from tests.support.eventually import eventually
from tests.support.warming import Object, notes
from tests.support.yard import Yard, opened, two_gpus

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE", "200")
        patch.setenv("BERTHMASTER_SETTING_SPARE_AFTER_S", "6")
        started = start_cluster("thin", Options(has_scaler=False))
    asyncio.run(add_nodes(started, fake_nodes.uniform(1, is_sharing=False, prefix="plain", gpus=0)))
    yield started
    started.down()


@pytest.fixture
async def yard(cluster: Cluster) -> AsyncIterator[Yard]:
    async with opened(cluster, f"thin-{next(_NUMBERS)}") as yard:
        yield yard


async def budget(yard: Yard, least: int) -> None:
    body = {
        "metadata": {"name": "llm"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": yard.name}}},
    }
    path = f"/apis/policy/v1/namespaces/{yard.name}/poddisruptionbudgets"
    await yard.client.create(path, json.dumps(body).encode())


async def thin_out(yard: Yard) -> None:
    """See to it that a shrink takes one replica of every node with two first."""
    by_node: dict[str, list[str]] = {}
    for pod in await yard.pods():
        by_node.setdefault(pod["spec"]["nodeName"], []).append(pod["metadata"]["name"])
    note = json.dumps({"metadata": {"annotations": {labels.POD_DELETION_COST: "-1"}}}).encode()
    for names in by_node.values():
        if len(names) > 1:
            await yard.client.merge_patch(paths.pod(yard.name, names[0]), note)


def ready(pods: list[Object]) -> int:
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))
        and not is_going(pod)
        for pod in pods
    )


async def watch_ready(yard: Yard, seen: list[int]) -> None:
    """Note how many replicas are Ready, and see to it that no node of two devices holds three of them."""
    while True:
        pods = await yard.pods()
        held: dict[str, int] = {}
        for pod in pods:
            name = pod["spec"].get("nodeName", "")
            if name:
                held[name] = held.get(name, 0) + 1
        assert max(held.values(), default=0) <= 2, held
        seen.append(ready(pods))
        await CLOCK.sleep(0.1)


async def test_thin_nodes_are_marked_emptied_and_released_and_the_budget_of_the_service_holds(yard: Yard) -> None:
    await yard.create(**two_gpus(objective={"static": 1}))
    await yard.until_warm(1)
    await yard.deploy(12)
    await yard.until_bound(12)
    await yard.until_told(serving=6, warm=1, within_s=60.0)
    await budget(yard, 5)
    await thin_out(yard)
    await yard.scale(6)
    pods = await yard.until_bound(6)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 6
    seen: list[int] = []
    watch = asyncio.create_task(watch_ready(yard, seen))
    try:
        await yard.until_told(serving=3, warm=1, nodes=4, within_s=150.0)
        assert not watch.done(), watch.exception()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    assert min(seen) >= 5
    pods = await yard.until_bound(6)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    nodes = await yard.until_nodes(4)
    await eventually(
        yard.nodes,
        lambda nodes: not any(labels.SPARE in notes(node) for node in nodes),
        within_s=20.0,
        what="no mark is left",
    )
    assert len(await yard.records()) == len(nodes)
    told = await spare_events(yard)
    assert any("fit elsewhere" in text for text in told)


async def test_a_budget_that_lets_nobody_go_keeps_the_nodes(yard: Yard) -> None:
    await yard.create(**two_gpus(objective={"static": 0}, size={"max": 2}))
    await yard.deploy(3)
    await yard.until_bound(3)
    await budget(yard, 2)
    await thin_out(yard)
    await yard.scale(2)
    await yard.until_bound(2)
    for _ in range(60):
        assert not any(labels.SPARE in notes(node) for node in await yard.nodes())
        await CLOCK.sleep(0.25)


async def test_a_node_that_is_wanted_again_is_opened_again(yard: Yard) -> None:
    """A pod that takes long to end keeps a spare node closed; a replica that needs the room gets it back."""
    await yard.create(**two_gpus(objective={"static": 0}, size={"max": 2}))
    await yard.deploy(3)
    await yard.until_bound(3)
    await thin_out(yard)
    await yard.scale(2)
    slow = [pod["metadata"]["name"] for pod in await yard.until_bound(2)]
    for name in slow:
        await hold_back(yard, name, is_held=True)
    try:
        await eventually(
            yard.nodes,
            lambda nodes: any(node["spec"].get("unschedulable") and labels.SPARE in notes(node) for node in nodes),
            within_s=60.0,
            what="a spare node is closed",
        )
        await eventually(
            yard.pods, lambda pods: sum(map(is_going, pods)) == 1, within_s=30.0, what="a replica is moved off it"
        )
        await yard.scale(3)
        await eventually(
            yard.pods,
            lambda pods: sum(bool(pod["spec"].get("nodeName")) and not is_going(pod) for pod in pods) == 3,
            within_s=60.0,
            what="a third replica has room again",
        )
        nodes = await yard.until_nodes(2)
        assert not any(node["spec"].get("unschedulable") or labels.SPARE in notes(node) for node in nodes)
    finally:
        for name in slow:
            await hold_back(yard, name, is_held=False)


async def hold_back(yard: Yard, name: str, *, is_held: bool) -> None:
    """Keep the object of a pod that is deleted, as a process does that takes long to end."""
    finalizers = ["tests.example.com/slow"] if is_held else None
    with contextlib.suppress(NotFound):
        body = json.dumps({"metadata": {"finalizers": finalizers}}).encode()
        await yard.client.merge_patch(paths.pod(yard.name, name), body)


def is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


async def spare_events(yard: Yard) -> list[str]:
    body = await yard.client.get(paths.events("default"))
    return [item.get("note", "") for item in msgspec.json.decode(body)["items"] if item.get("reason") == "NodeSpare"]
