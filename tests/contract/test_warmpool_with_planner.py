"""Planner and warm pool together on a real cluster: bursts find warm nodes, misses get theirs, bills fall again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.clock import SystemClock
from fleet.draw import parse_draw
from tests.support.cluster import StartCluster, add_nodes
from tests.support.eventually import eventually
from tests.support.warming import Object, notes, taints
from tests.support.yard import Yard, one_gpu, opened

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE", "200")
        started = start_cluster("harbour", Options(has_scaler=False))
    asyncio.run(add_nodes(started, fake_nodes.uniform(1, is_sharing=False, prefix="plain", gpus=0)))
    yield started
    started.down()


@pytest.fixture
async def yard(cluster: Cluster) -> AsyncIterator[Yard]:
    async with opened(cluster, f"llm-{next(_NUMBERS)}") as yard:
        yield yard


async def test_a_burst_finds_warm_nodes_a_larger_one_is_owned_and_the_bill_falls_again(
    cluster: Cluster, yard: Yard
) -> None:
    await yard.create(**one_gpu(objective={"static": 3}))
    warm = await yard.until_warm(3)
    await yard.deploy(3)
    pods = await yard.until_bound(3)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(warm)
    assert all(draw_of(pod).is_hit for pod in pods)
    await yard.until_warm(3)
    await yard.scale(9)
    pods = await yard.until_bound(9)
    outcomes = [draw_of(pod).is_hit for pod in pods]
    assert outcomes.count(True) == 6
    told = await eventually(
        yard.status, lambda told: told["hitRate"]["draws"] == 9, within_s=20.0, what="nine draws are told"
    )
    assert told["hitRate"]["misses"] == 3
    await yard.until_told(serving=9, warm=3, nodes=12, within_s=40.0)
    await yard.scale(1)
    await yard.until_told(serving=1, warm=3, nodes=4, within_s=60.0)
    await yard.until_nodes(4)
    assert len(await yard.records()) == 4


def draw_of(pod: Object) -> Any:
    return parse_draw(pod["metadata"]["annotations"][labels.DRAW])


OURS = ("planner", "warmpool", "extender")
# A thousand, with a watcher of every event, are drawn by `python -m bench.warmpool_draws`.
DRAWS = 100


@pytest.mark.timeout(600)
async def test_a_hundred_draws_through_kills_of_our_processes(cluster: Cluster, yard: Yard) -> None:
    draw = random.Random(5)
    await yard.create(**one_gpu(objective={"static": 10}, size={"max": 100}))
    await yard.until_warm(10, within_s=60.0)
    await yard.deploy(0)
    begun_s, noted = CLOCK.monotonic_s(), set[str]()
    watch = asyncio.create_task(watch_pods(yard, noted))
    try:
        while len(noted) < DRAWS:
            step = draw.randint(20, 60)
            await yard.scale(step)
            if draw.random() < 0.25:
                victim = draw.choice(OURS)
                await asyncio.to_thread(cluster.kill, victim)
                await asyncio.to_thread(cluster.start, victim)
            await yard.until_bound(step, within_s=120.0)
            left = draw.randint(0, step // 4)
            await yard.scale(left)
            # Until the pool has seen that nodes are empty, they are serving ones with room, and no draws.
            await yard.until_told(serving=left, within_s=60.0)
            assert not watch.done(), watch.exception()
        await yard.scale(0)
        await yard.until_told(serving=0, claimed=0, warm=10, nodes=10, within_s=120.0)
        names = await yard.until_warm(10, within_s=60.0)
        assert await yard.records() == names
        for node in await yard.nodes():
            assert taints(node) == {labels.POOL}
            assert labels.CLAIM not in notes(node)
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
    told = (await yard.status())["hitRate"]
    print(f"{len(noted)} draws in {CLOCK.monotonic_s() - begun_s:.0f} s, {told['draws']} counted, {told['summary']}")
    # None is counted twice. Here pods live for seconds: those that come and go while nobody leads are not seen at all.
    assert 0.5 * len(noted) <= told["draws"] <= 1.02 * len(noted)


async def watch_pods(yard: Yard, noted: set[str]) -> None:
    """Note the draws, and see to it that no node of one device holds two replicas at any time."""
    while True:
        held: dict[str, int] = {}
        for pod in await yard.pods():
            meta = pod["metadata"]
            if labels.DRAW in meta.get("annotations", {}):
                noted.add(meta["uid"])
            name = pod["spec"].get("nodeName", "")
            if name and "deletionTimestamp" not in meta:
                held[name] = held.get(name, 0) + 1
        assert max(held.values(), default=0) <= 1, held
        await CLOCK.sleep(0.2)
