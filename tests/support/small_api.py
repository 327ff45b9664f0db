"""An API server's objects in memory, with a client that dies at a chosen write: before it, or just after."""

from __future__ import annotations

import copy
import json
from typing import Any

from fleet.errors import Conflict, NotFound

Object = dict[str, Any]


class Died(Exception):
    """The process ends here."""


class SmallApi:
    """Stands in for `fleet.kube.client.Client`: create, get, list by labels, merge patch, delete.

    Attributes:
        objects: By path.
        dies_at: Number of the write at which the process dies; 0 = never.
        is_written: Whether that last write still takes place.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.dies_at = 0
        self.is_written = False
        self.writes = 0
        self._version = 0

    async def get(self, path: str, params: dict[str, str] | None = None) -> bytes:
        if path in self.objects:
            return json.dumps(self.objects[path]).encode()
        if any(one.startswith(f"{path}/") for one in self.objects) or path.rpartition("/")[2].endswith("s"):
            return json.dumps({"items": self._listed(path, (params or {}).get("labelSelector", ""))}).encode()
        raise NotFound(404, "NotFound", path)

    async def create(self, path: str, body: bytes) -> bytes:
        made = json.loads(body)
        name = f"{path}/{made['metadata']['name']}"

        def write() -> None:
            if name in self.objects:
                raise Conflict(409, "AlreadyExists", name)
            made["metadata"]["uid"] = f"uid-{self._version}"
            self._put(name, made)

        self._write(write)
        return b"{}"

    async def merge_patch(self, path: str, body: bytes) -> bytes:
        change = json.loads(body)
        target = path.removesuffix("/status")

        def write() -> None:
            if target not in self.objects:
                raise NotFound(404, "NotFound", target)
            old = self.objects[target]
            wanted = change.get("metadata", {}).get("resourceVersion")
            if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
                raise Conflict(409, "Conflict", target)
            self._put(target, merged(old, change))

        self._write(write)
        return b"{}"

    async def delete(self, path: str, *, uid: str | None = None, grace_s: int | None = None) -> None:
        def write() -> None:
            if path not in self.objects:
                raise NotFound(404, "NotFound", path)
            del self.objects[path]

        self._write(write)

    def _write(self, write: Any) -> None:
        self.writes += 1
        if self.writes != self.dies_at:
            write()
            return
        if self.is_written:
            write()
        raise Died

    def _put(self, path: str, obj: Object) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = obj

    def _listed(self, path: str, selector: str) -> list[Object]:
        key, equals, value = selector.partition("=")
        found = [obj for name, obj in sorted(self.objects.items()) if name.rpartition("/")[0] == path]
        if not selector:
            return found
        return [
            obj
            for obj in found
            if key in obj["metadata"].get("labels", {}) and (not equals or obj["metadata"]["labels"][key] == value)
        ]


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
