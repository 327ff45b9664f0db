"""What every kind of source answers: what it has, and any span of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from warmpool.fetch.spans import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One version of one file, as its source tells it.

    Attributes:
        size_bytes: None where the source does not say.
        validator: Strong: two versions never share it. None where there is none.
        is_ranged: Whether spans can be asked for.
        sha256: Where the source names it (64 hex digits).
    """

    size_bytes: int | None
    validator: str | None = None
    is_ranged: bool = False
    sha256: str | None = None


class Source(Protocol):
    """A place that has the file, or may have it."""

    @property
    def name(self) -> str:
        """Return what people are told: never with a secret."""
        ...

    @property
    def address(self) -> str:
        """Return what tells this resource from another; only its digest is written down."""
        ...

    @property
    def is_cache(self) -> bool:
        """Whether it holds copies, of which only the checksum says that they are right."""
        ...

    async def describe(self) -> Described:
        """Return what it has.

        Raises:
            Transient: Ask again.
            DownloadError: It cannot help.
        """
        ...

    def opened(self, span: Span | None, version: Described) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the span, or all of it from the beginning, for reading in chunks.

        The chunks end early when the source breaks off without saying so; the caller counts.

        Raises:
            Transient: Ask again, perhaps for the rest.
            Changed: It holds another version by now.
            DownloadError: It cannot help.
        """
        ...
