"""Real requests through a real HAProxy to replica processes, scaled by the real controller over a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from berthmaster.demo.scaling import Moment, Phase, Story, perform
from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet.clock import SystemClock
from tests.support.cluster import StartCluster, add_nodes, client_of

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.timeout(420)]

STORY = Story(
    phases=(
        Phase(from_s=0, rate_rps=20, about="steady"),
        Phase(from_s=32, rate_rps=200, about="ten times as much"),
        Phase(from_s=72, rate_rps=10, about="quiet"),
    ),
    end_s=110.0,
)


@pytest.fixture
def waters(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster = start_cluster("traffic", Options(has_extender=False, has_planner=False, has_warmpool=False))
    asyncio.run(add_nodes(cluster, fake_nodes.uniform(1, is_sharing=False, gpus=0, prefix="traffic")))
    yield cluster
    cluster.down()


async def test_both_axes_act_a_step_is_absorbed_and_nothing_is_lost_from_first_replica_to_sleep_and_back(
    waters: Cluster, tmp_path: Path
) -> None:
    moments: list[Moment] = []
    async with client_of(waters) as client:
        outcome = await perform(waters, client, SystemClock(), tmp_path, STORY, moments.append)
    tally = outcome.tally
    assert tally.accounted == tally.due == len(STORY.schedule())
    assert not outcome.lost, f"answered {tally.answered}, lost {tally.lost}, woken {outcome.woken.answered}"
    # The horizontal axis: more replicas within seconds of the step, fewer afterwards, none at last.
    assert outcome.most_serving >= 3
    assert outcome.step_s is not None
    assert outcome.step_s <= 30
    at_end = [moment.serving for moment in moments if moment.elapsed_s <= STORY.end_s][-1]
    assert at_end < outcome.most_serving
    assert outcome.asleep_s is not None
    assert outcome.woken.good == outcome.woken.due
    # The vertical axis: the wrong first guess was raised, and the bound per replica with it.
    assert outcome.learnt is not None
    assert outcome.learnt > 1.5 * outcome.first_target / 0.7
    decisions = [moment.autoscaler.status.last_decision for moment in moments]
    reasons = {decision.reason for decision in decisions if decision is not None}
    assert "Idle" in reasons
    assert reasons & {"Demand", "ShadowFleet", "Backlog"}
