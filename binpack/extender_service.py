"""Wires the extender: three watches fill its ledger, one or two listeners answer the scheduler and the probes."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from binpack.extender import Extender
from binpack.extender_handlers import ExtenderHandlers
from binpack.feed import Feed
from binpack.ledger import Ledger
from binpack.server import Server, application, parse_listen
from fleet.clock import Clock, SystemClock
from fleet.kube.client import Client
from fleet.kube.credentials import connection
from fleet.telemetry import add_probes, serve_probes

DEFAULT_LISTEN = "127.0.0.1:8610"

_log = logging.getLogger(__name__)


async def run_extender(
    *,
    kubeconfig: str | None = None,
    listen: str = DEFAULT_LISTEN,
    metrics_listen: str = "",
    clock: Clock | None = None,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until cancelled.

    Args:
        kubeconfig: Path; None = KUBECONFIG, else the cluster this process runs in.
        listen: HOST:PORT for the scheduler. Not authenticated: keep it on loopback.
        metrics_listen: HOST:PORT for probes and metrics alone, "" = none; `listen` serves them too.
        clock: Time; the machine's own by default.
        started: Told the port once the scheduler can be served.

    Raises:
        ConfigError: An address cannot be read, or the credentials cannot.
        OSError: An address cannot be listened on.
    """
    clock = clock or SystemClock()
    address = parse_listen(listen)
    probes = parse_listen(metrics_listen) if metrics_listen else None
    ledger = Ledger()
    extender = Extender(ledger)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(connection(kubeconfig, clock=clock), clock, user_agent="berthmaster-extender")
        )
        feed = Feed(
            client,
            clock,
            ledger,
            listener=extender,
            changed=lambda: handlers.changed(),
            skipped=lambda kind, _: handlers.metrics.malformed.labels(kind).inc(),
        )
        handlers = ExtenderHandlers(
            extender, ledger, clock, is_synced=lambda: feed.is_synced, seen_at_s=lambda: feed.seen_at_s
        )
        app = application(handlers.posts)
        add_probes(app, handlers.metrics.registry, handlers.not_ready)
        server = await stack.enter_async_context(Server(app, address))
        if probes is not None:
            await stack.enter_async_context(
                serve_probes(probes.host, probes.port, handlers.metrics.registry, handlers.not_ready)
            )
        _log.info("extender listens", extra={"port": server.port})
        started(server.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            group.create_task(_settle(clock, feed))


async def _settle(clock: Clock, feed: Feed) -> None:
    """Once the ledger is full, keep the garbage collector from walking it: nothing in it goes in cycles."""
    while not feed.is_synced:
        await clock.sleep(0.1)
    gc.collect()
    gc.freeze()
    _log.info("extender is in sync")
