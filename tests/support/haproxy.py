"""A balancer for tests: lines of its statistics as values and as text, a scripted runtime socket, and a real one."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from berthmaster.local.ports import choose
from berthmaster.traffic.haproxy import BackendPlan, HaproxyProcess
from berthmaster.traffic.slots import SlotKeeper, SlotTurn
from fleet.clock import SystemClock
from scaler.balancer.exporter import Exporter
from scaler.balancer.logs import LogSocket
from scaler.balancer.seconds import Meter
from scaler.balancer.server import Listener, application
from scaler.balancer.stat import BackendLine, ServerLine
from scaler.balancer.values import BackendSecond, ServerState
from scaler.balancer.wire import samples_from
from tests.support.eventually import eventually

CLOCK = SystemClock()
_STATUS = {
    ServerState.SERVING: "no check",
    ServerState.DRAINING: "DRAIN",
    ServerState.DOWN: "DOWN",
    ServerState.EMPTY: "MAINT",
}
_COLUMNS = (
    "pxname svname qcur scur slim stot econ eresp status weight hrsp_5xx srv_abrt check_desc addr uweight -".split()  # noqa: SIM905
)


def server(name: str = "slot1", **given: object) -> ServerLine:
    """Return a server's line; its address is 10.0.0.N:80 for slotN."""
    values: dict[str, object] = {
        "name": name,
        "address": f"10.0.0.{''.join(filter(str.isdigit, name)) or 1}:80",
        "state": ServerState.SERVING,
        "in_flight": 0,
        "queued": 0,
        "sessions": 0,
        "server_errors": 0,
        "aborted": 0,
        "faults": 0,
        "limit": 8,
        "weight": 16,
    }
    return ServerLine(**(values | given))  # type: ignore[arg-type]


def backend(*servers: ServerLine, name: str = "be", **given: object) -> BackendLine:
    """Return a backend's line; unless told otherwise it has in progress and has seen what its servers have."""
    values: dict[str, object] = {
        "name": name,
        "in_progress": sum(one.in_flight for one in servers),
        "queued": 0,
        "sessions": sum(one.sessions for one in servers),
        "answers_5xx": sum(one.server_errors for one in servers),
        "unreached": 0,
        "aborted": sum(one.aborted for one in servers),
    }
    return BackendLine(**(values | given), servers=servers)  # type: ignore[arg-type]


def stat_text(found: Iterable[BackendLine]) -> str:
    """Return `show stat` as HAProxy writes it, columns fewer."""
    lines = ["# " + ",".join(_COLUMNS)]
    for one in found:
        for line in one.servers:
            row = {
                "pxname": one.name,
                "svname": line.name,
                "qcur": line.queued,
                "scur": line.in_flight,
                "slim": line.limit,
                "stot": line.sessions,
                "eresp": line.faults,
                "srv_abrt": line.aborted,
                "status": _STATUS[line.state],
                "weight": line.weight,
                "hrsp_5xx": line.server_errors,
                "addr": line.address,
                "uweight": line.weight,
            }
            lines.append(",".join(str(row.get(column, "")) for column in _COLUMNS))
        row = {
            "pxname": one.name,
            "svname": "BACKEND",
            "qcur": one.queued,
            "scur": one.in_progress,
            "stot": one.sessions,
            "econ": one.unreached,
            "srv_abrt": one.aborted,
            "status": "UP",
            "weight": 1,
            "hrsp_5xx": one.answers_5xx,
        }
        lines.append(",".join(str(row.get(column, "")) for column in _COLUMNS))
    return "\n".join(lines) + "\n\n"


def second_between(before: BackendLine, now: BackendLine, *, span_s: float = 1.0) -> BackendSecond:
    """Return what the meter makes of two readings."""
    meter = Meter()
    meter.close(100.0, {before.name: before}, {})
    (second,) = meter.close(100.0 + span_s, {now.name: now}, {})
    return second


@contextlib.asynccontextmanager
async def runtime_socket(path: Path, answer: Callable[[str], bytes | None]) -> AsyncIterator[list[str]]:
    """Serve a runtime socket that answers as told, None = stays silent; yields the lines that were asked."""
    asked: list[str] = []
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode().strip()
        asked.append(line)
        text = answer(line)
        if text is None:
            await silent.wait()
        else:
            writer.write(text)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        writer.close()

    listening = await asyncio.start_unix_server(serve, path)
    try:
        yield asked
    finally:
        silent.set()
        listening.close()


class Site:
    """A real balancer with replica processes behind it, and an exporter's parts beside it."""

    def __init__(self, haproxy: HaproxyProcess, name: str) -> None:
        self.haproxy = haproxy
        self.name = name
        self.url = f"{haproxy.url}/{name}/predict"
        self.keeper = SlotKeeper(haproxy.runtime, name)
        self._replicas: dict[str, subprocess.Popen[bytes]] = {}

    async def start_replicas(self, count: int, profile: str = "cpu", *, start_delay_s: float = 0.0) -> list[str]:
        """Start processes; returns their addresses. They have no slot yet."""
        processes = [_replica(profile, start_delay_s) for _ in range(count)]
        addresses = []
        for process in processes:
            assert process.stdout is not None
            port = await asyncio.to_thread(process.stdout.readline)
            addresses.append(f"127.0.0.1:{int(port)}")
            self._replicas[addresses[-1]] = process
        return addresses

    async def settle(self, wanted: Sequence[str], *, within_s: float = 20.0) -> SlotTurn:
        """Turn the slots until nothing drains and everything wanted serves."""
        return await eventually(
            lambda: self.keeper.turn(wanted),
            lambda turn: not turn.draining and not turn.commands and turn.serving == frozenset(wanted),
            within_s=within_s,
            what=f"slots of {wanted}",
        )

    async def stop_replica(self, address: str) -> int:
        """Ask a replica to finish and return its exit status."""
        process = self._replicas.pop(address)
        process.terminate()
        status = await asyncio.to_thread(process.wait, 30)
        if process.stdout is not None:
            process.stdout.close()
        return status

    async def close(self) -> None:
        """End every replica."""
        for process in self._replicas.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._replicas.clear()


def _replica(profile: str, start_delay_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "berthmaster.traffic", "replica", "--port", "0", "--profile", profile]
    return subprocess.Popen([*command, "--start-delay-s", str(start_delay_s)], stdout=subprocess.PIPE)


@contextlib.asynccontextmanager
async def a_site(directory: Path, *, limit: int = 4, slots: int = 8, hold_s: int = 30) -> AsyncIterator[Site]:
    """Run a balancer with one backend called `model` for the length of the block."""
    port = choose(["haproxy"], promised=())["haproxy"]
    plan = BackendPlan(name="model", slots=slots, limit=limit, hold_s=hold_s)
    async with HaproxyProcess(directory, port, [plan], connections=1000) as haproxy:
        site = Site(haproxy, "model")
        try:
            yield site
        finally:
            await site.close()


@contextlib.asynccontextmanager
async def running(exporter: Exporter, log_path: Path | None = None, *, port: int = 0) -> AsyncIterator[Listener]:
    """Run an exporter without a token on loopback, on any free port by default, for the length of the block."""
    async with contextlib.AsyncExitStack() as stack:
        if log_path is not None:
            await stack.enter_async_context(LogSocket(str(log_path), exporter.book.add))
        app = application(
            samples=exporter.samples,
            registry=exporter.metrics.registry,
            not_ready=exporter.not_ready,
            token=None,
            refused=exporter.metrics.refused.inc,
        )
        listener = await stack.enter_async_context(Listener(app, "127.0.0.1", port))
        task = asyncio.create_task(exporter.run())
        try:
            yield listener
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def seconds_of(exporter: Exporter, name: str = "model") -> list[BackendSecond]:
    """Return every second of a backend that the exporter still keeps."""
    answer = samples_from(exporter.samples(0))
    return [one for second in answer.seconds for one in second.backends if one.name == name]
