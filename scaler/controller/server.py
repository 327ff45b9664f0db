"""Serves the last hour of each endpoint to whoever shows the token; on loopback unless told otherwise."""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable

from aiohttp import web

from fleet.errors import ConfigError
from fleet.http import TokenFile
from scaler.controller.world import Key

HISTORY_PATH = "/v1/history/{namespace}/{name}"
# Key and the times to tell, in seconds before now, to the document; None = there is no such endpoint.
Tell = Callable[[Key, float, float], bytes | None]


def add_history(app: web.Application, token: TokenFile | None, tell: Tell) -> None:
    """Let an application answer GET /v1/history/NAMESPACE/NAME?from=SECONDS_AGO&to=SECONDS_AGO.

    Args:
        app: Not started yet.
        token: Whom it answers; None = nobody, 404.
        tell: Makes the document.
    """

    async def history(request: web.Request) -> web.Response:
        if token is None:
            return web.Response(status=404, text="the history is not served: no token file is set\n")
        if not _is_shown(request, token):
            return web.Response(status=401, text="a bearer token is needed\n", headers={"WWW-Authenticate": "Bearer"})
        try:
            from_ago_s = _seconds(request, "from", math.inf)
            to_ago_s = _seconds(request, "to", 0.0)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        key = Key(namespace=request.match_info["namespace"], name=request.match_info["name"])
        document = tell(key, from_ago_s, to_ago_s)
        if document is None:
            return web.Response(status=404, text=f"nothing is known of {key} here: does this replica lead?\n")
        return web.Response(body=document, content_type="application/json")

    app.router.add_get(HISTORY_PATH, history)


def _is_shown(request: web.Request, token: TokenFile) -> bool:
    try:
        wanted = f"Bearer {token.read()}"
    except ConfigError:
        return False
    return hmac.compare_digest(request.headers.get("Authorization", "").encode(errors="replace"), wanted.encode())


def _seconds(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be seconds before now, got {text!r}")
    return value
