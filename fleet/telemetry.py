"""Logs as one JSON object a line on stderr, and the HTTP address that Prometheus and the kubelet ask."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LONGEST_TRACE = 8000
_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonFormatter(logging.Formatter):
    """One JSON object a line: at, level, logger, message, then whatever was given as `extra`, and the trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a record that cannot be formatted is still logged, with the reason."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError) as error:
            message = f"{record.msg} (arguments do not fit: {error})"
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)[-_LONGEST_TRACE:]
        return _encode(line).decode()


def configure_logging(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all logs of this process to one stream as JSON lines; the only place that configures logging.

    Args:
        level: Least level of our own packages; libraries speak from WARNING on.
        stream: stderr by default.

    Raises:
        ValueError: There is no such level.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for package in ("fleet", "binpack", "scaler", "warmpool", "berthmaster"):
        logging.getLogger(package).setLevel(level.upper())
    logging.captureWarnings(capture=True)


class Counts(Collector):
    """A counter family read when scraped, from numbers that hot code keeps as plain integers."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], counts: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the family with one sample per label set."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self._counts().items():
            family.add_metric(values, count)
        yield family


def add_probes(app: web.Application, registry: CollectorRegistry, not_ready: Callable[[], str]) -> None:
    """Let an application answer /metrics, /healthz and /readyz too.

    Args:
        app: Not started yet.
        registry: What /metrics shows.
        not_ready: Returns why this process is not ready, "" = it is. /readyz answers 503 with that text.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why = not_ready()
        return web.Response(text=f"{why}\n", status=503) if why else web.Response(text="ok\n")

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)


def probes(registry: CollectorRegistry, not_ready: Callable[[], str]) -> web.Application:
    """Return an application that answers the probes alone; arguments as for `add_probes`."""
    app = web.Application(client_max_size=1024)
    add_probes(app, registry, not_ready)
    return app


@asynccontextmanager
async def serve_probes(
    host: str, port: int, registry: CollectorRegistry, not_ready: Callable[[], str]
) -> AsyncIterator[int]:
    """Serve `probes` while the block runs; yields the port listened on, also where 0 was asked for.

    Raises:
        OSError: The address cannot be listened on.
    """
    runner = web.AppRunner(probes(registry, not_ready), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
