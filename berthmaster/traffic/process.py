"""One replica process, from its start to its end."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import IO

from fleet.errors import LocalClusterError

_START_WITHIN_S = 30.0


class ReplicaProcess:
    """A started replica.

    Attributes:
        host: Loopback address of its own.
        port: It listens on.
    """

    def __init__(self, process: Process, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._process = process

    @classmethod
    async def start(
        cls, *, host: str, profile: str, start_delay_s: float, seed: int, log: IO[bytes] | int
    ) -> ReplicaProcess:
        """Start one and wait until it listens; it is Ready `start_delay_s` later.

        Raises:
            LocalClusterError: It ended, or did not say its port in time.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the folder that the command was typed in must not shadow the package
            "-m",
            "berthmaster.traffic",
            "replica",
            f"--host={host}",
            "--port=0",
            f"--profile={profile}",
            f"--start-delay-s={start_delay_s:g}",
            f"--seed={seed}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=log,
            # A terminal's Ctrl-C goes to the whole group: replicas end when told, after what they have in progress.
            start_new_session=True,
        )
        assert process.stdout is not None
        said = b""
        try:
            async with asyncio.timeout(_START_WITHIN_S):
                said = await process.stdout.readline()
            port = int(said)
        except (TimeoutError, ValueError, asyncio.CancelledError) as error:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise LocalClusterError(f"a replica on {host} did not start: it said {said!r}") from error
        return cls(process, host, port)

    @property
    def address(self) -> str:
        """Return IP:PORT."""
        return f"{self.host}:{self.port}"

    async def answers(self) -> bool:
        """Return whether its health check says Ready."""
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                try:
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).split()[1:2] == [b"200"]
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (TimeoutError, OSError):
            return False

    async def finish(self) -> None:
        """Ask it to end and wait until it has answered what it had."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()

    async def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
