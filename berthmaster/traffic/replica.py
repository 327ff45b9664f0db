"""One replica as a process: serves with a profile, gets Ready after its start time, finishes what it has when asked."""

from __future__ import annotations

import random
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from berthmaster.traffic.profiles import Profile
from fleet.clock import Clock, SystemClock

_GRACE_S = 120.0
_LARGEST_BODY_BYTES = 2**20


class Replica:
    """The model server's state.

    Attributes:
        in_progress: Requests being served.
        most: Highest ever in progress: a broken limit would show here.
        served: Requests ended.
    """

    def __init__(self, profile: Profile, clock: Clock, *, ready_at_s: float, seed: int) -> None:
        self.in_progress = 0
        self.most = 0
        self.served = 0
        self.is_ending = False
        self._profile = profile
        self._clock = clock
        self._ready_at_s = ready_at_s
        self._draw = random.Random(seed).random

    @property
    def is_ready(self) -> bool:
        """Return whether it takes traffic."""
        return not self.is_ending and self._clock.monotonic_s() >= self._ready_at_s

    def application(self) -> web.Application:
        """Return its HTTP side: /healthz, /metrics, and every other path is a request to the model."""
        registry = CollectorRegistry()
        for name, text, read in (
            ("replica_in_progress", "Requests being served", lambda: self.in_progress),
            ("replica_in_progress_most", "Highest ever in progress", lambda: self.most),
            ("replica_served", "Requests ended", lambda: self.served),
            ("replica_memory_ratio", "Memory in use", lambda: self._profile.memory_ratio(self.in_progress)),
        ):
            Gauge(name, text, registry=registry).set_function(read)

        async def healthz(_: web.Request) -> web.Response:
            return web.Response(text="ok\n") if self.is_ready else web.Response(status=503, text="not ready\n")

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_get("/healthz", healthz)
        app.router.add_get("/metrics", metrics)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        if self._clock.monotonic_s() < self._ready_at_s:
            return web.Response(status=503, text="still starting\n")
        self.in_progress += 1
        self.most = max(self.most, self.in_progress)
        try:
            await request.read()
            service = self._profile.serve(self.in_progress, self._draw())
            await self._clock.sleep(service.duration_s)
        finally:
            self.in_progress -= 1
            self.served += 1
        return web.Response(status=500, text="out of memory\n") if service.fails else web.Response(text="ok\n")

    async def finish(self) -> None:
        """Wait until nothing is in progress, at most two minutes."""
        self.is_ending = True
        deadline_s = self._clock.monotonic_s() + _GRACE_S
        while self.in_progress and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(0.02)


async def run_replica(
    profile: Profile,
    *,
    host: str = "127.0.0.1",
    port: int,
    start_delay_s: float = 0.0,
    seed: int = 0,
    clock: Clock | None = None,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until cancelled, then finish what is in progress.

    Args:
        profile: How long requests take.
        host: Loopback address.
        port: 0 = any free one.
        start_delay_s: Time until Ready.
        seed: Of the draws.
        clock: Time.
        started: Told the port.

    Raises:
        OSError: The port is taken.
    """
    clock = clock or SystemClock()
    replica = Replica(profile, clock, ready_at_s=clock.monotonic_s() + start_delay_s, seed=seed)
    runner = web.AppRunner(
        replica.application(),
        access_log=None,
        keepalive_timeout=300.0,
        shutdown_timeout=_GRACE_S,
        handler_cancellation=True,  # a request that was given up must not run beside those that took its place
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        started(int(runner.addresses[0][1]))
        while True:
            await clock.sleep(3600.0)
    finally:
        await replica.finish()
        await runner.cleanup()
