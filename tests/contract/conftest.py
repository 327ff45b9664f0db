"""The cluster that all tests of the planner share, and each test's corner of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import count

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet.kube.client import Client
from tests.support.cluster import StartCluster, add_nodes, client_of
from tests.support.dra import Pier, pier_of
from tests.support.quay import POOL, Quay

HAND_OVER_S = 2
_NUMBERS = count(1)
# pool: (nodes, shares and chosen devices?, GPUs of each, cores of each)
POOLS = {
    "deploy": (2, True, 4, 32),
    "steer": (3, True, 2, 32),
    "classic": (1, False, 4, 32),
    "tight": (1, True, 1, 8),
    "repair": (2, True, 2, 32),
    "room": (1, True, 1, 8),
    "full": (1, False, 2, 8),
    "plain": (2, False, 0, 8),
    "shown": (2, True, 2, 16),
}


@pytest.fixture(scope="session")
def harbour(start_cluster: StartCluster) -> Iterator[Cluster]:
    """One control plane with policies, planner and extender, and with nodes in pools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_SETTING_HAND_OVER_AFTER_S", str(HAND_OVER_S))
        cluster = start_cluster("planner", Options())
    nodes = [
        replace(node, labels={POOL: pool})
        for pool, (count, is_sharing, gpus, cores) in POOLS.items()
        for node in fake_nodes.uniform(
            count, is_sharing=is_sharing, prefix=pool, gpus=gpus, model="G2", milli_cpu=1000 * cores
        )
    ]
    asyncio.run(add_nodes(cluster, nodes))
    yield cluster
    cluster.down()


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    """The administrator's client of the cluster that a module calls `cluster`."""
    async with client_of(cluster) as client:
        yield client


@pytest.fixture
async def quay(harbour: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Quay]:
    """A managed namespace named for the test, its pods selecting the pool `deploy` unless the test says otherwise."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    name = f"{words[:40].strip('-')}-{next(_NUMBERS)}"
    async with client_of(harbour) as client:
        opened = Quay(client, name, "deploy")
        await opened.open()
        yield opened
        await opened.close()


@pytest.fixture(scope="session")
def claims_cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    """One control plane with policies, planner and extender for all tests of resource claims; nodes are their own."""
    started = start_cluster("claims", Options())
    yield started
    started.down()


@pytest.fixture
async def pier(claims_cluster: Cluster) -> AsyncIterator[Pier]:
    """A namespace of the test's own, with two nodes of 8 cores that have its name."""
    name = f"claims-{next(_NUMBERS)}"
    nodes = fake_nodes.uniform(2, is_sharing=False, prefix=name, gpus=0, milli_cpu=8000)
    async with pier_of(claims_cluster, name, nodes) as opened:
        yield opened
