"""From addresses to sources, with the secrets that belong to them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from yarl import URL

from fleet.http import TokenFile
from warmpool.fetch.errors import Refused
from warmpool.fetch.files import FileSource
from warmpool.fetch.http_source import HttpSource
from warmpool.fetch.names import shown
from warmpool.fetch.s3 import Bucket, S3Source, bucket_and_key
from warmpool.fetch.source import Source
from warmpool.fetch.wanted import Item
from warmpool.fetch.web import Anonymous, Authorizer, FixedHeader, Web

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What is needed to reach sources.

    Attributes:
        caches: Folders or http(s) addresses that hold blobs/sha256/HEX, asked in this order.
        token: For the origins of the addresses themselves.
        bucket: Opens an S3 bucket by name.
    """

    web: Web
    caches: tuple[str, ...] = ()
    token: TokenFile | None = None
    bucket: Callable[[str], Bucket]

    def sources(self, item: Item) -> Sequence[Source]:
        """Return where to look for one file, caches first where the checksum is known."""
        return [*(self.cached(item.sha256) if item.sha256 else ()), self._origin(item.url)]

    def cached(self, sha256: str) -> Sequence[Source]:
        """Return the caches' places for a checksum."""
        return [self._cache(cache, f"blobs/sha256/{sha256}") for cache in self.caches]

    def _cache(self, cache: str, name: str) -> Source:
        if not cache.startswith(("http://", "https://")):
            return FileSource(Path(cache.removeprefix("file://")) / name, is_cache=True)
        base, authorizer = _split(cache)
        return HttpSource(self.web, base / name, authorizer or Anonymous(), is_cache=True)

    def _origin(self, url: str) -> Source:
        if url.startswith("s3://"):
            name, key = bucket_and_key(url)
            return S3Source(self.bucket(name), key)
        if url.startswith("file://"):
            split = urlsplit(url)
            if split.netloc not in {"", "localhost"}:
                raise Refused(f"{shown(url)}: a file on another machine")
            return FileSource(Path(unquote(split.path)), is_cache=False)
        address, authorizer = _split(url)
        return HttpSource(self.web, address, authorizer or self._bearer(address))

    def _bearer(self, address: URL) -> Authorizer:
        if self.token is None:
            return Anonymous()
        if address.scheme != "https" and address.host not in _LOOPBACK:
            raise Refused(f"{shown(str(address))}: a token is only sent over https")
        return FixedHeader(address, f"Bearer {self.token.read()}")


def _split(url: str) -> tuple[URL, Authorizer | None]:
    """Return the address without user and password, and the header that they make."""
    try:
        address = URL(url)
        user, password = address.user, address.password
    except ValueError as error:
        raise Refused(f"{shown(url)}: not an address") from error
    if not address.host:
        raise Refused(f"{shown(url)}: names no host")
    address = address.with_user(None)
    if user is None and password is None:
        return address, None
    pair = base64.b64encode(f"{user or ''}:{password or ''}".encode()).decode()
    return address, FixedHeader(address, f"Basic {pair}")
