"""Requests over HTTP(S) for large bodies: redirects followed a few times, secrets only ever sent where they belong."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Protocol, Self

import aiohttp
from yarl import URL

from warmpool.fetch.errors import DownloadError, NotThere, Refused, Transient
from warmpool.fetch.headers import retry_after_s
from warmpool.fetch.names import shown

_MOST_REDIRECTS = 5
_CONNECT_S = 10.0
# A stream that brings nothing for so long is broken off and asked for again.
_SILENCE_S = 30.0
_LONGEST_EXCERPT = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Authorizer(Protocol):
    """Knows the secret for one origin."""

    async def header(self, url: URL) -> str | None:
        """Return the Authorization header for this address; None for every origin but its own."""
        ...

    async def challenged(self, url: URL, challenges: list[str]) -> bool:
        """Take the WWW-Authenticate headers of a 401; return whether asking again can help."""
        ...


class Anonymous:
    """Has no secret."""

    async def header(self, url: URL) -> str | None:
        """Return None."""
        return None

    async def challenged(self, url: URL, challenges: list[str]) -> bool:
        """Return False."""
        return False


class FixedHeader:
    """One header for one origin: a bearer token, or user and password from an address."""

    def __init__(self, origin: URL, value: str) -> None:
        self._origin = origin.origin()
        self._value = value

    async def header(self, url: URL) -> str | None:
        """Return the header for its origin."""
        return self._value if url.origin() == self._origin else None

    async def challenged(self, url: URL, challenges: list[str]) -> bool:
        """Return False: there is no other header to try."""
        return False


class Web:
    """One session for all downloads. Use as an async context manager."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=True if self._tls is None else self._tls),
            headers={"User-Agent": "berthmaster-fetch", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def opened(
        self, url: URL, headers: Mapping[str, str], authorizer: Authorizer, seen: dict[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open the answer to GET behind all redirects; its status is 200, 206, 412 or 416.

        Args:
            url: http or https, without user and password.
            headers: Sent to every address on the way; they hold no secret.
            authorizer: Asked at every address.
            seen: Takes the headers of every redirect.

        Raises:
            Transient: No answer, or one that may pass.
            NotThere: 404 or 410.
            Refused: Another status, or a redirect that is not followed.
        """
        async with AsyncExitStack() as stack:
            yield await self._followed(url, headers, authorizer, {} if seen is None else seen, stack)

    async def _followed(
        self, url: URL, headers: Mapping[str, str], authorizer: Authorizer, seen: dict[str, str], stack: AsyncExitStack
    ) -> aiohttp.ClientResponse:
        may_ask_again = True
        hops = 0
        while hops <= _MOST_REDIRECTS:
            answer = await self._asked(url, headers, authorizer)
            if answer.status in _REDIRECTS:
                seen.update(answer.headers)
                target = answer.headers.get("Location")
                answer.release()
                url, hops = next_hop(url, target), hops + 1
            elif answer.status == 401 and may_ask_again:
                may_ask_again = False
                challenges = answer.headers.getall("WWW-Authenticate", [])
                answer.release()
                if not await authorizer.challenged(url, challenges):
                    raise Refused(
                        f"{shown(str(url))}: 401 {answer.reason}: needs credentials, or others than those given"
                    )
            else:
                stack.callback(answer.close if answer.status not in {412, 416} else answer.release)
                await _judge(answer, url)
                return answer
        raise Refused(f"{shown(str(url))}: more than {_MOST_REDIRECTS} redirects")

    async def _asked(self, url: URL, headers: Mapping[str, str], authorizer: Authorizer) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("Web is used outside of its async with block")
        secret = await authorizer.header(url)
        sent = dict(headers) if secret is None else {**headers, "Authorization": secret}
        try:
            return await self._session.get(url, headers=sent, allow_redirects=False, proxy=_proxy(url))
        except aiohttp.ClientSSLError as error:
            raise Refused(f"{shown(str(url))}: {error}") from error
        except aiohttp.InvalidURL as error:
            raise Refused(f"{shown(str(url))}: not an address") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Transient(f"{shown(str(url))}: {said(error)}") from error

    async def small(
        self, url: URL, headers: Mapping[str, str], authorizer: Authorizer, largest_bytes: int
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return body and headers of a 200 answer that is read whole.

        Raises:
            Transient, NotThere, Refused: As `opened`; also when the body is larger.
        """
        async with self.opened(url, headers, authorizer) as answer:
            if answer.status != 200:
                raise Refused(f"{shown(str(url))}: {answer.status} {answer.reason}")
            body = bytearray()
            async for chunk in chunks_of(answer):
                body += chunk
                if len(body) > largest_bytes:
                    raise Refused(f"{shown(str(url))}: the answer is larger than {largest_bytes} bytes")
            return bytes(body), answer.headers

    async def posted(self, url: URL, form: Mapping[str, str], largest_bytes: int) -> bytes:
        """Return the body of a 200 answer to a form; redirects are not followed, because the form holds a secret.

        Raises:
            Transient, NotThere, Refused: As `opened`.
        """
        if self._session is None:
            raise RuntimeError("Web is used outside of its async with block")
        try:
            async with self._session.post(url, data=form, allow_redirects=False, proxy=_proxy(url)) as answer:
                await _judge(answer, url)
                body = await answer.content.read(largest_bytes + 1)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Transient(f"{shown(str(url))}: {said(error)}") from error
        if answer.status != 200 or len(body) > largest_bytes:
            raise Refused(f"{shown(str(url))}: {answer.status}, {len(body)} bytes: not what was asked for")
        return body


async def chunks_of(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body in what the socket brings (64 KiB or so).

    Raises:
        Transient: It broke off.
    """
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise Transient(f"{shown(str(answer.url))}: broke off: {said(error)}") from error


def said(error: BaseException) -> str:
    """Return an exception in a few words, never empty."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


def next_hop(url: URL, location: str | None) -> URL:
    """Return where a redirect leads; refuses to leave TLS, and drops user and password that it may carry."""
    try:
        target = url.join(URL(location or ""))
    except ValueError as error:
        raise Refused(f"{shown(str(url))}: sends to an address that cannot be read") from error
    if not location or target.scheme not in {"http", "https"} or not target.host:
        raise Refused(f"{shown(str(url))}: sends to {shown(str(target))}, which is not followed")
    if url.scheme == "https" and target.scheme == "http":
        raise Refused(f"{shown(str(url))}: sends from https to {shown(str(target))}, which is not followed")
    return target.with_user(None)


async def _judge(answer: aiohttp.ClientResponse, url: URL) -> None:
    status = answer.status
    if status in {200, 206, 412, 416}:
        return
    kind: type[DownloadError] = NotThere if status in {404, 410} else Refused
    try:
        excerpt = (await answer.content.read(_LONGEST_EXCERPT)).decode("utf-8", "replace")
    except (aiohttp.ClientError, OSError, TimeoutError):
        excerpt = ""
    excerpt = " ".join("".join(sign if sign.isprintable() else " " for sign in excerpt).split())
    message = f"{shown(str(url))}: {status} {answer.reason}" + (f": {excerpt}" if excerpt else "")
    if status in _PASSING:
        raise Transient(message, retry_after_s(answer.headers), is_throttled=status in {429, 503})
    raise kind(message)


def _proxy(url: URL) -> str | None:
    """Return the proxy that the environment names for this address."""
    host = url.host or ""
    if urllib.request.proxy_bypass(f"{host}:{url.port}"):
        return None
    return urllib.request.getproxies().get(url.scheme)
