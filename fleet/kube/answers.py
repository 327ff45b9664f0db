"""What comes back from the API server: bodies piece by piece, error statuses and broken lines as exceptions."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import msgspec
from yarl import URL

from fleet.errors import ApiError, Conflict, Gone, Invalid, NotFound

_LONGEST_ERROR_BODY = 64 * 1024
_LONGEST_MESSAGE = 500
_GZIP = 16 + zlib.MAX_WBITS
# A small packed piece can hold megabytes; they are handed on in pieces that stay in the processor's cache.
_LARGEST_PIECE = 256 * 1024

_ERRORS: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Gone, 422: Invalid}


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0


class Status(msgspec.Struct):
    """The API's answer to a request that failed (meta/v1 Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(Status).decode


def error_of(code: int, reason: str, message: str, retry_after_s: float = 0.0) -> ApiError:
    """Return the exception for an error status, its message cut to a sane length."""
    kind = _ERRORS.get(code, ApiError)
    shown = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
    return kind(code, reason or "Unknown", shown, retry_after_s)


class Stream:
    """The body of one answer, piece by piece, unpacked. `close` from elsewhere ends it as a broken connection."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they come, of any size but none empty.

        Raises:
            ApiError: The body broke off or cannot be unpacked (status 0).
        """
        unpack = zlib.decompressobj(_GZIP) if self._answer.headers.get("Content-Encoding") == "gzip" else None
        content = self._answer.content
        while not content.at_eof():
            with transport_errors("GET", self._answer.url):
                packed = await content.readany()
            if unpack is None:
                if packed:
                    yield packed
                continue
            while packed:
                with transport_errors("GET", self._answer.url):
                    chunk = unpack.decompress(packed, _LARGEST_PIECE)
                packed = unpack.unconsumed_tail
                if chunk:
                    yield chunk

    def close(self) -> None:
        """Drop the connection."""
        self._answer.close()


@contextmanager
def transport_errors(method: str, url: URL) -> Iterator[None]:
    """Turn what the transport raises into ApiError 0: "NotSent" where no byte left, else "NoAnswer"."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise ApiError(0, "NotSent", f"{method} {url.path}: {error}") from error
    except (aiohttp.ClientError, TimeoutError, OSError, zlib.error) as error:
        text = str(error) or type(error).__name__
        raise ApiError(0, "NoAnswer", f"{method} {url.path}: {text[:_LONGEST_MESSAGE]}") from error


async def error_from(answer: aiohttp.ClientResponse) -> ApiError:
    """Return the exception for an answer with an error status; reads a bounded part of its body."""
    body = b""
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) >= _LONGEST_ERROR_BODY:
            break
    header = answer.headers.get("Retry-After", "")
    retry_after_s = float(header) if header.isascii() and header.isdigit() else 0.0
    try:
        status = _decode_status(body)
    except msgspec.MsgspecError:
        text = body.decode("utf-8", "replace").strip()
        return error_of(answer.status, answer.reason or "", text, retry_after_s)
    if status.details is not None:
        retry_after_s = max(retry_after_s, status.details.retry_after_seconds)
    return error_of(answer.status, status.reason or answer.reason or "", status.message, retry_after_s)
