"""What an autoscaler publishes reaches a real HAProxy: limits and the canary's share of the traffic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from berthmaster.traffic.arrivals import poisson, steps
from berthmaster.traffic.generator import run_load
from fleet import labels
from fleet.kube import paths
from fleet.kube.client import Client
from scaler.balancer.allowances import Allowances, watch
from scaler.balancer.exporter import Exporter
from tests.support.eventually import eventually
from tests.support.fake_api import FakeApi
from tests.support.haproxy import CLOCK, Site, a_site, running, seconds_of

pytestmark = pytest.mark.contract


class Published:
    """The API with one autoscaler in it, and the exporter that watches it."""

    def __init__(self, api: FakeApi, exporter: Exporter, allowances: Allowances) -> None:
        self.exporter = exporter
        self.allowances = allowances
        self._api = api

    def publish(self, **annotations: str) -> None:
        names = {
            "limit": labels.CONCURRENCY_LIMIT,
            "target": labels.TARGET_CONCURRENCY,
            "canary": labels.CANARY_REPLICA,
        }
        self._api.put(
            paths.autoscalers(),
            {
                "metadata": {
                    "name": "shop",
                    "namespace": "default",
                    "annotations": {names[name]: value for name, value in annotations.items()},
                },
                "spec": {"signals": {"balancer": {"name": "edge", "backend": "model"}}},
            },
        )

    async def until_limited(self, limit: int) -> None:
        async def look() -> list[int | None]:
            found = seconds_of(self.exporter)
            return [row.limit for row in found[-1].servers] if found else []

        await eventually(look, lambda limits: limits and set(limits) == {limit}, within_s=10.0, what=f"limit {limit}")


@contextlib.asynccontextmanager
async def publishing(site: Site) -> AsyncIterator[Published]:
    allowances = Allowances("edge")
    exporter = Exporter(site.haproxy.runtime, CLOCK, allowances=allowances.by_backend)
    async with FakeApi() as api, Client(api.connection(CLOCK), CLOCK) as client, running(exporter):
        watching = asyncio.create_task(watch(client, CLOCK, allowances).run())
        try:
            yield Published(api, exporter, allowances)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def test_a_published_limit_is_in_force_within_seconds_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    async with a_site(tmp_path / "haproxy", limit=4) as site, publishing(site) as published:
        await site.settle(await site.start_replicas(2))
        await published.until_limited(4)
        published.publish(limit="7")
        await published.until_limited(7)
        published.publish(limit="none")
        await eventually(lambda: _problems(published), what="a told problem")
        await published.until_limited(7)
        published.publish(limit="3")
        await published.until_limited(3)


async def _problems(published: Published) -> dict[str, tuple[str, ...]]:
    return published.allowances.problems


async def test_the_canary_runs_at_the_learnt_number_while_the_others_do_not(tmp_path: Path) -> None:
    """L = 8: the canary shall hold about 8 where an even share would be about 4."""
    async with a_site(tmp_path / "haproxy", limit=10) as site, publishing(site) as published:
        addresses = await site.start_replicas(4, "batching")
        await site.settle(addresses)
        published.publish(limit="10", target="5.6", canary=addresses[1])
        await published.until_limited(10)
        # 80 requests/s of about 0.22 s: 17 in progress.
        schedule = poisson(steps((0.0, 80.0)), until_s=7.0, most_rps=80.0, seed=5)
        tally = await run_load(site.url, schedule, CLOCK)
        assert tally.good == tally.due
        rows = [row for second in seconds_of(published.exporter)[-5:-1] for row in second.servers]
        canary = [row.in_flight or 0.0 for row in rows if row.address == addresses[1]]
        others = [row.in_flight or 0.0 for row in rows if row.address != addresses[1]]
        mean, usual = sum(canary) / len(canary), sum(others) / len(others)
        assert mean > 1.6 * usual
        assert 5.5 < mean <= 10
