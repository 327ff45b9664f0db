"""Sources, tools and servers for downloads, with faults on order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from warmpool.fetch.errors import Changed, NotThere, Transient
from warmpool.fetch.lanes import Lanes
from warmpool.fetch.means import Means
from warmpool.fetch.meter import Meter
from warmpool.fetch.room import Room
from warmpool.fetch.source import Described
from warmpool.fetch.spans import Span

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
_KEEP_S = 2.0
# Time for some writes, which take a turn each.
_TURNS_A_LOOK = 4


class HastyClock:
    """Pauses are over at once; the looks every two seconds come only as often as a test allows."""

    def __init__(self, looks: int = 0) -> None:
        self.looks = looks
        self.pauses_s: list[float] = []

    def now_s(self) -> float:
        return 1_800_000_000.0

    def monotonic_s(self) -> float:
        return 1000.0 + sum(self.pauses_s)

    async def sleep(self, seconds: float) -> None:
        if seconds == _KEEP_S:
            if not self.looks:
                await asyncio.get_running_loop().create_future()
            self.looks -= 1
            turns = _TURNS_A_LOOK
        else:
            self.pauses_s.append(seconds)
            turns = 1
        for _ in range(turns):
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)


def means(
    *, streams: int | None = 4, reserve_bytes: int = 0, clock: HastyClock | None = None, retries: int = 6
) -> Means:
    return Means(
        clock=clock or HastyClock(),
        lanes=Lanes(streams),
        room=Room(reserve_bytes),
        meter=Meter(),
        retries=retries,
        draw=random.Random(1),
    )


class MemorySource:
    """Holds bytes; each read asks the script what goes wrong: a number of bytes after which it breaks, or nothing."""

    def __init__(
        self,
        content: bytes,
        *,
        name: str = "memory",
        validator: str | None = '"v1"',
        is_ranged: bool = True,
        is_cache: bool = False,
        tells_size: bool = True,
        chunk_bytes: int = 1000,
    ) -> None:
        self.content = content
        self.name = name
        self.address = f"mem://{name}"
        self.validator = validator
        self.is_ranged = is_ranged
        self.is_cache = is_cache
        self.tells_size = tells_size
        self.chunk_bytes = chunk_bytes
        self.breaks_after: list[int | None] = []
        self.ends_early = False
        self.is_missing = False
        self.asked: list[Span | None] = []
        self.reading = 0
        self.most_reading = 0

    async def describe(self) -> Described:
        if self.is_missing:
            raise NotThere(f"{self.name}: 404")
        size = len(self.content) if self.tells_size else None
        return Described(size_bytes=size, validator=self.validator, is_ranged=self.is_ranged)

    @asynccontextmanager
    async def opened(self, span: Span | None, version: Described) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append(span)
        if version.validator is not None and version.validator != self.validator:
            raise Changed(f"{self.name}: changed")
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        try:
            yield self._chunks(span or Span(0, len(self.content)))
        finally:
            self.reading -= 1

    async def _chunks(self, span: Span) -> AsyncIterator[bytes]:
        breaks_after = self.breaks_after.pop(0) if self.breaks_after else None
        content = self.content[span.start : span.end]
        position = 0
        while position < len(content):
            end = min(position + self.chunk_bytes, len(content))
            if breaks_after is not None and end > breaks_after:
                if breaks_after > position:
                    yield content[position:breaks_after]
                if self.ends_early:
                    return
                raise Transient(f"{self.name}: broke off")
            yield content[position:end]
            position = end


@contextlib.asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    """Serve everything by one function on loopback."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def ranged(request: web.Request, content: bytes, *, tag: str | None = '"v1"') -> web.Response:
    """Answer GET as RFC 9110 says, with ranges and If-Range."""
    headers = {"Accept-Ranges": "bytes"} | ({"ETag": tag} if tag else {})
    asked = request.headers.get("Range")
    condition = request.headers.get("If-Range")
    if asked is None or (condition is not None and condition != tag):
        return web.Response(body=content, headers=headers)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, end = int(first), min(len(content), int(last) + 1)
    if start >= len(content):
        return web.Response(status=416, headers=headers | {"Content-Range": f"bytes */{len(content)}"})
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
    return web.Response(status=206, body=content[start:end], headers=headers)
