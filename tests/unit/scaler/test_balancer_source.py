"""The controller's side: silent, wrong and restarted exporters cost nothing to the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fleet.clock import SystemClock
from fleet.http import Http
from scaler.balancer.values import BackendSecond
from scaler.balancer.wire import SAMPLES_PATH, Journal
from scaler.signals.balancer import BalancerSource

CLOCK = SystemClock()


class FakeExporter:
    """Answers from a real journal; silent, rubbish or refusing when told to be."""

    def __init__(self) -> None:
        self.journal = Journal("run1")
        self.number = 0
        self.does = "answer"
        self.asked: list[str] = []
        self.url = ""

    def second(self, **backends: float) -> None:
        self.number += 1
        seconds = [
            BackendSecond(name=name, at_s=0.0, arrivals=value, completions=value, in_flight=8.0, queued=0.0, errors=0.0)
            for name, value in backends.items()
        ]
        self.journal.add(self.number, CLOCK.monotonic_s(), seconds)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.query.get("since", ""))
        if self.does == "silent":
            await asyncio.Event().wait()
        if self.does == "rubbish":
            return web.Response(body=b'{"exporter": 3}')
        if self.does == "refuse":
            return web.Response(status=401)
        return web.Response(body=self.journal.answer(int(self.asked[-1]), CLOCK.monotonic_s()))


@contextlib.asynccontextmanager
async def exporters(count: int) -> AsyncIterator[list[FakeExporter]]:
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            one = FakeExporter()
            app = web.Application()
            app.router.add_get(SAMPLES_PATH, one.handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            made.append(one)
        yield made


@contextlib.asynccontextmanager
async def source(*urls: str, timeout_s: float = 2.0) -> AsyncIterator[BalancerSource]:
    async with Http() as http:
        made = BalancerSource("edge", urls, http, CLOCK, timeout_s=timeout_s)
        try:
            yield made
        finally:
            await made.close()


async def test_seconds_are_taken_once_by_backend() -> None:
    async with exporters(1) as (one,), source(one.url + "/") as made:
        assert made.age_s("a") == float("inf")
        one.second(a=1.0, b=5.0)
        await made.poll()
        one.second(a=2.0, b=6.0)
        await made.poll()
        assert [second.arrivals for second in made.take("a")] == [1, 2]
        assert made.take("a") == []
        assert made.take("nobody") == []
        assert [second.arrivals for second in made.take("b")] == [5, 6]
        assert one.asked == ["0", "1"]
        assert made.age_s("a") < 1.0


async def test_a_silent_exporter_costs_nothing_to_other_sources() -> None:
    """Case one-silent-source-stops-every-decision: accepts the connection and never answers."""
    async with exporters(5) as made, contextlib.AsyncExitStack() as stack:
        sources = [await stack.enter_async_context(source(one.url)) for one in made]
        made[0].does = "silent"
        turns_s = []
        for _ in range(4):
            for one in made:
                one.second(e=50.0)
            begun_s = CLOCK.monotonic_s()
            await asyncio.gather(*(one.poll() for one in sources))
            turns_s.append(CLOCK.monotonic_s() - begun_s)
        assert max(turns_s) < 1.5, "half a second's patience, never the time-out"
        assert [len(one.take("e")) for one in sources] == [0, 4, 4, 4, 4]
        assert len(made[0].asked) == 1, "no second question while the first is open"
        assert sources[0].age_s("e") == float("inf")


@pytest.mark.parametrize("does", ["rubbish", "refuse", "silent"])
async def test_a_failing_exporter_is_told_and_met_again(does: str) -> None:
    async with exporters(1) as (one,), source(one.url, timeout_s=0.1) as made:
        one.second(e=1.0)
        one.does = does
        await made.poll()
        (state,) = made.states()
        assert (state.answered_at_s, state.failures) == (None, 1)
        assert one.url in state.failure
        assert made.take("e") == []
        one.does = "answer"
        await made.poll()
        assert [second.arrivals for second in made.take("e")] == [1]
        assert made.states()[0].failure == ""


async def test_what_came_while_nobody_answered_is_not_lost() -> None:
    async with exporters(1) as (one,), source(one.url, timeout_s=0.1) as made:
        one.second(e=1.0)
        await made.poll()
        one.does = "refuse"
        for number in range(2, 5):
            one.second(e=float(number))
            await made.poll()
        one.does = "answer"
        await made.poll()
        assert [second.arrivals for second in made.take("e")] == [1, 2, 3, 4]
