"""A local folder, or a single local file, as a source: a cache that is mounted into the node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from warmpool.fetch.errors import Changed, NotThere, Refused
from warmpool.fetch.source import Described
from warmpool.fetch.spans import Span

_CHUNK_BYTES = 2**20


class FileSource:
    """One regular file."""

    def __init__(self, path: Path, *, is_cache: bool) -> None:
        self._path = path
        self.is_cache = is_cache

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self._path)

    @property
    def address(self) -> str:
        """Return the path as a URL."""
        return self._path.absolute().as_uri()

    async def describe(self) -> Described:
        """Return size, and change time with inode as the version.

        Raises:
            NotThere: There is no such regular file.
        """
        try:
            found = await asyncio.to_thread(os.stat, self._path)
        except OSError as error:
            raise NotThere(f"{self._path}: {error.strerror}") from error
        if not self._path.is_file():
            raise NotThere(f"{self._path}: not a regular file")
        return Described(size_bytes=found.st_size, validator=_version(found), is_ranged=True)

    @asynccontextmanager
    async def opened(self, span: Span | None, version: Described) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open it, if it still is the version described."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(f"{self._path}: {error.strerror}") from error
        try:
            found = os.fstat(descriptor)
            if _version(found) != version.validator:
                raise Changed(f"{self._path}: changed while it was read")
            yield _chunks(descriptor, span or Span(0, found.st_size))
        finally:
            os.close(descriptor)


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


async def _chunks(descriptor: int, span: Span) -> AsyncIterator[bytes]:
    position = span.start
    while position < span.end:
        chunk = await asyncio.to_thread(os.pread, descriptor, min(_CHUNK_BYTES, span.end - position), position)
        if not chunk:
            return
        yield chunk
        position += len(chunk)
