"""Bounded questions over HTTP to addresses that an operator configured: exporters beside a balancer, Prometheus.

Every question has one time-out for all of it and a largest answer. Redirects are not followed, so that a token reaches
nobody but the address that was named.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from fleet.errors import BerthmasterError, ConfigError

LARGEST_ANSWER_BYTES = 16 * 2**20
_CONNECT_TIMEOUT_S = 2.0
_LONGEST_EXCERPT = 200
_LONGEST_READ = 16 * 2**10


class FetchError(BerthmasterError):
    """No usable answer came.

    Attributes:
        kind: For counting: timeout, unreachable, status, redirect, too-large, broken, token, tls.
        status: HTTP status where one came, else 0.
    """

    def __init__(self, kind: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class TokenFile:
    """A bearer token in a file that may be rotated: read again whenever the file has changed."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Return the token of now.

        Raises:
            ConfigError: The file cannot be read, holds no token, or one that cannot stand in a header.
        """
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._token = self._checked(self._path.read_bytes())
                self._seen = seen
        except OSError as error:
            raise ConfigError([f"token file {self._path}: {error.strerror}"]) from error
        return self._token

    def _checked(self, raw: bytes) -> str:
        text = raw.decode("utf-8", "replace").strip()
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise ConfigError([f"token file {self._path}: holds no token on a single line"])
        return text


def tls_context(
    ca_file: str | Path | None = None, cert_file: str | Path | None = None, key_file: str | Path | None = None
) -> ssl.SSLContext:
    """Return a client's context that verifies the peer, always.

    Args:
        ca_file: Whom to trust instead of the system's authorities.
        cert_file: Own certificate to show, with `key_file`.
        key_file: Its key.

    Raises:
        ConfigError: A file cannot be read, or is none.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(str(path) for path in (ca_file, cert_file, key_file) if path)
        raise ConfigError([f"TLS files {named}: {error}"]) from error
    return context


class Http:
    """One session for many addresses. Use as an async context manager."""

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, user_agent: str = "berthmaster", most_connections: int = 64
    ) -> None:
        self._tls = tls
        self._user_agent = user_agent
        self._most_connections = most_connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._most_connections, limit_per_host=8, ssl=True if self._tls is None else self._tls
            ),
            headers={"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "gzip"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        token: TokenFile | None = None,
        timeout_s: float,
        largest_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> bytes:
        """Return the body of a 200 answer to GET.

        Args:
            url: http or https.
            params: Query, quoted here.
            token: Sent as `Authorization: Bearer`.
            timeout_s: For all of it: connecting, waiting, reading.
            largest_bytes: Of the body once unpacked; reading stops there.

        Raises:
            FetchError: Anything else came, or nothing.
        """
        return await self._ask("GET", url, params, None, token, timeout_s, largest_bytes)

    async def post_form(
        self,
        url: str,
        form: Mapping[str, str],
        *,
        token: TokenFile | None = None,
        timeout_s: float,
        largest_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> bytes:
        """Return the body of a 200 answer to a form, for questions too long for a query; otherwise as `get`."""
        return await self._ask("POST", url, None, form, token, timeout_s, largest_bytes)

    async def _ask(
        self,
        method: str,
        url: str,
        params: Mapping[str, str] | None,
        form: Mapping[str, str] | None,
        token: TokenFile | None,
        timeout_s: float,
        largest_bytes: int,
    ) -> bytes:
        if self._session is None:
            raise RuntimeError("Http is used outside of its async with block")
        headers, shown = {}, ""
        if token is not None:
            try:
                shown = token.read()
                headers["Authorization"] = f"Bearer {shown}"
            except ConfigError as error:
                raise FetchError("token", str(error)) from error
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, _CONNECT_TIMEOUT_S))
        asked, url = url, _public(url)  # what is said of it is read by many: logs, conditions, events
        try:
            async with self._session.request(
                method, URL(asked), params=params, data=form, headers=headers, timeout=limits, allow_redirects=False
            ) as answer:
                return await _body(answer, url, largest_bytes, shown)
        except TimeoutError as error:
            raise FetchError("timeout", f"{url}: no answer within {timeout_s:g} s") from error
        except aiohttp.ClientSSLError as error:
            raise FetchError("tls", f"{url}: {error}") from error
        except aiohttp.ClientConnectorError as error:
            raise FetchError("unreachable", f"{url}: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise FetchError("broken", f"{url}: {type(error).__name__}: {error}") from error


def _public(url: str) -> str:
    """Return an address without the name and password that may stand in it."""
    try:
        return str(URL(url).with_user(None))
    except ValueError:
        return "an address that is none"


async def _body(answer: aiohttp.ClientResponse, url: str, largest_bytes: int, token: str) -> bytes:
    if 300 <= answer.status < 400:
        raise FetchError("redirect", f"{url}: sends elsewhere ({answer.status}), which is not followed", answer.status)
    if answer.status != 200:
        # Who answers with what it was asked must not carry a token into logs and conditions.
        said = (await answer.content.read(_LONGEST_READ)).decode("utf-8", "replace").strip()
        said = said.replace(token, "(token)")[:_LONGEST_EXCERPT] if token else said[:_LONGEST_EXCERPT]
        raise FetchError("status", f"{url}: {answer.status} {answer.reason}: {said}", answer.status)
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > largest_bytes:
            raise FetchError("too-large", f"{url}: the answer is larger than {largest_bytes} bytes")
    return bytes(body)
