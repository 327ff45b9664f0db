"""Keeps pools from going before their nodes do (a finalizer), and what they remember (one ConfigMap each)."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet import labels
from fleet.errors import Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.controller.store import Memory, data_of, memory_from
from warmpool.controller.world import Pool

_CALL_S = 5.0
API_VERSION = f"{labels.DOMAIN}/{labels.POOL_VERSION}"
_encode = msgspec.json.encode


class _Meta(msgspec.Struct):
    uid: str = ""
    finalizers: list[str] | None = None


class _Pool(msgspec.Struct):
    metadata: _Meta


class _Stored(msgspec.Struct):
    data: dict[str, str] | None = None


_pool = msgspec.json.Decoder(_Pool).decode
_stored = msgspec.json.Decoder(_Stored).decode


class Keeper:
    """Writes them.

    Args:
        client: May patch WarmPools, and read and write the ConfigMaps of the namespace.
        namespace: Of the ConfigMaps.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._written: dict[str, dict[str, str]] = {}

    async def hold(self, pool: Pool) -> None:
        """Add the finalizer, before anything is ordered or marked."""
        await self._change(pool, is_held=True)

    async def let_go(self, pool: Pool) -> None:
        """Remove the finalizer: nothing of the pool is left."""
        await self._change(pool, is_held=False)
        self._written.pop(pool.name, None)

    async def recall(self, name: str) -> Memory | None:
        """Return what a pool remembers; None = nothing was stored.

        Raises:
            ApiError: It could not be read, which is not the same.
        """
        try:
            found = _stored(await self._client.get(paths.config_maps(self._namespace, _name(name))))
        except NotFound:
            return None
        return memory_from(found.data or {})

    async def store(self, pool: Pool, memory: Memory) -> None:
        """Write down what a pool remembers, if that has changed; it goes with the pool.

        Raises:
            ApiError: It could not be written.
        """
        data = data_of(memory)
        if self._written.get(pool.name) == data:
            return
        owner = {"apiVersion": API_VERSION, "kind": labels.POOL_KIND, "name": pool.name, "uid": pool.uid}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": _name(pool.name),
                "labels": {labels.POOL: pool.name, "app.kubernetes.io/part-of": "berthmaster"},
                "ownerReferences": [owner],
            },
            "data": data,
        }
        await self._client.apply(paths.config_maps(self._namespace, _name(pool.name)), _encode(body), timeout_s=_CALL_S)
        self._written[pool.name] = data

    async def _change(self, pool: Pool, *, is_held: bool) -> None:
        path = paths.custom(API_VERSION, labels.POOL_PLURAL, name=pool.name)
        try:
            meta = _pool(await self._client.get(path)).metadata
        except NotFound:
            return
        known = meta.finalizers or []
        if meta.uid != pool.uid or (labels.POOL_FINALIZER in known) is is_held:
            return
        wanted = [*known, labels.POOL_FINALIZER] if is_held else [one for one in known if one != labels.POOL_FINALIZER]
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": pool.uid},
            {"op": "test", "path": "/metadata/finalizers", "value": meta.finalizers},
            {"op": "add", "path": "/metadata/finalizers", "value": wanted},
        ]
        try:
            await self._client.json_patch(path, _encode(operations), timeout_s=_CALL_S)
        except (Invalid, Conflict, NotFound):
            return  # changed or gone meanwhile: looked at again


def _name(pool: str) -> str:
    return f"pool-{pool}"
