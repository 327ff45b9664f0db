"""The Kubernetes API in memory, in place of the client: JSON objects, watches that lag, writes that fail.

Everything that goes wrong is drawn from one seeded generator, so that a run can be had again.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any
from urllib.parse import unquote

from fleet.clock import Clock
from fleet.errors import ApiError, Conflict, Gone, Invalid, NotFound, NotLeading
from fleet.kube import paths
from tests.support import json_patch

Object = dict[str, Any]
Key = tuple[str, str]

CLAIMS = paths.RESOURCE_CLAIMS
DEPLOYMENTS = "/apis/apps/v1/deployments"
REPLICA_SETS = "/apis/apps/v1/replicasets"


class Stream:
    """The answer to a list, or a watch whose events are held back until `deliver`."""

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self.is_open = True
        self.held: deque[tuple[int, bytes, Key, Object | None]] = deque()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(self, line: bytes) -> None:
        """Let the reader have a line."""
        self._lines.put_nowait(line)

    def close(self) -> None:
        """End as a broken connection does."""
        self.is_open = False
        self._lines.put_nowait(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield lines as they come."""
        while (line := await self._lines.get()) is not None:
            yield line
        raise ApiError(0, "NoAnswer", "the connection broke")


class Body(Stream):
    """A whole answer."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        yield await self._lines.get() or b""


class StormApi:
    """Stands in for the client of one planner after the other.

    Attributes:
        objects: The truth, by collection.
        seen: What the present planner was shown of it.
        trouble: How likely a write goes wrong; 0 = never.
        is_lagging: Whether events wait for `deliver`.
        is_late: Whether the write that takes place now was on its way for a while.
        before_write: Told (verb, path, old, new) before the planner changes an object; of an eviction, new is None.
        write_deadline_s: Of the client that this stands for.
    """

    def __init__(self, clock: Clock, rng: Random) -> None:
        self.write_deadline_s: Callable[[], float] | None = None
        self.objects: dict[str, dict[Key, Object]] = defaultdict(dict)
        self.seen: dict[str, dict[Key, Object]] = defaultdict(dict)
        self.trouble = 0.0
        self.is_lagging = False
        self.is_late = False
        self.faults = 0
        self.in_flight = 0
        self.before_write: Callable[[str, str, Object, Object | None], None] = lambda *_: None
        self._clock = clock
        self._rng = rng
        self._history: list[tuple[int, str, bytes, Key, Object | None]] = []
        self._streams: list[Stream] = []
        self._version = 1
        self._is_expired = False

    # -- what happens in the cluster -----------------------------------------------------------------------------

    def put(self, collection: str, obj: Object) -> Object:
        """Create or change an object."""
        key = key_of(obj)
        kind = "MODIFIED" if key in self.objects[collection] else "ADDED"
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[collection][key] = obj
        self._tell(collection, kind, key, obj)
        return obj

    def remove(self, collection: str, key: Key) -> None:
        """Delete an object for good."""
        obj = self.objects[collection].pop(key)
        self._version += 1
        last = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self._version)}}
        self._tell(collection, "DELETED", key, last)

    def change(self, collection: str, key: Key, how: Callable[[Object], None]) -> None:
        """Change a copy of an object and put it."""
        obj = copy.deepcopy(self.objects[collection][key])
        how(obj)
        self.put(collection, obj)

    def _tell(self, collection: str, kind: str, key: Key, obj: Object) -> None:
        line = json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"
        shown = None if kind == "DELETED" else obj
        self._history.append((self._version, collection, line, key, shown))
        for stream in self._streams:
            if stream.collection == collection:
                stream.held.append((self._version, line, key, shown))
        if not self.is_lagging:
            self.deliver(collection)

    def deliver(self, collection: str = "", most: int = 1_000_000) -> None:
        """Let the watches show what is held back, of one collection or of all."""
        for stream in self._streams:
            if collection in ("", stream.collection):
                for _ in range(min(most, len(stream.held))):
                    _, line, key, obj = stream.held.popleft()
                    self._show(stream.collection, key, obj)
                    stream.put(line)

    def _show(self, collection: str, key: Key, obj: Object | None) -> None:
        if obj is None:
            self.seen[collection].pop(key, None)
        else:
            self.seen[collection][key] = obj

    def break_watches(self, collection: str = "", *, is_expired: bool = False) -> None:
        """End watches; where the version has expired, all is listed again."""
        self._is_expired = is_expired
        for stream in list(self._streams):
            if collection in ("", stream.collection):
                stream.close()

    def forget_planner(self) -> None:
        """Begin with nothing shown: another planner leads."""
        self.break_watches()
        self._streams.clear()
        self.seen.clear()
        self.in_flight = 0

    # -- the client: reading ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Stream]:
        """List or watch."""
        if params.get("watch") != "1":
            body = Body(path)
            items = list(self.objects[path].values())
            self.seen[path] = dict(self.objects[path])
            head = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(self._version)}}
            body.put(json.dumps({**head, "items": items}, separators=(",", ":")).encode())
            yield body
            return
        if self._is_expired:
            self._is_expired = False
            raise Gone(410, "Expired", "too old resource version")
        stream, since = Stream(path), int(params["resourceVersion"])
        stream.held.extend(
            (version, line, key, obj)
            for version, collection, line, key, obj in self._history
            if collection == path and version > since
        )
        self._streams.append(stream)
        if not self.is_lagging:
            self.deliver(path)
        try:
            yield stream
        finally:
            if stream in self._streams:
                self._streams.remove(stream)

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout_s: float | None = None) -> bytes:
        """Return an object, a scale, or the list of a namespace."""
        await self._weather(None)
        collection, key, sub = split(path)
        if not key[1]:
            items = [obj for (namespace, _), obj in self.objects[collection].items() if namespace == key[0]]
            return json.dumps({"metadata": {}, "items": items}).encode()
        return json.dumps(self._found(collection, key, sub)).encode()

    def _found(self, collection: str, key: Key, sub: str = "") -> Object:
        obj = self.objects[collection].get(key)
        if obj is None:
            raise NotFound(404, "NotFound", f"{collection} {key[1]}")
        if sub == "scale":
            return {"metadata": obj["metadata"], "spec": {"replicas": obj["spec"]["replicas"]}}
        return obj

    # -- the client: writing ---------------------------------------------------------------------------------------

    async def json_patch(self, path: str, body: bytes, *, timeout_s: float | None = None) -> bytes:
        """Apply a JSON patch."""

        def write() -> Object:
            collection, key, sub = split(path)
            old = self._found(collection, key, sub)
            try:
                new = json_patch.apply(old, body)
            except json_patch.PatchFailed as error:
                raise Invalid(422, "Invalid", str(error)) from error
            if sub == "scale":
                new = copy.deepcopy(self.objects[collection][key])
                new["spec"]["replicas"] = json_patch.apply(old, body)["spec"]["replicas"]
                old = self.objects[collection][key]
            return self._written("json_patch", path, collection, old, new)

        return json.dumps(await self._weather(write)).encode()

    async def merge_patch(
        self, path: str, body: bytes, *, strategic: bool = False, timeout_s: float | None = None
    ) -> bytes:
        """Apply a merge patch; a strategic one merges conditions by their type."""

        def write() -> Object:
            collection, key, _ = split(path)
            old, change = self._found(collection, key), json.loads(body)
            _check_guard(old, change.get("metadata", {}))
            new = merged(old, change)
            if strategic:
                said = change.get("status", {}).get("conditions", [])
                kept = {one["type"]: one for one in old.get("status", {}).get("conditions", [])}
                new["status"]["conditions"] = list((kept | {one["type"]: one for one in said}).values())
            return self._written("merge_patch", path, collection, old, new)

        return json.dumps(await self._weather(write)).encode()

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None, **_: Any) -> None:
        """Delete an object; a pod that is bound leaves by and by."""

        def write() -> None:
            collection, key, _ = split(path)
            old = self._found(collection, key)
            _check_guard(old, {"uid": uid or old["metadata"]["uid"], "resourceVersion": resource_version})
            self.before_write("delete", path, old, None)
            self.end(collection, key)

        await self._weather(write)

    async def evict(self, namespace: str, name: str, *, uid: str | None = None, timeout_s: float | None = None) -> None:
        """Evict a pod as its budgets allow."""

        def write() -> None:
            key = (namespace, name)
            old = self._found(paths.PODS, key)
            _check_guard(old, {"uid": uid or old["metadata"]["uid"]})
            for budget in self.objects[paths.BUDGETS].values():
                wanted = budget["spec"]["selector"]["matchLabels"]
                if budget["metadata"]["namespace"] == namespace and _selects(wanted, old):
                    if budget["status"]["disruptionsAllowed"] < 1:
                        raise ApiError(429, "TooManyRequests", "the budget says no")
                    self.change(paths.BUDGETS, key_of(budget), _spend)
            self.before_write("evict", paths.pod(namespace, name), old, None)
            self.end(paths.PODS, key)

        await self._weather(write)

    async def create(self, path: str, body: bytes, **_: Any) -> bytes:
        """Take an event; nothing else is created here."""
        await self._weather(None)
        return b"{}"

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        """Say of an event's series that it is gone."""
        raise NotFound(404, "NotFound", path)

    def end(self, collection: str, key: Key) -> None:
        """Delete: at once, or after a while where somebody has to let go first."""
        obj = self.objects[collection][key]
        if collection == paths.PODS and obj["spec"].get("nodeName"):
            if "deletionTimestamp" not in obj["metadata"]:
                self.change(
                    collection, key, lambda pod: pod["metadata"].update(deletionTimestamp="2027-01-01T00:00:00Z")
                )
            return
        self.remove(collection, key)

    def _written(self, verb: str, path: str, collection: str, old: Object, new: Object) -> Object:
        self.before_write(verb, path, old, new)
        if new["metadata"].get("annotations") == {}:
            del new["metadata"]["annotations"]  # as the API does
        return self.put(collection, new)

    async def _weather(self, write: Callable[[], Any] | None) -> Any:
        """Carry out a write, in one of the ways in which it may end."""
        roll = self._rng.random()
        if roll >= self.trouble:
            return write() if write else None
        self.faults += 1
        self.in_flight += 1
        try:
            return await self._badly(write, self._rng.randrange(10))
        finally:
            self.in_flight -= 1

    async def _badly(self, write: Callable[[], Any] | None, how: int) -> Any:
        if how == 0 and write:
            raise NotLeading(0, "NotLeading", "the lease would end first")
        if how == 1:
            raise ApiError(500, "InternalError", "no")
        if how == 2:
            raise ApiError(0, "NoAnswer", "not written")
        if how == 3 and write:
            raise Conflict(409, "Conflict", "somebody was faster")
        if how == 4:
            raise ApiError(429, "TooManyRequests", "later")
        if how in (5, 6):
            if write:
                write()
            raise ApiError(0, "NoAnswer", "written")
        pause_s = self._rng.choice((0.0, 0.005, 0.3, 4.0))
        if how in (7, 8):
            await self._sleep(pause_s, write, is_written=self._rng.random() < 0.5)
            self.is_late = True
            try:
                return write() if write else None
            finally:
                self.is_late = False
        answer = write() if write else None
        await self._clock.sleep(pause_s)
        return answer

    async def _sleep(self, pause_s: float, write: Callable[[], Any] | None, *, is_written: bool) -> None:
        """Wait on the way; one who stops waiting does not know whether it was written."""
        try:
            await self._clock.sleep(pause_s)
        except asyncio.CancelledError:
            if write and is_written:
                self.is_late = True
                with suppress(ApiError):
                    write()
                self.is_late = False
            raise


def split(path: str) -> tuple[str, Key, str]:
    """Return collection, (namespace, name) and subresource of a path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    prefix, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = (*rest, "", "")[:3]
    return "/" + "/".join([*prefix, plural]), (namespace, name), sub


def key_of(obj: Object) -> Key:
    """Return namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def merged(old: Any, change: Any) -> Any:
    """Return the result of a JSON merge patch."""
    if not isinstance(change, dict):
        return change
    result = copy.deepcopy(old) if isinstance(old, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _selects(wanted: Mapping[str, str], obj: Object) -> bool:
    return all(obj["metadata"].get("labels", {}).get(name) == value for name, value in wanted.items())


def _spend(budget: Object) -> None:
    budget["status"]["disruptionsAllowed"] -= 1


def _check_guard(obj: Object, wanted: Mapping[str, Any]) -> None:
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) and wanted[name] != obj["metadata"].get(name):
            raise Conflict(409, "Conflict", f"{name} is another")
