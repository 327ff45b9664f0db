"""Keeps a sink equal to one collection of the API: list, then watch, for as long as it runs.

Facts it relies on: the watch cache answers resourceVersion=0 at once, bookmarks come about every minute, 410 means that
the version is too old to go on from. What a lost connection hid is found by comparing with the next list.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fleet.clock import Clock
from fleet.errors import ApiError, DecodeError, Gone, NotFound
from fleet.kube.answers import Stream, error_of
from fleet.kube.client import Client
from fleet.kube.wire import Bookmark, Deleted, EventParser, Failed, KubeObject, ListParser, T, Unreadable, Upserted

_log = logging.getLogger(__name__)

IDLE_S = 70.0
WATCH_S = (240, 300)
BACKOFF_S = (0.2, 30.0)
PAGE_SIZE = 500
LIST_TIMEOUT_S = 120.0
_ABSENT_API_RETRY_S = 60.0
_SOON_S = 1.0
# While nobody listens there, knocking costs nobody anything, and whoever waits for news counts from when it is back.
_NOBODY_THERE_FAILURES = 3

S = TypeVar("S", contravariant=True)


class Sink(Protocol[S]):
    """Who is told. Calls come one after another, in the order of the API; none may wait."""

    def upsert(self, obj: S) -> None:
        """Take a new or changed object; one that is known already may come again unchanged."""
        ...

    def delete(self, obj: S) -> None:
        """Take note that an object is gone; known by its uid, and whole only as far as Reflector says."""
        ...

    def synced(self) -> None:
        """Everything that a list held has been told: after the first list, and after each later one."""
        ...


@dataclass(slots=True)
class ReflectorStats:
    """Counts since the start, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    gone: int = 0
    failures: int = 0
    unreadable: int = 0


class Reflector(Generic[T]):
    """List and watch of one collection.

    Attributes:
        is_synced: True once a list has reached the sink; it stays True while a later one is fetched.
        seen_at_s: Monotonic time of the last sign of life from the server; -inf before the first.
        stats: Counts since the start.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        path: str,
        kind: type[T],
        sink: Sink[T],
        *,
        keeps_last: bool = True,
        params: dict[str, str] | None = None,
        on_unreadable: Callable[[Unreadable], None] | None = None,
        seed: int | None = None,
    ) -> None:
        """Prepare; nothing is asked before `run`.

        Args:
            client: Connected client.
            clock: For time-outs and back-off.
            path: The collection, all namespaces or one.
            kind: Struct to decode into; all its fields have defaults.
            sink: Who is told.
            keeps_last: Remember each object, so that `delete` gets it whole even when it went while no watch was
                open. Without it such a deletion carries the identity only, and the memory is saved.
            params: Selectors for list and watch.
            on_unreadable: Told of every object that had to be skipped.
            seed: Of the jitter.
        """
        self.is_synced = False
        self.seen_at_s = float("-inf")
        self.stats = ReflectorStats()
        self._client = client
        self._clock = clock
        self._path = path
        self._kind = kind
        self._sink = sink
        self._keeps_last = keeps_last
        self._params = params or {}
        self._on_unreadable = on_unreadable
        self._random = random.Random(seed)
        self._known: dict[tuple[str, str], tuple[str, T | None]] = {}
        self._version = ""
        self._is_first = True
        self._failures = 0
        self._stream: Stream | None = None
        self._refreshes: list[asyncio.Future[None]] = []
        self._is_wanted = asyncio.Event()

    async def run(self) -> None:
        """List and watch until cancelled. Faults of the server or of single objects never end it."""
        while True:
            wait_s = 0.0
            try:
                while self._refreshes or not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                self.stats.gone += 1
                self._version = ""
                wait_s = self._backoff_s()
            except NotFound as error:
                wait_s = self._absent(error)
            except (ApiError, DecodeError) as error:
                self.stats.failures += 1
                asked_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
                if isinstance(error, ApiError) and error.reason == "NotSent":
                    self._failures = min(self._failures, _NOBODY_THERE_FAILURES)
                wait_s = max(asked_s, self._backoff_s())
                _log.warning("watch of %s: %s; next try in %.1f s", self._path, error, wait_s)
            await self._pause(wait_s)

    async def refresh(self) -> None:
        """List again from quorum, and return once the sink has it all. A new leader needs that before it writes."""
        done = asyncio.get_running_loop().create_future()
        self._refreshes.append(done)
        self._is_first = False
        self._is_wanted.set()
        if self._stream is not None:
            self._stream.close()
        await done

    async def _pause(self, wait_s: float) -> None:
        """Wait, but not while somebody waits for a refresh."""
        self._is_wanted.clear()
        pause = asyncio.ensure_future(self._clock.sleep(wait_s))
        wanted = asyncio.ensure_future(self._is_wanted.wait())
        try:
            await asyncio.wait((pause, wanted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            wanted.cancel()

    def _backoff_s(self) -> float:
        least_s, most_s = BACKOFF_S
        wait_s: float = min(most_s, least_s * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return wait_s * self._random.uniform(0.5, 1.0)

    def _absent(self, error: NotFound) -> float:
        """Treat a collection that the server does not have as empty; one that had objects is only out of reach."""
        if self._known:
            self.stats.failures += 1
            _log.warning("watch of %s: %s", self._path, error)
            return self._backoff_s()
        if not self.is_synced:
            _log.info("the server does not serve %s: taken as empty", self._path)
        self.seen_at_s = self._clock.monotonic_s()
        refreshes, self._refreshes = self._refreshes, []
        self._has_synced(refreshes)
        return _ABSENT_API_RETRY_S

    async def _list(self) -> None:
        refreshes, self._refreshes = self._refreshes, []
        self.stats.lists += 1
        seen: set[tuple[str, str]] = set()
        token = ""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                while True:
                    parser: ListParser[T] = ListParser(self._kind)
                    async with self._client.stream(self._path, self._list_params(token)) as stream:
                        async for chunk in stream.chunks():
                            self.seen_at_s = self._clock.monotonic_s()
                            self._upsert_all(parser.feed(chunk), seen)
                    self._upsert_all(parser.finish(), seen)
                    for unreadable in parser.unreadable:
                        self._skip(unreadable)
                        seen.add((unreadable.namespace, unreadable.name))
                    token = parser.meta.continue_
                    if not token:
                        break
        except BaseException as error:
            self._refreshes = refreshes + self._refreshes
            if isinstance(error, TimeoutError):
                raise ApiError(0, "NoAnswer", f"list took longer than {LIST_TIMEOUT_S} s") from error
            raise
        for key in self._known.keys() - seen:
            self._forget(key)
        self._version = parser.meta.resource_version
        self._is_first = False
        self._failures = 0
        self._has_synced(refreshes)

    def _list_params(self, token: str) -> dict[str, str]:
        if self._is_first:
            # From the watch cache, whole: the cheapest for the server; a watch follows and makes up what is stale.
            return {**self._params, "resourceVersion": "0"}
        page = {"limit": str(PAGE_SIZE), "continue": token} if token else {"limit": str(PAGE_SIZE)}
        return {**self._params, **page}

    def _has_synced(self, refreshes: list[asyncio.Future[None]]) -> None:
        self.is_synced = True
        self._sink.synced()
        for done in refreshes:
            if not done.done():
                done.set_result(None)

    async def _watch(self) -> None:
        self.stats.watches += 1
        parser: EventParser[T] = EventParser(self._kind)
        params = {
            **self._params,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._random.randint(*WATCH_S)),
        }
        started_at_s = self._clock.monotonic_s()
        before = self.stats.events + self.stats.bookmarks
        async with self._client.stream(self._path, params) as stream:
            self.seen_at_s = self._clock.monotonic_s()
            self._stream = stream
            watchdog = asyncio.create_task(self._close_when_idle(stream))
            try:
                if self._refreshes:
                    return
                async for chunk in stream.chunks():
                    self.seen_at_s = self._clock.monotonic_s()
                    for event in parser.feed(chunk):
                        self._take(event)
                    self._failures = 0
            except ApiError:
                if watchdog.done():
                    _log.info("watch of %s: silent for %.0f s, opened anew", self._path, IDLE_S)
                elif not self._refreshes:
                    raise
                return
            finally:
                self._stream = None
                watchdog.cancel()
                with suppress(asyncio.CancelledError):
                    await watchdog
        is_barren = self.stats.events + self.stats.bookmarks == before
        if is_barren and self._clock.monotonic_s() - started_at_s < _SOON_S:
            raise ApiError(0, "NoAnswer", "the watch ended as soon as it began")

    async def _close_when_idle(self, stream: Stream) -> None:
        """A half-open connection never says anything again; a live one mostly sends a bookmark a minute.

        Mostly: of a collection that never changed the server has none to send. So silence is no failure, only a reason
        to look.
        """
        while True:
            left_s = self.seen_at_s + IDLE_S - self._clock.monotonic_s()
            if left_s <= 0.0:
                stream.close()
                return
            await self._clock.sleep(left_s)

    def _take(self, event: Upserted[T] | Deleted[T] | Bookmark | Failed | Unreadable) -> None:
        match event:
            case Upserted():
                self.stats.events += 1
                self._upsert(event.object)
                self._advance(event.object)
            case Deleted():
                self.stats.events += 1
                self._delete(event.object)
                self._advance(event.object)
            case Bookmark():
                self.stats.bookmarks += 1
                self._advance(event.object)
            case Failed():
                trouble = event.object
                raise error_of(trouble.code, trouble.reason, trouble.message)
            case Unreadable():
                self._skip(event)

    def _advance(self, obj: KubeObject) -> None:
        if obj.metadata.resource_version:
            self._version = obj.metadata.resource_version

    def _upsert_all(self, objects: list[T], seen: set[tuple[str, str]]) -> None:
        for obj in objects:
            seen.add((obj.metadata.namespace, obj.metadata.name))
            self._upsert(obj)

    def _upsert(self, obj: T) -> None:
        metadata = obj.metadata
        key = (metadata.namespace, metadata.name)
        known = self._known.get(key)
        if known is not None and known[0] != metadata.uid:
            self._forget(key)  # the same name, made anew: the old one's end was missed
        self._known[key] = (metadata.uid, obj if self._keeps_last else None)
        self._sink.upsert(obj)

    def _delete(self, obj: T) -> None:
        """Tell a deletion of what was told: not of what could never be read, nor of what is here anew."""
        key = (obj.metadata.namespace, obj.metadata.name)
        known = self._known.get(key)
        if known is not None and known[0] == obj.metadata.uid:
            del self._known[key]
            self._sink.delete(obj)

    def _forget(self, key: tuple[str, str]) -> None:
        uid, last = self._known.pop(key)
        self._sink.delete(last if last is not None else EventParser(self._kind).bare(*key, uid))

    def _skip(self, unreadable: Unreadable) -> None:
        self.stats.unreadable += 1
        _log.warning(
            "skipped an object of %s that cannot be read: %s: %s", self._path, unreadable.key, unreadable.error
        )
        if self._on_unreadable is not None:
            self._on_unreadable(unreadable)
