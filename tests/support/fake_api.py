"""A small API server in the test's own process, on loopback, that can fail in every way a real one does.

It keeps JSON objects by collection, counts versions, serves list, watch, get, create, patch and delete, and answers
with the same Status objects. Faults are asked for by the test: see `fail`, `drop_watches`, `forget_history`, `mute`.
"""

from __future__ import annotations

import asyncio
import json
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from fleet.clock import Clock
from fleet.kube.credentials import Access, Connection
from tests.support import json_patch

Object = dict[str, Any]
Key = tuple[str, str]

_REASONS = {404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid", 429: "TooManyRequests"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "1"


@dataclass(kw_only=True)
class Fault:
    """How to answer the next requests that match."""

    matches: Callable[[Request], bool]
    answer: Callable[[], web.Response]
    times: int


@dataclass(kw_only=True)
class Watcher:
    """One open watch."""

    collection: str
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)


class FakeApi:
    """Use as an async context manager; `connection` leads to it.

    Attributes:
        requests: Everything asked so far, in order.
        watchers: The open watches.
        is_muted: Watches stay open and say nothing any more, as half-open connections do.
        token: Bearer token to insist on, "" = none.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.watchers: list[Watcher] = []
        self.is_muted = False
        self.token = ""
        self._objects: dict[str, dict[Key, Object]] = {}
        self._history: list[tuple[int, str, bytes]] = []
        self._version = 100
        self._oldest = 0
        self._absent: set[str] = set()
        self._faults: list[Fault] = []
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drop_watches()
        await self._runner.cleanup()

    def connection(self, clock: Clock) -> Connection:
        """Return a connection to this server."""
        return Connection(lambda: Access(base_url=self.url), clock)

    # What the cluster does.

    def put(self, collection: str, obj: Object) -> Object:
        """Create or change an object, and tell the watches."""
        meta = obj.setdefault("metadata", {})
        key = (meta.get("namespace", ""), meta["name"])
        known = self._objects.setdefault(collection, {}).get(key)
        meta.setdefault("uid", known["metadata"]["uid"] if known else str(uuid.uuid4()))
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self._objects[collection][key] = obj
        self._tell(collection, "MODIFIED" if known else "ADDED", obj)
        return obj

    def remove(self, collection: str, name: str, namespace: str = "", *, is_told: bool = True) -> None:
        """Delete an object; untold, as if the watch had missed it for good."""
        obj = self._objects[collection].pop((namespace, name))
        self._version += 1
        if is_told:
            obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self._version)}}
            self._tell(collection, "DELETED", obj)

    def objects(self, collection: str) -> dict[Key, Object]:
        """Return what there is, by (namespace, name)."""
        return self._objects.get(collection, {})

    def bookmark(self, collection: str) -> None:
        """Tell the watches how far they are."""
        meta = {"metadata": {"resourceVersion": str(self._version)}}
        self.say(collection, json.dumps({"type": "BOOKMARK", "object": {"kind": "Pod"} | meta}).encode())

    # What goes wrong.

    def fail(
        self,
        status: int,
        *,
        times: int = 1,
        method: str = "",
        path: str = "",
        is_watch: bool | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """Answer the next matching requests with this error."""

        def matches(request: Request) -> bool:
            return method in ("", request.method) and path in request.path and is_watch in (None, request.is_watch)

        def answer() -> web.Response:
            text = body if body is not None else _status(status, "as the test wants")
            return web.Response(status=status, body=text, headers=headers)

        self._faults.append(Fault(matches=matches, answer=answer, times=times))

    def absent(self, collection: str) -> None:
        """Answer 404 for this collection from now on: the API is not served."""
        self._absent.add(collection)

    def present(self, collection: str) -> None:
        """Serve the collection again."""
        self._absent.discard(collection)

    def drop_watches(self) -> None:
        """End all watches, as a restart does."""
        for watcher in self.watchers:
            watcher.lines.put_nowait(None)

    def forget_history(self) -> None:
        """Answer 410 to watches from any version seen so far."""
        self._history.clear()
        self._oldest = self._version
        self._version += 1

    def say(self, collection: str, line: bytes) -> None:
        """Send one line to the watches of a collection, whatever it holds."""
        for watcher in self.watchers:
            if watcher.collection == collection and not self.is_muted:
                watcher.lines.put_nowait(line + b"\n")

    # What tests wait for: events, never time.

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on this server holds; judged after each request and each change of watches."""
        async with self._changed:
            await self._changed.wait_for(holds)

    async def until_watched(self, collection: str, watches: int = 1) -> None:
        """Wait until this many watches of the collection are open."""
        await self.until(lambda: sum(w.collection == collection for w in self.watchers) >= watches)

    def asked(self, method: str = "", path: str = "", *, is_watch: bool | None = None) -> list[Request]:
        """Return the matching requests so far."""
        return [
            r for r in self.requests if method in ("", r.method) and path in r.path and is_watch in (None, r.is_watch)
        ]

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _tell(self, collection: str, kind: str, obj: Object) -> None:
        line = json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode()
        self._history.append((int(obj["metadata"]["resourceVersion"]), collection, line))
        self.say(collection, line)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        request = Request(
            method=http.method,
            path=http.path,
            query=dict(http.query),
            headers=dict(http.headers),
            body=await http.read(),
        )
        self.requests.append(request)
        await self._notify()
        for fault in self._faults:
            if fault.matches(request):
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault.answer()
        if self.token and http.headers.get("Authorization") != f"Bearer {self.token}":
            return _error(401, "Unauthorized")
        collection, namespace, name, subresource = _parsed(http.path)
        if collection in self._absent:
            return web.Response(status=404, text="404 page not found")
        if name:
            return self._one(request, collection, (namespace, name), subresource)
        if request.method == "POST":
            return self._create(request, collection, namespace)
        return await self._watch(http, collection) if request.is_watch else self._list(request, collection)

    def _list(self, request: Request, collection: str) -> web.Response:
        items = [obj for _, obj in sorted(self.objects(collection).items())]
        meta = {"resourceVersion": str(self._version)}
        limit, start = int(request.query.get("limit", 0)), int(request.query.get("continue", 0))
        if limit and request.query.get("resourceVersion") != "0":
            if start + limit < len(items):
                meta["continue"] = str(start + limit)
            items = items[start : start + limit]
        body = json.dumps(
            {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}, separators=(",", ":")
        ).encode()
        if "gzip" in request.headers.get("Accept-Encoding", "") and len(body) > 1000:
            return web.Response(body=zlib.compress(body, wbits=31), headers={"Content-Encoding": "gzip"})
        return web.Response(body=body)

    async def _watch(self, http: web.Request, collection: str) -> web.StreamResponse:
        since = int(http.query.get("resourceVersion", 0))
        if since <= self._oldest:
            return _error(410, "too old resource version")
        watcher = Watcher(collection=collection)
        for version, of, line in self._history:
            if of == collection and version > since and not self.is_muted:
                watcher.lines.put_nowait(line + b"\n")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(http)
        self.watchers.append(watcher)
        await self._notify()
        try:
            while (line := await watcher.lines.get()) is not None:
                await answer.write(line)
        finally:
            self.watchers.remove(watcher)
            await self._notify()
        return answer

    def _create(self, request: Request, collection: str, namespace: str) -> web.Response:
        obj = json.loads(request.body)
        obj.setdefault("metadata", {}).setdefault("namespace", namespace)
        if (namespace, obj["metadata"]["name"]) in self.objects(collection):
            return _error(409, "already exists")
        return web.json_response(self.put(collection, obj), status=201)

    def _one(self, request: Request, collection: str, key: Key, subresource: str) -> web.Response:
        obj = self.objects(collection).get(key)
        if obj is None:
            return _error(404, f"{key[1]} not found")
        match request.method:
            case "GET":
                return web.json_response(obj)
            case "PATCH":
                return self._patch(request, collection, obj)
            case "PUT":
                return self._checked(collection, obj, json.loads(request.body))
            case "DELETE" | "POST":
                wanted = json.loads(request.body or b"{}")
                preconditions = wanted.get("deleteOptions", wanted).get("preconditions", {})
                if any(obj["metadata"][name] != value for name, value in preconditions.items()):
                    return _error(409, "precondition failed")
                self.remove(collection, key[1], key[0])
                return web.json_response({"kind": "Status", "status": "Success"})
        return _error(405, subresource)

    def _patch(self, request: Request, collection: str, obj: Object) -> web.Response:
        if "json-patch" in request.headers["Content-Type"]:
            try:
                return self._checked(collection, obj, json_patch.apply(obj, request.body))
            except json_patch.PatchFailed as error:
                return _error(422, str(error))
        return self._checked(collection, obj, _merged(obj, json.loads(request.body)))

    def _checked(self, collection: str, old: Object, new: Object) -> web.Response:
        if new["metadata"].get("resourceVersion", "") not in ("", old["metadata"]["resourceVersion"]):
            return _error(409, "the object has been modified")
        return web.json_response(self.put(collection, new))


def _parsed(path: str) -> tuple[str, str, str, str]:
    """Return collection path, namespace, name and subresource."""
    parts = path.strip("/").split("/")
    prefix, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    kind, name, subresource = (*rest, "", "")[:3]
    return "/" + "/".join([*prefix, kind]), namespace, name, subresource


def _merged(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _status(code: int, message: str) -> bytes:
    reason = _REASONS.get(code, "InternalError")
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


def _error(code: int, message: str) -> web.Response:
    return web.Response(status=code, body=_status(code, message), headers={"Content-Type": "application/json"})
