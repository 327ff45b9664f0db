"""The bytes of one version of one file, from one source onto the disk."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from warmpool.fetch.disk import Partial
from warmpool.fetch.errors import Transient, Unavailable
from warmpool.fetch.means import Means
from warmpool.fetch.meter import FileMeter
from warmpool.fetch.retry import pause_s
from warmpool.fetch.source import Described, Source
from warmpool.fetch.spans import SMALLEST_BYTES, Span, merged, next_span, prefix_bytes, total_bytes
from warmpool.fetch.tasks import in_thread, together

# All that a stream ever holds, beside what its socket holds.
BUFFER_BYTES = 2**20
_KEEP_S = 2.0
_HASH_BYTES = 2**26
# A request that brought less than this before it broke counts as one more failure in a row.
_PROGRESS_BYTES = 2**16

T = TypeVar("T")


async def patient(ask: Callable[[], Awaitable[T]], means: Means, seen: FileMeter) -> T:
    """Ask until there is an answer, with pauses.

    Raises:
        Unavailable: Too many failures in a row.
    """
    failures = 0
    while True:
        try:
            return await ask()
        except Transient as error:
            failures += 1
            await pause(error, failures, means, seen)


async def pause(error: Transient, failures: int, means: Means, seen: FileMeter) -> None:
    """Wait before the next try.

    Raises:
        Unavailable: There shall be none.
    """
    if error.is_throttled:
        means.lanes.was_throttled = True
    if failures > means.retries:
        raise Unavailable(f"{error} ({failures} times in a row)") from error
    seen.retries += 1
    await means.clock.sleep(pause_s(failures, error.retry_after_s, means.draw.random()))


class Transfer:
    """One try; its bytes may be the rest of an older one."""

    def __init__(
        self,
        *,
        source: Source,
        version: Described,
        partial: Partial,
        means: Means,
        seen: FileMeter,
        done: tuple[Span, ...],
    ) -> None:
        self._source = source
        self._version = version
        self._partial = partial
        self._means = means
        self._seen = seen
        self._done = done
        self._taken: set[Span] = set()
        self._moved = asyncio.Event()
        self._moved.set()
        self.received_bytes = 0

    async def parallel(self, size_bytes: int, folder: Path) -> tuple[str, int]:
        """Fetch what is missing in spans at once; return checksum and size.

        However it ends, what is on disk by then is in the journal.
        """
        left = size_bytes - total_bytes(self._done)
        workers = min(self._means.lanes.most, -(-left // SMALLEST_BYTES))
        digest = hashlib.sha256()
        try:
            await together(
                [*(self._work(size_bytes) for _ in range(workers)), self._follow(digest, size_bytes)],
                beside=[self._keep_often(folder)],
            )
        except BaseException:
            self._partial.keep(self._done)
            raise
        return digest.hexdigest(), size_bytes

    async def single(self, size_bytes: int | None, folder: Path) -> tuple[str, int]:
        """Fetch all of it in one request, from the beginning each time; return checksum and size."""
        found: list[tuple[str, int]] = []

        async def tried() -> None:
            failures = 0
            async with self._means.lanes:
                while not found:
                    try:
                        found.append(await self._whole(size_bytes))
                    except Transient as error:
                        failures += 1
                        await pause(error, failures, self._means, self._seen)

        await together([tried()], beside=[self._keep_often(folder)])
        return found[0]

    async def _work(self, size_bytes: int) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        lanes = self._means.lanes
        while True:
            async with lanes:
                span = next_span(self._done, self._taken, size_bytes, lanes.limit)
                if span is None:
                    return
                self._taken.add(span)
                await self._fill(span, buffer)
                self._taken.remove(span)

    async def _fill(self, span: Span, buffer: memoryview) -> None:
        sink = Sink(self, span, buffer)
        failures = 0
        while sink.position < span.end:
            before = sink.position
            try:
                await self._pour(sink, Span(before, span.end))
                if sink.position < span.end:
                    raise Transient(f"{self._source.name}: ended {span.end - sink.position} bytes early")
            except Transient as error:
                failures = 1 if sink.position - before >= _PROGRESS_BYTES else failures + 1
                await pause(error, failures, self._means, self._seen)

    async def _pour(self, sink: Sink, span: Span | None) -> None:
        """Read once; what came before a failure, or before a stop, is written too."""
        try:
            async with self._source.opened(span, self._version) as chunks:
                async for chunk in chunks:
                    await sink.put(chunk)
        except (Transient, asyncio.CancelledError):
            await sink.flush()
            raise
        await sink.flush()

    async def _whole(self, size_bytes: int | None) -> tuple[str, int]:
        self._done, self._seen.done_bytes = (), 0
        sink = Sink(
            self, Span(0, size_bytes if size_bytes is not None else sys.maxsize), memoryview(bytearray(BUFFER_BYTES))
        )
        await self._pour(sink, None)
        if size_bytes is not None and sink.position < size_bytes:
            raise Transient(f"{self._source.name}: ended {size_bytes - sink.position} bytes early")
        digest = hashlib.sha256()
        self._seen.state = "checking"
        await in_thread(self._partial.hashed, digest, Span(0, sink.position))
        return digest.hexdigest(), sink.position

    async def write(self, content: memoryview, position: int) -> None:
        """Write these bytes, and only then count them as done."""
        await in_thread(self._partial.write, content, position)
        self._done = merged((*self._done, Span(position, position + len(content))))
        self._seen.done_bytes += len(content)
        self._moved.set()

    def received(self, count: int) -> None:
        """Count what came over the wire."""
        self.received_bytes += count
        self._means.meter.received_bytes += count

    async def _follow(self, digest: hashlib._Hash, size_bytes: int) -> None:
        """Take the checksum of the bytes on disk, as far as they are there without a gap."""
        position = 0
        while position < size_bytes:
            end = min(prefix_bytes(self._done), position + _HASH_BYTES)
            if end == position:
                self._moved.clear()
                await self._moved.wait()
                continue
            await in_thread(self._partial.hashed, digest, Span(position, end))
            position = self._seen.checked_bytes = end
            if self._seen.done_bytes == size_bytes:
                self._seen.state = "checking"

    async def _keep_often(self, folder: Path) -> None:
        while True:
            await self._means.clock.sleep(_KEEP_S)
            self._means.room.check(folder)
            await in_thread(self._partial.keep, self._done)


class Sink:
    """Gathers chunks of a span in a fixed buffer and writes it when it is full.

    Attributes:
        position: Of the next byte to come.
    """

    def __init__(self, transfer: Transfer, span: Span, buffer: memoryview) -> None:
        self._transfer = transfer
        self._end = span.end
        self._buffer = buffer
        self._filled = 0
        self.position = span.start

    async def put(self, chunk: bytes) -> None:
        """Take a chunk of any size.

        Raises:
            Transient: It reaches beyond the span.
        """
        self._transfer.received(len(chunk))
        if self.position + len(chunk) > self._end:
            raise Transient(f"more than the {self._end - self.position} bytes that were left of a range came")
        rest = memoryview(chunk)
        while rest:
            count = min(len(rest), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + count] = rest[:count]
            self._filled += count
            self.position += count
            rest = rest[count:]
            if self._filled == len(self._buffer):
                await self.flush()

    async def flush(self) -> None:
        """Write what is in the buffer."""
        if self._filled:
            content, self._filled = self._buffer[: self._filled], 0
            await self._transfer.write(content, self.position - len(content))
