"""Objects in S3 and what speaks like it, through obstore (Rust's object_store), which signs and finds credentials."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from warmpool.fetch.errors import Changed, NotThere, Refused, Transient
from warmpool.fetch.source import Described
from warmpool.fetch.spans import Span

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Store

_CHUNK_BYTES = 2**17
_MOST_KEYS = 10_000
_LONGEST_MESSAGE = 300


class Bucket:
    """One bucket.

    Credentials come from where the AWS libraries look for them (`AWS_*` variables, web identity, container and
    instance metadata); without any, `AWS_SKIP_SIGNATURE=true` asks anonymously.
    """

    def __init__(self, name: str, *, endpoint: str | None = None, ca: bytes | None = None) -> None:
        """Prepare to ask; nothing is sent yet.

        Args:
            name: Of the bucket.
            endpoint: Address of a compatible service, else `AWS_ENDPOINT_URL`, else AWS.
            ca: Further authorities to trust, PEM.

        Raises:
            Refused: obstore is not installed, or its settings contradict each other.
        """
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError as error:
            raise Refused("s3:// needs the package obstore: pip install 'berthmaster[fetch]'") from error
        self.name = name
        self._library: Any = obstore
        endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options: ClientConfig = {
            "allow_http": (endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=10),
            "read_timeout": timedelta(seconds=30),
            # Of a whole request, body included: a span may take long on a slow line; silence is what is watched.
            "timeout": timedelta(days=1),
        }
        if ca is not None:
            options["root_certificate"] = ca
        given: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
            given["region"] = "us-east-1"
        try:
            # Retries are ours: they know what has come, and what a person has been told.
            self._store: S3Store = S3Store(name, client_options=options, retry_config={"max_retries": 0}, **given)
        except obstore.exceptions.BaseError as error:
            raise Refused(f"s3://{name}: {_short(error)}") from error

    async def described(self, key: str) -> Described:
        """Return size and version of an object."""
        with self._told(key):
            found = await self._library.head_async(self._store, key)
        return Described(size_bytes=found["size"], validator=found["e_tag"], is_ranged=True)

    @asynccontextmanager
    async def opened(self, key: str, span: Span | None, version: Described) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a span of the version described."""
        options: dict[str, Any] = {} if span is None else {"range": (span.start, span.end)}
        if version.validator is not None:
            options["if_match"] = version.validator
        with self._told(key):
            found = await self._library.get_async(self._store, key, options=options)
        # Not every compatible service knows If-Match.
        if found.meta["size"] != version.size_bytes or found.meta["e_tag"] != version.validator:
            raise Changed(f"s3://{self.name}/{key}: changed while it was read")
        if span is not None and tuple(found.range) != tuple(span):
            raise Transient(f"s3://{self.name}/{key}: sends bytes {found.range} for {tuple(span)}")
        yield self._chunks(found, key)

    async def _chunks(self, found: Any, key: str) -> AsyncIterator[bytes]:
        stream = found.stream(min_chunk_size=_CHUNK_BYTES)
        while True:
            with self._told(key):
                try:
                    chunk = await anext(stream)
                except StopAsyncIteration:
                    return
            yield bytes(chunk)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys of all objects under a prefix, folders' own markers left out.

        Raises:
            Refused: There are too many, or none.
        """
        found: list[str] = []
        listing = self._library.list(self._store, prefix.rstrip("/") or None)
        while True:
            with self._told(prefix):
                try:
                    batch = await anext(listing)
                except StopAsyncIteration:
                    break
            found += [entry["path"] for entry in batch if not entry["path"].endswith("/")]
            if len(found) > _MOST_KEYS:
                raise Refused(f"s3://{self.name}/{prefix}: more than {_MOST_KEYS} objects")
        if not found:
            raise NotThere(f"s3://{self.name}/{prefix}: no object begins like that")
        return sorted(found)

    def _told(self, key: str) -> _Told:
        return _Told(self._library.exceptions, f"s3://{self.name}/{key}")


class _Told:
    """Turns the library's errors into ours."""

    def __init__(self, kinds: Any, place: str) -> None:
        self._kinds = kinds
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # The library tells a missing object by Python's own exception, not by the one that it documents.
        if isinstance(error, (FileNotFoundError, self._kinds.NotFoundError)):
            raise NotThere(f"{self._place}: {_short(error)}") from error
        if not isinstance(error, self._kinds.BaseError):
            return
        message = f"{self._place}: {_short(error)}"
        if isinstance(error, self._kinds.PreconditionError):
            raise Changed(f"{self._place}: changed while it was read") from error
        if isinstance(error, self._kinds.GenericError):
            # The library tells status codes only in words.
            raise Transient(message, is_throttled=" 503 " in message or " 429 " in message) from error
        raise Refused(message) from error


def _short(error: BaseException) -> str:
    """Return the first paragraph of the library's message; what follows is its own debugging."""
    return " ".join(str(error).partition("\n\n")[0].split())[:_LONGEST_MESSAGE].rstrip(": ")


class S3Source:
    """One object."""

    is_cache = False

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key

    @property
    def name(self) -> str:
        """Return its address."""
        return f"s3://{self._bucket.name}/{self._key}"

    @property
    def address(self) -> str:
        """Return its address."""
        return self.name

    async def describe(self) -> Described:
        """Ask for its head."""
        return await self._bucket.described(self._key)

    @asynccontextmanager
    async def opened(self, span: Span | None, version: Described) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a span."""
        async with self._bucket.opened(self._key, span, version) as chunks:
            yield chunks


def bucket_and_key(url: str) -> tuple[str, str]:
    """Return both parts of s3://bucket/key; the key may be a prefix that ends with a slash.

    Raises:
        Refused: It is no such address.
    """
    split = urlsplit(url)
    key = unquote(split.path.lstrip("/"))
    if split.scheme != "s3" or not split.netloc or "@" in split.netloc or not key or split.query:
        raise Refused(f"{url}: not s3://bucket/key")
    return split.netloc, key
