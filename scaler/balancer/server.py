"""The exporter's HTTP side: samples and metrics for whoever shows the token, /healthz for everybody."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from fleet.errors import ConfigError
from fleet.http import TokenFile
from scaler.balancer.wire import SAMPLES_PATH

_LARGEST_BODY_BYTES = 1024
_LONGEST_NUMBER = 18


def application(
    *,
    samples: Callable[[int], bytes],
    registry: CollectorRegistry,
    not_ready: Callable[[], str],
    token: TokenFile | None,
    refused: Callable[[], None],
) -> web.Application:
    """Return the application.

    Args:
        samples: Returns the encoded answer to `since`.
        registry: What /metrics shows.
        not_ready: Why there are no samples at present, "" = there are; /readyz answers 503 with it.
        token: Asked for on every path but the probes; None = nobody is asked, for loopback alone.
        refused: Told of each question without the right token.
    """

    async def answer_samples(request: web.Request) -> web.Response:
        text = request.query.get("since", "0")
        if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_NUMBER:
            return web.Response(status=400, text="since is not a number\n")
        return web.Response(body=samples(int(text)), headers={"Content-Type": "application/json"})

    async def answer_metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why = not_ready()
        return web.Response(text=f"{why}\n", status=503) if why else web.Response(text="ok\n")

    @web.middleware
    async def with_token(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if token is None or request.path in ("/healthz", "/readyz") or _shows(request, token):
            return await handler(request)
        refused()
        return web.Response(status=401, text="token missing or wrong\n", headers={"WWW-Authenticate": "Bearer"})

    app = web.Application(client_max_size=_LARGEST_BODY_BYTES, middlewares=[with_token])
    app.router.add_get(SAMPLES_PATH, answer_samples)
    app.router.add_get("/metrics", answer_metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


def _shows(request: web.Request, token: TokenFile) -> bool:
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    try:
        wanted = token.read()
    except ConfigError:
        return False  # a token file that went away lets nobody in
    return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(errors="replace"), wanted.encode())


class Listener:
    """Serves one application on one address for the life of an `async with` block.

    Attributes:
        port: Listened on, also where 0 was asked for.
    """

    def __init__(self, app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=75.0)
        self._host = host
        self._tls = tls

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host or None, self.port, ssl_context=self._tls).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()


def server_tls(cert_file: str, key_file: str) -> ssl.SSLContext:
    """Return the context to serve TLS with.

    Raises:
        ConfigError: A file cannot be read, or is none.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([f"TLS files {cert_file}, {key_file}: {error}"]) from error
    return context
