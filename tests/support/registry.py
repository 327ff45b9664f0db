"""A registry that speaks the pull side of the OCI distribution protocol, with every way to ask for credentials."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.fetching import ranged
from warmpool.fetch.registry.manifest import INDEX, MANIFEST


def digest_of(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


@dataclass
class FakeRegistry:
    """Holds repositories' blobs, manifests and tags.

    Attributes:
        auth: none, basic, or bearer.
        user: The pair that it wants, "user:password"; None lets anybody have a token.
        cdn: Address to which blobs are redirected, as large registries do.
    """

    auth: str = "none"
    user: str | None = None
    cdn: str | None = None
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    heard: list[tuple[str, str | None]] = field(default_factory=list)
    tokens: int = 0
    uses_left: int = 10**9

    def blob(self, raw: bytes) -> dict[str, object]:
        self.blobs[digest_of(raw)] = raw
        return {"mediaType": "application/octet-stream", "digest": digest_of(raw), "size": len(raw)}

    def manifest(self, layers: list[bytes], *tags: str, config: bytes = b"{}") -> dict[str, object]:
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(config),
            "layers": [self.blob(raw) for raw in layers],
        }
        return self._put(document, MANIFEST, tags)

    def index(self, children: list[tuple[str, dict[str, object]]], *tags: str) -> dict[str, object]:
        manifests = [
            child | {"platform": dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))}
            for platform, child in children
        ]
        return self._put({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}, INDEX, tags)

    def _put(self, document: dict[str, object], media_type: str, tags: tuple[str, ...]) -> dict[str, object]:
        raw = json.dumps(document).encode()
        for name in (digest_of(raw), *tags):
            self.manifests[name] = (media_type, raw)
        return {"mediaType": media_type, "digest": digest_of(raw), "size": len(raw)}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        secret = request.headers.get("Authorization")
        self.heard.append((request.path, secret))
        if request.path == "/token":
            return await self._token(request)
        if not self._is_allowed(secret):
            return web.Response(status=401, headers={"WWW-Authenticate": self._challenge(request)})
        _, kind, name = request.path.rsplit("/", 2)
        if kind == "manifests" and name in self.manifests:
            media_type, raw = self.manifests[name]
            return web.Response(body=raw, headers={"Content-Type": media_type, "Docker-Content-Digest": digest_of(raw)})
        if kind == "blobs" and name in self.blobs:
            if self.cdn is not None:
                raise web.HTTPTemporaryRedirect(f"{self.cdn}/{name}")
            return ranged(request, self.blobs[name], tag=f'"{name}"')
        return web.json_response({"errors": [{"code": "NAME_UNKNOWN"}]}, status=404)

    def _is_allowed(self, secret: str | None) -> bool:
        if self.auth == "none":
            return True
        if self.auth == "basic":
            return secret == self._basic()
        self.uses_left -= 1
        return self.uses_left >= 0 and secret == f"Bearer token-{self.tokens}" and self.tokens > 0

    def _basic(self) -> str:
        return "Basic " + base64.b64encode((self.user or "").encode()).decode()

    def _challenge(self, request: web.Request) -> str:
        if self.auth == "basic":
            return 'Basic realm="fake"'
        return f'Bearer realm="http://{request.host}/token",service="fake",scope="repository:team/llm:pull"'

    async def _token(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            form = await request.post()
            is_known = form.get("refresh_token") == "refresh" and form.get("grant_type") == "refresh_token"
        else:
            assert request.query["scope"] == "repository:team/llm:pull"
            is_known = self.user is None or request.headers.get("Authorization") == self._basic()
        if not is_known:
            return web.Response(status=401)
        self.tokens += 1
        self.uses_left = 6 if self.uses_left < 10**8 else 10**9
        return web.json_response({"token": f"token-{self.tokens}", "expires_in": 300})
