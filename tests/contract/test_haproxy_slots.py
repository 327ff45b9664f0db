"""Replicas come and go behind a real HAProxy, which is never reloaded, and no request is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from berthmaster.traffic.arrivals import poisson, steps
from berthmaster.traffic.generator import run_load
from berthmaster.traffic.haproxy import BackendPlan, HaproxyProcess
from berthmaster.traffic.tally import Tally
from fleet.errors import LocalClusterError
from tests.support.eventually import eventually
from tests.support.haproxy import CLOCK, Site, a_site

pytestmark = pytest.mark.contract


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path / "haproxy") as made:
        yield made


def load_of(rate_rps: float, until_s: float) -> tuple[float, ...]:
    return poisson(steps((0.0, rate_rps)), until_s=until_s, most_rps=rate_rps, seed=3)


async def test_scale_down_and_up_again_loses_no_request(site: Site) -> None:
    addresses = await site.start_replicas(4)
    await site.settle(addresses)
    pid = site.haproxy.pid
    tally = Tally()
    load = asyncio.create_task(run_load(site.url, load_of(40, 5.0), CLOCK, tally=tally))
    for count in (1, 4, 2, 3, 1):
        await site.settle(addresses[:count])
    for address in addresses[1:]:
        assert await site.stop_replica(address) == 0, "it had nothing left to finish"
    (fresh,) = await site.start_replicas(1)
    await site.settle([addresses[0], fresh])
    await load
    assert tally.good == tally.due, (tally.answered, tally.lost)
    assert site.haproxy.pid == pid


async def test_a_request_that_comes_after_the_last_drain_is_held_and_answered(site: Site) -> None:
    """Case request-during-the-last-drain: the last replica finishes, a request comes, a new replica answers it."""
    (first,) = await site.start_replicas(1, "memory")
    await site.settle([first])
    early = asyncio.create_task(run_load(site.url, [0.0] * 3, CLOCK))
    await eventually(lambda: site.keeper.turn([first]), lambda turn: turn.serving)
    await CLOCK.sleep(0.05)
    turn = await eventually(lambda: site.keeper.turn([]), lambda turn: not turn.serving, what="the last drain")
    late = asyncio.create_task(run_load(site.url, [0.0] * 3, CLOCK))
    assert (await early).good == 3, turn
    await site.settle([])
    assert await site.stop_replica(first) == 0
    assert not late.done()
    await site.settle(await site.start_replicas(1))
    assert (await late).good == 3


async def test_the_last_replica_stays_until_its_queue_is_served(site: Site) -> None:
    (only,) = await site.start_replicas(1)
    await site.settle([only])
    load = asyncio.create_task(run_load(site.url, [0.0] * 40, CLOCK))
    await CLOCK.sleep(0.15)
    kept = await site.keeper.turn([])
    assert kept.kept == (only,)
    await site.settle([], within_s=20.0)
    assert (await load).good == 40


async def test_a_hold_ends_with_503_and_when_to_try_again(tmp_path: Path) -> None:
    async with a_site(tmp_path / "haproxy", hold_s=1) as site, aiohttp.ClientSession() as session:
        async with session.post(site.url, data=b"{}") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            assert b"no replica came in time" in await answer.read()
        async with session.post(site.haproxy.url + "/nobody/predict") as answer:
            assert answer.status == 503


async def test_a_port_that_is_taken_is_said(site: Site, tmp_path: Path) -> None:
    second = HaproxyProcess(tmp_path / "second", site.haproxy.port, [BackendPlan(name="model")])
    with pytest.raises(LocalClusterError, match=str(site.haproxy.port)):
        await second.start()
    assert second.pid is None
