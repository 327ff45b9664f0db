"""The HTTP shell: bodies in, bodies out, every route bounded; what to answer is decided elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from fleet.config import host_and_port

# 5,000 nodes as whole objects of 10 KB fit; node names alone need a hundredth of it.
LARGEST_BODY_BYTES = 64 * 2**20
JSON = "application/json"
TEXT = "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP answer."""

    body: bytes
    status: int = 200
    content_type: str = JSON


Post = Callable[[bytes], Awaitable[Reply]]


def application(posts: Mapping[str, Post], *, largest_body_bytes: int = LARGEST_BODY_BYTES) -> web.Application:
    """Return the application that serves these paths; a larger body answers 413, another path 404, another verb 405."""
    app = web.Application(client_max_size=largest_body_bytes)
    for path, post in posts.items():
        app.router.add_post(path, _post_handler(post))
    return app


def _post_handler(post: Post) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        reply = await post(await request.read())
        return web.Response(body=reply.body, status=reply.status, headers={"Content-Type": reply.content_type})

    return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen. Port 0 takes any free port."""

    host: str
    port: int


def parse_listen(text: str) -> Listen:
    """Return the address in HOST:PORT, [IPv6]:PORT or :PORT (every interface).

    Raises:
        ConfigError: The text is none of these.
    """
    host, port = host_and_port(text)
    return Listen(host=host, port=port)


class Server:
    """Serves one application on one address for the life of an `async with` block."""

    def __init__(self, app: web.Application, listen: Listen) -> None:
        # The scheduler keeps its connection; a dropped one would cost it a handshake per pod.
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=3600.0)
        self._listen = listen

    async def __aenter__(self) -> Server:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._listen.host or None, self._listen.port).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """Return the port listened on, also where 0 was asked for."""
        address = self._runner.addresses[0]
        return int(address[1])
