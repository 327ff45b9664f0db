"""Nodes and pods as plain JSON, kept current by a list and a watch of its own: nothing here is decoded by the product.

What a lost watch hid is told after the next list: deletions first, then what is new.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from berthmaster.demo.replay import items
from fleet.clock import Clock
from fleet.errors import BerthmasterError
from fleet.kube.client import Client

Object = dict[str, Any]
_PAUSE_S = 0.3
_WATCH_S = "300"


class Collection:
    """One kind of object, all namespaces.

    Args:
        client: As the administrator.
        clock: To wait on.
        path: Of the collection.
        changed: Told (before, after) of every change in the API's order; None = not there.

    Attributes:
        objects: By uid.
        lists: How often it had to be listed.
        is_current: Whether a watch is open.
    """

    def __init__(
        self, client: Client, clock: Clock, path: str, changed: Callable[[Object | None, Object | None], None]
    ) -> None:
        self.objects: dict[str, Object] = {}
        self.lists = 0
        self.is_current = False
        self._client = client
        self._clock = clock
        self._path = path
        self._changed = changed

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Collection]:
        """Keep it current while the block runs; it is when the block begins."""
        task = asyncio.ensure_future(self._run())
        try:
            while not self.is_current:
                await self._clock.sleep(0.02)
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(BerthmasterError):
                version = await self._list()
                await self._watch(version)
            self.is_current = False
            await self._clock.sleep(_PAUSE_S)

    async def _list(self) -> str:
        # The version is read first: what happens during the list comes again with the watch, and is no change then.
        meta = msgspec.json.decode(await self._client.get(self._path, {"limit": "1"}))["metadata"]
        found = {one["metadata"]["uid"]: one for one in await items(self._client, self._path)}
        self.lists += 1
        for uid in self.objects.keys() - found.keys():
            self._changed(self.objects.pop(uid), None)
        for one in found.values():
            self._upsert(one)
        return str(meta["resourceVersion"])

    async def _watch(self, version: str) -> None:
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": _WATCH_S}
        rest = b""
        async with self._client.stream(self._path, params) as stream:
            self.is_current = True
            async for chunk in stream.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        event = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            return
                        self._take(event["type"], event["object"])

    def _take(self, kind: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        if kind != "DELETED":
            self._upsert(obj)
        elif uid in self.objects and _version(obj) >= _version(self.objects[uid]):
            self.objects.pop(uid)
            self._changed(obj, None)

    def _upsert(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        before = self.objects.get(uid)
        if before is None or _version(obj) > _version(before):
            self.objects[uid] = obj
            self._changed(before, obj)


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
