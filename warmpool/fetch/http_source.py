"""A file behind HTTP(S): what it is, and spans of it, never of two versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from warmpool.fetch.errors import Changed, NotThere, Refused, Transient
from warmpool.fetch.headers import content_range, is_other_version, sha256_of, strong_validator
from warmpool.fetch.names import shown
from warmpool.fetch.source import Described
from warmpool.fetch.spans import Span
from warmpool.fetch.web import Authorizer, Web, chunks_of


class HttpSource:
    """One address. Redirects are followed for every span anew, because signed addresses behind them expire."""

    def __init__(self, web: Web, url: URL, authorizer: Authorizer, *, is_cache: bool = False) -> None:
        self._web = web
        self._url = url
        self._authorizer = authorizer
        self.is_cache = is_cache

    @property
    def name(self) -> str:
        """Return the address without secrets."""
        return shown(str(self._url))

    @property
    def address(self) -> str:
        """Return the address without its query, in which signatures change from day to day."""
        return str(self._url.with_query(None).with_fragment(None))

    async def describe(self) -> Described:
        """Ask for the first byte: addresses signed for GET refuse HEAD, and only a 206 proves ranges."""
        seen: dict[str, str] = {}
        async with self._web.opened(self._url, {"Range": "bytes=0-0"}, self._authorizer, seen) as answer:
            headers = answer.headers
            self._check_coding(answer)
            found = content_range(headers.get("Content-Range"))
            sha256 = sha256_of(headers) or sha256_of(seen)
            if answer.status == 206:
                # Read to its end, the connection serves the first span too.
                await answer.content.read(2)
            if answer.status == 206 and found is not None and found[:2] == (0, 1) and found[2] is not None:
                return Described(
                    size_bytes=found[2], validator=strong_validator(headers), is_ranged=True, sha256=sha256
                )
            if answer.status == 416 and found is not None and found[2] == 0:
                return Described(size_bytes=0, validator=strong_validator(headers), sha256=sha256)
            if answer.status == 200:
                # Neither length nor chunks: the end of such a body cannot be told from a broken connection.
                size = answer.content_length
                return Described(size_bytes=size, validator=strong_validator(headers), sha256=sha256)
            raise Refused(f"{self.name}: {answer.status} to the first byte, {headers.get('Content-Range')!r}")

    @asynccontextmanager
    async def opened(self, span: Span | None, version: Described) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a span with If-Range, or all of it."""
        sent = {} if span is None else {"Range": f"bytes={span.start}-{span.end - 1}"}
        if span is not None and version.validator is not None:
            sent["If-Range"] = version.validator
        try:
            async with self._web.opened(self._url, sent, self._authorizer) as answer:
                self._check_coding(answer)
                self._check_version(answer, span, version)
                yield chunks_of(answer)
        except NotThere as error:
            raise Changed(f"{error}, after it was there") from error

    def _check_version(self, answer: aiohttp.ClientResponse, span: Span | None, version: Described) -> None:
        if is_other_version(version.validator, answer.headers) or answer.status in {412, 416}:
            raise Changed(f"{self.name}: changed while it was read")
        if span is None:
            if answer.status != 200:
                raise Refused(f"{self.name}: {answer.status} where the whole was asked for")
            if version.size_bytes is not None and answer.content_length not in {None, version.size_bytes}:
                raise Changed(f"{self.name}: changed its size while it was read")
            if answer.content_length is None and answer.headers.get("Transfer-Encoding", "").lower() != "chunked":
                raise Refused(f"{self.name}: tells neither a length nor chunks, so its end cannot be known")
            return
        if answer.status != 206:
            # A server that ignores If-Range's meaning and one whose file changed answer alike: the whole, with 200.
            raise Changed(f"{self.name}: sends the whole where a range was asked for: it changed, or lost its ranges")
        found = content_range(answer.headers.get("Content-Range"))
        if found is None or found[0] != span.start or found[1] > span.end:
            raise Transient(
                f"{self.name}: sends {answer.headers.get('Content-Range')!r} for bytes {span.start}-{span.end - 1}"
            )
        if found[2] not in {None, version.size_bytes}:
            raise Changed(f"{self.name}: changed its size while it was read")

    def _check_coding(self, answer: aiohttp.ClientResponse) -> None:
        coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in {"", "identity"}:
            raise Refused(f"{self.name}: sends {coding} although identity was asked for")
