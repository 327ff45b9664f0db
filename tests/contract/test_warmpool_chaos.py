"""Draws on the real control plane while one process after the other is killed; see bench.warmpool_draws for more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from bench.warmpool_draws.ground import Basin, lay
from bench.warmpool_draws.kills import Kills
from bench.warmpool_draws.load import Demand
from bench.warmpool_draws.story import draw_through, end, warm
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet.clock import SystemClock
from tests.support.cluster import StartCluster, client_of
from tests.support.warm_watch import Observer

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
DRAWS = 60
KILLS, KILL_EVERY_S = 5, 3.5
# Two leaders lost one after the other, a lease of 15 s each, and a look.
LATE_S = 45.0
SINGLE = Basin(name="single", gpus=1, objective={"static": 10}, most_nodes=60)
DOUBLE = Basin(name="double", gpus=2, objective={"static": 4}, most_nodes=40)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE", "200")
        started = start_cluster("chaos", Options(has_scaler=False))
        yield started
    started.down()


@pytest.mark.timeout(420)
async def test_no_node_is_drawn_twice_leaked_or_left_tainted_whoever_is_killed(cluster: Cluster) -> None:
    draw, basins = random.Random(11), (SINGLE, DOUBLE)
    # With this seed both leaders die first, so that the time until they are followed is spent once.
    kills = Kills(cluster, CLOCK, random.Random(393))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(cluster))
        watching = Observer(client, CLOCK, [basin.name for basin in basins]).watching()
        observer = await stack.enter_async_context(watching)
        workloads = {basin.name: await lay(client, basin) for basin in basins}
        for basin in basins:
            assert await warm(client, CLOCK, basin, basin.objective["static"], 60.0) is not None
        await stack.enter_async_context(kills.second_replicas())
        took_s = await draw_through(
            observer,
            {SINGLE.name: Demand(batches_per_s=1.0, life_s=5.0), DOUBLE.name: Demand(batches_per_s=0.6, life_s=5.0)},
            workloads,
            kills,
            draws=DRAWS,
            kill_every_s=KILL_EVERY_S,
            most_kills=KILLS,
            within_s=180.0,
            clock=CLOCK,
            draw=draw,
        )
        assert took_s is not None, f"{observer.answered} of {DRAWS} draws answered"
        ended = await end(client, observer, list(workloads.values()), CLOCK, within_s=120.0)
    assert observer.lists == 2, "events were missed"
    assert [str(fault) for fault in observer.faults([basin.truth for basin in basins], late_s=LATE_S)] == []
    assert len(kills.done) >= 4
    assert {"warmpool", "planner"} <= {name for _, name in kills.done}
    assert ended.soiled == ()
    assert ended.left == ()
    answered = [life for life in observer.lives.values() if life.is_answered]
    assert sum(life.outcome == "hit" for life in answered) > len(answered) / 4
