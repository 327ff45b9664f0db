"""The datagram socket that the balancer logs to, read without a thread and without ever holding up the loop."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fleet.errors import ConfigError

_LARGEST_LINE_BYTES = 1024
_MOST_PER_TURN = 2000
_BUFFER_BYTES = 4 * 2**20


class LogSocket:
    """Hands each datagram to a function while its `async with` block runs.

    A balancer writes to it without waiting: lines sent while nobody listens are lost, never requests.
    """

    def __init__(self, path: str, take: Callable[[bytes], None]) -> None:
        self._path = Path(path)
        self._take = take
        self._socket: socket.socket | None = None

    async def __aenter__(self) -> Self:
        try:
            if stat.S_ISSOCK(self._path.lstat().st_mode):
                self._path.unlink()  # left behind by an exporter that was killed
        except FileNotFoundError:
            pass
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            mask = os.umask(0o177)
            try:
                opened.bind(str(self._path))
            finally:
                os.umask(mask)
        except OSError as error:
            opened.close()
            raise ConfigError([f"log socket {self._path}: {error.strerror or error}"]) from error
        self._socket = opened
        asyncio.get_running_loop().add_reader(opened.fileno(), self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        if self._socket is None:
            return
        for _ in range(_MOST_PER_TURN):
            try:
                line = self._socket.recv(_LARGEST_LINE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            self._take(line)
