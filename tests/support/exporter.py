"""An exporter without a balancer: says each second what the test wants, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from aiohttp import web

from fleet.clock import SystemClock
from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.balancer.wire import SAMPLES_PATH, Journal


def a_server(
    name: str,
    address: str = "",
    in_flight: float | None = 0.0,
    *,
    state: ServerState = ServerState.SERVING,
    **more: float,
) -> ServerSecond:
    return ServerSecond(name=name, address=address, state=state, in_flight=in_flight, **more)  # type: ignore[arg-type]


class FakeExporter:
    """Use as an async context manager.

    Attributes:
        said: What is said of each backend from the next second on.
        is_silent: Accepts connections and never answers.
        servers: Where given, makes the servers of a backend anew each second.
    """

    def __init__(self, *, token: str = "") -> None:
        self.said: dict[str, BackendSecond] = {}
        self.is_silent = False
        self.servers: Callable[[str], Sequence[ServerSecond]] | None = None
        self.url = ""
        self._token = token
        self._clock = SystemClock()
        self._journal = Journal("fake")
        self._released = asyncio.Event()

    def say(self, backend: str, *, arrivals: float | None, in_flight: float | None, queued: float | None = 0.0) -> None:
        """Say this of a backend every second: steady load."""
        self.said[backend] = BackendSecond(
            name=backend,
            at_s=0.0,
            arrivals=arrivals,
            completions=arrivals,
            in_flight=in_flight,
            queued=queued,
            errors=0.0,
        )

    def sources(self, folder: Path, name: str = "main", **others: str) -> str:
        """Write a sources file that names this exporter, and others by their addresses; return its path."""
        path = folder / "sources.yaml"
        token = ""
        if self._token:
            (folder / "token").write_text(self._token)
            token = f", tokenFile: {folder / 'token'}"
        lines = [
            f"  {name}: {{url: {self.url}{token}}}",
            *(f"  {other}: {{url: {url}}}" for other, url in others.items()),
        ]
        path.write_text("\n".join(["balancers:", *lines, ""]))
        return str(path)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get(SAMPLES_PATH, self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._speaking = asyncio.create_task(self._speak())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        self._speaking.cancel()
        await asyncio.gather(self._speaking, return_exceptions=True)
        await self._runner.cleanup()

    async def _speak(self) -> None:
        number = 0
        while True:
            number += 1
            seconds = [
                replace(second, servers=tuple(self.servers(name))) if self.servers else second
                for name, second in self.said.items()
            ]
            self._journal.add(number, self._clock.monotonic_s(), seconds)
            await self._clock.sleep(1.0)

    async def _answer(self, request: web.Request) -> web.Response:
        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.Response(status=401)
        if self.is_silent:
            await self._released.wait()
        since = int(request.query.get("since", "0"))
        return web.Response(body=self._journal.answer(since, self._clock.monotonic_s()))
