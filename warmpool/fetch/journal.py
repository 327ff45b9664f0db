"""What is remembered of an unfinished file, beside it: its version, and which bytes are safe on disk. Pure."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

import msgspec

from warmpool.fetch.spans import Span, merged

_VERSION = 1
LARGEST_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The state of a partial file.

    Attributes:
        identity: Which content: see `identity`.
        size_bytes: Of the whole.
        inode: Of the partial file; a journal says nothing about another file of that name.
        done: Merged spans that were synced before this was written.
    """

    identity: str
    size_bytes: int
    inode: int
    done: tuple[Span, ...] = ()


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    identity: str
    size_bytes: int
    inode: int
    done: list[tuple[int, int]]


def identity(sha256: str | None, address: str, validator: str | None) -> str | None:
    """Return what must be equal for two transfers to be of the same bytes, None where nothing can say so.

    The checksum alone where it is known: any source of it will do. Otherwise address and strong validator together
    (entity tags are only compared within one resource, RFC 9110 8.8.3). No address stands in it, only a digest.
    """
    if sha256 is not None:
        return f"sha256:{sha256}"
    if validator is None:
        return None
    return "version:" + hashlib.sha256(f"{address}\n{validator}".encode()).hexdigest()


def encoded(journal: Journal) -> bytes:
    """Return the file's content: one line of JSON and its CRC-32."""
    stored = _Stored(
        version=_VERSION,
        identity=journal.identity,
        size_bytes=journal.size_bytes,
        inode=journal.inode,
        done=[(span.start, span.end) for span in merged(journal.done)],
    )
    line = msgspec.json.encode(stored)
    return line + b"\n%08x\n" % zlib.crc32(line)


def decoded(raw: bytes) -> Journal | None:
    """Return the journal, None if these bytes are not exactly what `encoded` writes: then the file starts over."""
    line, _, rest = raw.partition(b"\n")
    if len(raw) > LARGEST_BYTES or rest != b"%08x\n" % zlib.crc32(line):
        return None
    try:
        stored = msgspec.json.decode(line, type=_Stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    spans = tuple(Span(start, end) for start, end in stored.done)
    is_sound = stored.version == _VERSION and stored.size_bytes >= 0 and spans == merged(spans)
    if not is_sound or (spans and not 0 <= spans[0].start <= spans[-1].end <= stored.size_bytes):
        return None
    return Journal(identity=stored.identity, size_bytes=stored.size_bytes, inode=stored.inode, done=spans)


def resumable(
    found: Journal | None, *, wanted: str | None, size_bytes: int, inode: int, partial_bytes: int
) -> tuple[Span, ...]:
    """Return the bytes that need not be fetched again; none where anything differs.

    Args:
        found: The journal, if one could be read.
        wanted: Identity of what the source offers now.
        size_bytes: Its size.
        inode: Of the partial file.
        partial_bytes: Its length.
    """
    if found is None or wanted is None:
        return ()
    same = (found.identity, found.size_bytes, found.inode) == (wanted, size_bytes, inode)
    return found.done if same and partial_bytes == size_bytes else ()
