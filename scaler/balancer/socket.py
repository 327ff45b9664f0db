"""HAProxy's runtime socket on asyncio: one connection per question, so that a restarted balancer is met at once.

The answer ends where the balancer closes the connection, which leaves no doubt about its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.errors import BerthmasterError

_LARGEST_ANSWER_BYTES = 32 * 2**20
_CHUNK_BYTES = 256 * 2**10
_MOST_IN_A_LINE = 100  # a line must fit the balancer's buffer of 16 KiB


class SocketError(BerthmasterError):
    """The runtime socket did not answer, or not wholly.

    Attributes:
        kind: For counting: unreachable, timeout, too-large.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RuntimeSocket:
    """Asks one balancer process."""

    def __init__(self, path: str, *, timeout_s: float = 1.0) -> None:
        self.path = path
        self._timeout_s = timeout_s

    async def ask(self, line: str) -> str:
        """Return the whole answer to one line of commands (`a;b`).

        Raises:
            SocketError: None came in time.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(line)
        except TimeoutError as error:
            raise SocketError("timeout", f"{self.path}: no answer to {line[:40]!r} in {self._timeout_s:g} s") from error
        except OSError as error:
            raise SocketError("unreachable", f"{self.path}: {error}") from error

    async def _ask(self, line: str) -> str:
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(line.encode() + b"\n")
            await writer.drain()
            body = bytearray()
            while chunk := await reader.read(_CHUNK_BYTES):
                body += chunk
                if len(body) > _LARGEST_ANSWER_BYTES:
                    raise SocketError("too-large", f"{self.path}: more than {_LARGEST_ANSWER_BYTES} bytes")
            return body.decode("utf-8", "replace")
        finally:
            writer.close()

    async def statistics(self, *, with_empty: bool) -> str:
        """Return `show stat` of all backends and servers.

        Args:
            with_empty: Whether slots in maintenance are listed too.

        Raises:
            SocketError: No answer.
        """
        return await self.ask("show stat -1 6 -1" if with_empty else "show stat -1 6 -1 no-maint")

    async def tell(self, commands: Sequence[str]) -> tuple[str, ...]:
        """Carry out commands in the given order; returns what the balancer complained of, empty = all were taken.

        Raises:
            SocketError: No answer; some may have been carried out. All of ours may be repeated.
        """
        complaints: list[str] = []
        for start in range(0, len(commands), _MOST_IN_A_LINE):
            said = await self.ask(";".join(commands[start : start + _MOST_IN_A_LINE]))
            complaints += [line.strip() for line in said.splitlines() if line.strip() and not _is_notice(line)]
        return tuple(complaints)


def _is_notice(line: str) -> bool:
    """Return whether a line only tells what was changed (`set server addr` does)."""
    return " changed from " in line or line.startswith("no need to change")
