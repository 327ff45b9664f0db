"""Lists and watch events, as bytes arrive, to typed structs.

A list is decoded in slices while it comes in, so that 100 MB of JSON never stand in memory at once. An object that
cannot be decoded is named and left out; its neighbours are not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fleet.errors import DecodeError
from fleet.kube.objects import MetaObject

_SLICE_BYTES = 256 * 1024
_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 16 * 1024 * 1024
_ITEMS = b'"items":['
# Between two items of a list. Inside a JSON string the quotes would be escaped, so it cannot stand in one; where it
# stands between other objects (a list of templates), the slice before it does not parse and is read on.
_BETWEEN = b'},{"metadata":{'
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class KubeObject(Protocol):
    """What every typed object has."""

    @property
    def metadata(self) -> MetaObject:
        """Return name, namespace, uid and resourceVersion."""
        ...


T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object or event that was skipped; namespace, name and uid as far as they could be read."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    error: str

    @property
    def key(self) -> str:
        """Return namespace/name for people, "?" for what is unknown."""
        return "/".join(part for part in (self.namespace, self.name or "?") if part)


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Bare(msgspec.Struct, gc=False):
    """An object of which only the identity is read."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)


class _Identity(msgspec.Struct, rename="camel", gc=False):
    name: Any = ""
    namespace: Any = ""
    uid: Any = ""
    resource_version: Any = ""


class _Nameless(msgspec.Struct, gc=False):
    metadata: _Identity = msgspec.field(default_factory=_Identity)


class _AnyEvent(msgspec.Struct, gc=False):
    type: str
    object: _Nameless = msgspec.field(default_factory=_Nameless)


class Bookmark(msgspec.Struct, tag="BOOKMARK", tag_field="type", gc=False):
    """How far the watch has come, without news."""

    object: Bare


class _Trouble(msgspec.Struct, gc=False):
    code: int = 0
    reason: str = ""
    message: str = ""


class Failed(msgspec.Struct, tag="ERROR", tag_field="type", gc=False):
    """The watch cannot go on."""

    object: _Trouble


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T]):
    """An object is new or changed."""

    object: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """An object is gone; this is the last that was seen of it."""

    object: T


class ListParser(Generic[T]):
    """Decodes one list response piece by piece.

    Attributes:
        meta: metadata of the list, once `finish` has returned.
        unreadable: Objects that were left out, in order.
    """

    def __init__(self, kind: type[T]) -> None:
        self.meta = ListMeta()
        self.unreadable: list[Unreadable] = []
        self._decode_slice = msgspec.json.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._decode_one = msgspec.json.Decoder(kind).decode
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = _SLICE_BYTES
        self._head = b""
        self._is_whole = False

    def feed(self, chunk: bytes) -> list[T]:
        """Take the next piece of the body; returns the objects that are complete with it."""
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size < self._wanted or self._is_whole:
            return []
        return self._take_slice()

    def finish(self) -> list[T]:
        """Return the remaining objects at the end of the body, and fill `meta`.

        Raises:
            DecodeError: The body is no list, or ends in the middle of one.
        """
        rest = b"".join(self._pieces)
        if not self._head:
            rest = self._cut_head(rest)
        if self._head and rest.rstrip().endswith(b"]}"):
            try:
                self.meta = _decode_page(self._head + b"]}").metadata
                return self._slice(rest.rstrip()[:-2])
            except _UNREADABLE as error:
                raise DecodeError(f"not a list of objects: {error}") from error
        try:
            page = _decode_page(self._head + rest)
        except _UNREADABLE as error:
            raise DecodeError(f"not a list of objects: {error}") from error
        self.meta = page.metadata
        return self._one_by_one(page.items or [])

    def _take_slice(self) -> list[T]:
        data = b"".join(self._pieces)
        if not self._head:
            data = self._cut_head(data)
        cut = data.rfind(_BETWEEN) if self._head else -1
        if cut >= 0:
            try:
                objects = self._slice(data[: cut + 1])
            except _UNREADABLE:
                cut = -1
            else:
                data = data[cut + 2 :]
                self._wanted = _SLICE_BYTES
        if cut < 0:
            objects = []
            self._wanted = 2 * max(self._wanted, len(data))
            self._is_whole = not self._head and len(data) > _LONGEST_HEAD
        self._pieces = [data]
        self._size = len(data)
        return objects

    def _cut_head(self, data: bytes) -> bytes:
        start = data.find(_ITEMS, 0, _LONGEST_HEAD)
        if start < 0:
            return data
        end = start + len(_ITEMS)
        self._head = data[:end]
        return data[end:]

    def _slice(self, items: bytes) -> list[T]:
        data = b"[" + items + b"]"
        try:
            return self._decode_slice(data)
        except _UNREADABLE:
            return self._one_by_one(_decode_raw(data))

    def _one_by_one(self, items: list[msgspec.Raw]) -> list[T]:
        objects: list[T] = []
        for raw in items:
            try:
                objects.append(self._decode_one(raw))
            except _UNREADABLE as error:
                self.unreadable.append(_named(raw, error))
        return objects


class EventParser(Generic[T]):
    """Decodes a watch response piece by piece: one event a line."""

    def __init__(self, kind: type[T]) -> None:
        self._bare = msgspec.json.Decoder(kind).decode
        added, modified, deleted = (
            msgspec.defstruct(name.title(), [("object", kind)], tag=name, tag_field="type", gc=False)
            for name in ("ADDED", "MODIFIED", "DELETED")
        )
        self._deleted: Any = deleted
        union: Any = added | modified | deleted | Bookmark | Failed
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(union).decode
        self._carry = b""

    def feed(self, chunk: bytes) -> Iterator[Upserted[T] | Deleted[T] | Bookmark | Failed | Unreadable]:
        """Yield the events that are complete with this piece.

        Raises:
            DecodeError: A line without end.
        """
        lines = (self._carry + chunk).split(b"\n") if self._carry else chunk.split(b"\n")
        self._carry = lines.pop()
        if len(self._carry) > _LONGEST_LINE:
            raise DecodeError(f"a watch event of more than {_LONGEST_LINE} bytes")
        for line in lines:
            if not line or line == b"\r":
                continue
            try:
                event = self._decode(line)
            except _UNREADABLE as error:
                yield self._salvaged(line, error)
                continue
            if isinstance(event, Bookmark | Failed):
                yield event
            elif isinstance(event, self._deleted):
                yield Deleted(event.object)
            else:
                yield Upserted(event.object)

    def bare(self, namespace: str, name: str, uid: str) -> T:
        """Return an object that has an identity and nothing else.

        Raises:
            DecodeError: The type demands more.
        """
        metadata = MetaObject(namespace=namespace, name=name, uid=uid)
        try:
            return self._bare(msgspec.json.encode(Bare(metadata=metadata)))
        except _UNREADABLE as error:
            raise DecodeError(f"{namespace}/{name}: {error}") from error

    def _salvaged(self, line: bytes, error: BaseException) -> Deleted[T] | Unreadable:
        """Return a deletion if the line says that much, for it needs no content; else the name of what was skipped."""
        try:
            event = _decode_any_event(line)
            found = _unreadable(event.object.metadata, error)
            if event.type == "DELETED" and found.uid:
                return Deleted(self.bare(found.namespace, found.name, found.uid))
        except (*_UNREADABLE, DecodeError):
            return Unreadable(error=_text(error))
        return found


class _Page(msgspec.Struct, gc=False):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_nameless = msgspec.json.Decoder(_Nameless).decode
_decode_any_event = msgspec.json.Decoder(_AnyEvent).decode


def _named(raw: msgspec.Raw, error: BaseException) -> Unreadable:
    try:
        return _unreadable(_decode_nameless(raw).metadata, error)
    except _UNREADABLE:
        return Unreadable(error=_text(error))


def _unreadable(identity: _Identity, error: BaseException) -> Unreadable:
    return Unreadable(
        namespace=str(identity.namespace)[:253],
        name=str(identity.name)[:253],
        uid=str(identity.uid)[:64],
        error=_text(error),
    )


def _text(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:300]
