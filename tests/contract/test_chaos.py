"""A minute of bench.chaos: two leaders lost, the API server, nodes and devices, and nothing found wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.chaos.story import Script, play
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.progress import Silent
from fleet.clock import SystemClock
from tests.support.cluster import StartCluster, client_of

pytestmark = [pytest.mark.contract, pytest.mark.slow]

ACCIDENTS = (
    "leader killed",
    "API server killed",
    "extender killed",
    "several nodes vanish",
    "device dies",
    "strangers are bound past everybody",
)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("breaking", Options(has_scaler=False, has_warmpool=False))
    yield started
    started.down()


@pytest.mark.timeout(420)
async def test_nothing_is_given_twice_torn_or_lost_while_everything_breaks(cluster: Cluster) -> None:
    script = Script(seconds=70.0, seed=5, every_s=4.0, scale=1, accidents=ACCIDENTS)
    async with client_of(cluster) as client:
        found = await play(cluster, client, SystemClock(), script, Silent())
    # How long somebody waits with room is a matter of the machine's load as well; the bench judges that.
    first = found["found_first"]
    assert (first["over-allocated"], first["torn gangs"], first["lost pods"]) == ([], [], [])
    assert found["counts"]["bindings"] > 50
    assert sum(found["accidents"].values()) >= 3
