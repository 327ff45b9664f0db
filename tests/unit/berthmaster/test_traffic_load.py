"""The open-loop load: schedules that repeat, and a count in which nothing is left out."""

from __future__ import annotations

import asyncio
import contextlib
import math

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from berthmaster.traffic.arrivals import poisson, steps
from berthmaster.traffic.generator import run_load
from berthmaster.traffic.profiles import PROFILES
from berthmaster.traffic.replica import Replica
from berthmaster.traffic.tally import Tally, nearest_rank
from fleet.clock import SystemClock

CLOCK = SystemClock()


def test_a_schedule_repeats_and_follows_its_rate() -> None:
    rate = steps((0.0, 5.0), (100.0, 50.0))
    times = poisson(rate, until_s=200.0, most_rps=50.0, seed=7)
    assert times == poisson(rate, until_s=200.0, most_rps=50.0, seed=7)
    assert list(times) == sorted(times)
    early = sum(at_s < 100 for at_s in times)
    assert abs(early - 500) < 5 * math.sqrt(500)
    assert abs(len(times) - early - 5000) < 5 * math.sqrt(5000)
    with pytest.raises(ValueError, match="above"):
        poisson(rate, until_s=200.0, most_rps=10.0, seed=7)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=100), st.floats(0, 1))
def test_quantiles_are_values_that_so_many_reach(values: list[float], share: float) -> None:
    ranked = sorted(values)
    found = nearest_rank(ranked, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert nearest_rank([], share) is None


@contextlib.asynccontextmanager
async def serving(app: web.Application):
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/m"
    finally:
        await runner.cleanup()


async def test_every_due_request_has_one_end() -> None:
    """Answers, errors, broken connections, time-outs and a bound on what is open, in one load."""
    number = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal number
        number += 1
        if number % 5 == 0:
            return web.Response(status=503)
        if number % 5 == 1:
            assert request.transport is not None
            request.transport.abort()
        if number % 5 == 2:
            await asyncio.Event().wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/m", handle)
    tally = Tally()
    async with serving(app) as url:
        schedule = [0.002 * step for step in range(100)]
        await run_load(url, schedule, CLOCK, tally=tally, timeout_s=0.4, most_open=12)
    assert tally.due == tally.accounted == 100
    assert tally.open == 0
    assert tally.good + tally.answered[503] + sum(tally.lost.values()) + tally.unsent == 100
    assert tally.given_up == tally.lost["timeout"] >= 12
    assert tally.unsent > 0, "twelve were open at once"
    assert tally.answered[503] > 0


async def test_requests_go_out_on_time_though_nothing_is_answered() -> None:
    seen = 0

    async def silent(_: web.Request) -> web.Response:
        nonlocal seen
        seen += 1
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    app.router.add_post("/m", silent)
    async with serving(app) as url:
        tally = await run_load(url, [0.01 * step for step in range(30)], CLOCK, timeout_s=0.8)
    assert (seen, tally.lost["timeout"]) == (30, 30)


async def test_latency_counts_from_the_time_a_request_was_due() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/m", answer)
    async with serving(app) as url:
        tally = await run_load(url, [-3.0, 0.0], CLOCK)
    assert tally.late >= 1
    assert max(tally.latencies_s) >= 3.0


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_is_best_near_its_knee(name: str) -> None:
    profile = PROFILES[name]

    def goodput(k: int) -> float:
        draws = [(step + 0.5) / 50 for step in range(50)]
        services = [profile.serve(k, draw) for draw in draws]
        good = sum(not service.fails for service in services) / len(services)
        return good * k / (sum(service.duration_s for service in services) / len(services))

    best = max(goodput(k) for k in range(1, 3 * profile.knee))
    reached = next(k for k in range(1, 3 * profile.knee) if goodput(k) >= 0.95 * best)
    assert abs(reached - profile.knee) <= max(1, 0.1 * profile.knee), reached


async def test_a_replica_is_ready_after_its_start_and_finishes_what_it_has() -> None:
    replica = Replica(PROFILES["cpu"], CLOCK, ready_at_s=CLOCK.monotonic_s() + 0.15, seed=0)
    async with serving(replica.application()) as url:
        early = await run_load(url, [0.0], CLOCK)
        assert early.answered == {503: 1}
        assert not replica.is_ready
        await CLOCK.sleep(0.2)
        assert replica.is_ready
        load = asyncio.create_task(run_load(url, [0.0] * 4, CLOCK))
        while replica.in_progress < 4:
            await CLOCK.sleep(0.005)
        await replica.finish()
        assert replica.in_progress == 0
        assert (await load).answered == {200: 4}
        assert replica.most == 4


async def test_a_request_that_is_given_up_leaves_the_replica() -> None:
    replica = Replica(PROFILES["batching"], CLOCK, ready_at_s=0.0, seed=0)
    async with serving(replica.application()) as url:
        tally = await run_load(url, [0.0] * 3, CLOCK, timeout_s=0.05)
        assert tally.given_up == 3
        while replica.in_progress:
            await CLOCK.sleep(0.005)
        assert replica.served == 3
