"""Moves on a real cluster: a repack during load loses no replica and breaks no budget, and is taken up or undone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.clock import SystemClock
from fleet.kube.client import Client
from tests.support.cluster import StartCluster, add_nodes, client_of, kubectl
from tests.support.eventually import eventually, never
from tests.support.moving import Pier
from tests.support.quay import POOL

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
MANIFESTS = Path(__file__).parents[2] / "manifests"
_NUMBERS = itertools.count(1)
# pool: nodes of two devices each.
POOLS = {"load": 6, "kill": 6, "person": 2, "stateful": 2, "foreign": 2, "ours": 2, "rollout": 2, "several": 6}


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_SETTING_MOVES_MODE", "act")
        patch.setenv("BERTHMASTER_SETTING_MOVES_WAITS_S", "2")
        started = start_cluster("moves", Options(has_scaler=False))
    kubectl(started, "apply", "-k", str(MANIFESTS / "moves"))
    nodes = [
        replace(node, labels={POOL: pool})
        for pool, count in POOLS.items()
        for node in fake_nodes.uniform(count, is_sharing=True, prefix=pool, gpus=2, milli_cpu=32_000)
    ]
    asyncio.run(add_nodes(started, nodes))
    yield started
    started.down()


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with client_of(cluster) as opened:
        yield opened


@contextlib.asynccontextmanager
async def pier(client: Client, pool: str) -> AsyncIterator[Pier]:
    opened = Pier(client, f"{pool}-{next(_NUMBERS)}", pool)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


@contextlib.asynccontextmanager
async def watched(opened: Pier, replicas: int) -> AsyncIterator[None]:
    """See to it all the while that as many replicas serve as are wanted and that no device is given twice."""
    watch = asyncio.create_task(opened.watch(replicas))
    try:
        yield
        assert not watch.done(), watch.exception()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_a_repack_under_load_makes_room_and_no_replica_is_ever_missed(client: Client) -> None:
    async with pier(client, "load") as opened:
        await opened.lie_thinly(6)
        async with watched(opened, 6):
            await opened.want_pairs(3)
            await opened.until_placed(pairs=3, within_s=120.0)
            await opened.until_at_rest(within_s=60.0)
        assert await opened.count() == 6
        assert await opened.moved() >= 3
        assert await opened.events("Moved")


async def test_replicas_of_one_deployment_move_by_turns_though_its_budget_allows_three_and_none_undoes_another(
    client: Client,
) -> None:
    async with pier(client, "several") as opened:
        await opened.lie_thinly(6)
        await opened.budget(3)
        async with watched(opened, 6):
            await opened.want_pairs(3)
            await opened.until_placed(pairs=3, within_s=180.0)
            await opened.until_at_rest(within_s=60.0)
        assert await opened.count() == 6
        assert await opened.moved() >= 3
        for fault in ("NotMoved", "Overruled", "OwnerChanged", "OtherWent", "SuccessorMissing", "OthersLate"):
            assert not await opened.events(fault), fault


async def test_a_repack_through_kills_of_the_planner_ends_and_loses_nobody(cluster: Cluster, client: Client) -> None:
    draw = random.Random(7)
    async with pier(client, "kill") as opened:
        await opened.lie_thinly(6)
        async with watched(opened, 6):
            await opened.want_pairs(3)
            for _ in range(6):
                await CLOCK.sleep(draw.uniform(1.0, 6.0))
                await asyncio.to_thread(cluster.kill, "planner")
                await asyncio.to_thread(cluster.start, "planner")
            await opened.until_placed(pairs=3, within_s=240.0)
            await opened.until_at_rest(within_s=120.0)
        assert await opened.count() == 6


async def test_a_person_who_sets_another_count_has_the_last_word(client: Client) -> None:
    async with pier(client, "person") as opened:
        await opened.lie_thinly(2)
        await opened.want_pairs(1)
        await eventually(opened.marked, within_s=30.0, every_s=0.01, what="a move has begun")
        await opened.scale(1)
        await opened.until_at_rest(within_s=60.0)
        assert await opened.count() == 1
        await opened.until_placed(pairs=1, within_s=60.0)


async def test_a_stateful_replica_goes_first_and_only_under_a_budget(client: Client) -> None:
    async with pier(client, "stateful") as opened:
        await opened.lie_thinly(2, kind="StatefulSet")
        await opened.want_pairs(1)
        [note] = await eventually(lambda: opened.events("NotMoved"), within_s=40.0, what="a refusal is told")
        assert "NoDisruptionBudget" in note
        assert not await opened.marked()
        assert await opened.ready() == 2


async def test_a_stateful_replica_under_a_budget_goes_first_and_its_successor_has_the_seat(client: Client) -> None:
    async with pier(client, "stateful") as opened:
        await opened.lie_thinly(2, kind="StatefulSet")
        await opened.budget(1)
        await opened.want_pairs(1)
        await opened.until_placed(pairs=1, within_s=60.0)
        await opened.until_at_rest(within_s=60.0)
        assert await opened.moved() == 1
        assert await opened.ready() == 2


async def test_under_a_foreign_autoscaler_a_replica_goes_first_as_its_budget_allows(client: Client) -> None:
    async with pier(client, "foreign") as opened:
        await opened.lie_thinly(2)
        await opened.budget(1)
        await opened.rival()
        await opened.want_pairs(1)
        await opened.until_placed(pairs=1, within_s=60.0)
        await opened.until_at_rest(within_s=60.0)
        assert await opened.moved() == 1
        assert await opened.ready() == 2
        assert await opened.count() == 2


async def test_under_our_autoscaler_the_scaler_is_asked_and_the_planner_may_write_nothing_else(
    cluster: Cluster, client: Client
) -> None:
    async with pier(client, "ours") as opened, client_of(cluster, "planner") as planner:
        await opened.lie_thinly(2)
        await opened.autoscaler()
        follow = asyncio.create_task(opened.follow_surge(2))
        try:
            async with watched(opened, 2):
                await opened.want_pairs(1)
                await opened.until_placed(pairs=1, within_s=60.0)
                await opened.until_at_rest(within_s=60.0)
            assert await opened.count() == 2
            assert await opened.moved() == 1
            assert await opened.surge() == ""
        finally:
            follow.cancel()
        await opened.refuses_more(planner)


async def test_a_roll_out_ends_a_move(client: Client) -> None:
    async with pier(client, "rollout") as opened:
        await opened.lie_thinly(2)
        await opened.want_pairs(1)
        await eventually(opened.marked, within_s=30.0, every_s=0.01, what="a move has begun")
        await opened.roll_out()
        await opened.until_at_rest(within_s=90.0)
        assert await opened.count() == 2
        await eventually(opened.ready, lambda ready: ready == 2, within_s=60.0, what="both replicas serve")


def notes(pod: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations", {})
    return found


async def test_nobody_else_may_say_that_a_pod_moves(client: Client) -> None:
    async with pier(client, "person") as opened:
        await opened.lie_thinly(1)
        [pod] = await opened.replicas()
        assert labels.MOVING_TO not in notes(pod)
        await opened.is_forbidden(pod["metadata"]["name"], labels.MOVING_TO, "n=0")
        await never(opened.marked, bool, for_s=0.2)
