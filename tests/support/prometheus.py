"""A real Prometheus for contract tests, and targets for it to scrape; all on loopback.

The program comes from PATH, else from the Debian package, unpacked into the cache of built binaries without root and
without its service. Where neither is to be had, the tests that need it are skipped and say why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from berthmaster.local import locks, ports
from berthmaster.local.layout import cache_home
from fleet.clock import SystemClock
from fleet.http import FetchError, Http
from tests.support.eventually import eventually

_PACKAGE = "prometheus"
_DOWNLOAD_S = 180.0


class Unavailable(Exception):
    """There is no Prometheus here and none could be fetched; the message says why."""


def program() -> Path:
    """Return Prometheus' program; skips the test where there is none."""
    try:
        return _program()
    except Unavailable as error:
        pytest.skip(f"no Prometheus to test with: {error}")


def _program() -> Path:
    if found := shutil.which("prometheus"):
        return Path(found)
    home = cache_home(os.environ) / "prometheus"
    binary = home / "usr" / "bin" / "prometheus"
    if binary.exists():
        return binary
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"not on PATH, and without {tool} the Debian package cannot be fetched")
    with locks.hold(home.with_suffix(".lock"), SystemClock()):
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
                unpacked = _unpacked(Path(scratch))
                shutil.rmtree(home, ignore_errors=True)
                unpacked.rename(home)
    return binary


def _unpacked(scratch: Path) -> Path:
    """Fetch the package and unpack it; with package lists of its own where the machine's are missing or old."""
    lists = scratch / "lists"
    (lists / "partial").mkdir(parents=True)
    own = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={scratch / 'cache'}", "-o", "Debug::NoLocking=1"]
    attempts: Sequence[Sequence[str]] = (
        ["apt-get", "-q", "download", _PACKAGE],
        ["apt-get", "-q", *own, "update"],
        ["apt-get", "-q", *own, "download", _PACKAGE],
    )
    said = ""
    for command in attempts:
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{' '.join(command)} took longer than {_DOWNLOAD_S:g} s") from None
        said = (done.stderr or done.stdout).strip()
        if packages := list(scratch.glob(f"{_PACKAGE}_*.deb")):
            into = scratch / "unpacked"
            subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(into)], check=True, timeout=_DOWNLOAD_S)
            return into
    raise Unavailable(f"the Debian package cannot be fetched: {said[-300:]}")


class Target:
    """Something to scrape: says `text`, or nothing at all while `is_silent`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.text = ""
        self.scrapes = 0
        self.is_silent = False

    async def answer(self, _: web.Request) -> web.Response:
        self.scrapes += 1
        if self.is_silent:
            return web.Response(status=503)
        return web.Response(text=self.text, headers={"Content-Type": "text/plain; version=0.0.4"})


class PrometheusProcess:
    """One Prometheus over some targets, each its own job; scrapes every second."""

    def __init__(self, folder: Path, port: int, jobs: Mapping[str, tuple[Target, Mapping[str, str]]]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._program = program()
        self._process: asyncio.subprocess.Process | None = None
        self._port = port
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                    "scrape_configs": [
                        {
                            "job_name": name,
                            "static_configs": [{"targets": [f"127.0.0.1:{target.port}"], "labels": dict(labels)}],
                        }
                        for name, (target, labels) in jobs.items()
                    ],
                }
            )
        )

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(self._program),
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=warn",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        async with Http() as http:

            async def is_ready() -> str:
                said = (self._folder / "log").read_text()[-500:]
                assert self._process is not None
                assert self._process.returncode is None, f"Prometheus ended: {said}"
                try:
                    await http.get(f"{self.url}/-/ready", timeout_s=1.0)
                except FetchError as error:
                    return str(error)
                return ""

            await eventually(is_ready, lambda said: not said, what="Prometheus is ready")

    async def stop(self) -> None:
        """End it; a stopped one is woken first."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def freeze(self) -> None:
        """Let it accept connections and never answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        stat = Path("/proc") / str(self._process.pid) / "stat"

        async def state() -> str:
            return stat.read_text().rpartition(")")[2].split()[0]

        await eventually(state, lambda state: state == "T", what="Prometheus stands still")

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def a_target() -> AsyncIterator[Target]:
    """Serve a target while the block runs."""
    target = Target(next(iter(ports.choose(["target"], promised=()).values())))
    app = web.Application()
    app.router.add_get("/metrics", target.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", target.port).start()
        yield target
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_prometheus(
    folder: Path, jobs: Mapping[str, tuple[Target, Mapping[str, str]]]
) -> AsyncIterator[PrometheusProcess]:
    """Run a Prometheus that scrapes these jobs, by name with the labels that each adds."""
    port = ports.choose(["prometheus"], promised=[target.port for target, _ in jobs.values()])["prometheus"]
    process = PrometheusProcess(folder, port, jobs)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()
