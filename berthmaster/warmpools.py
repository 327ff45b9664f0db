"""Reading WarmPools and their nodes from the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from berthmaster.warmpool_object import PoolNode, WarmPool, nodes_of, pool_of, pools_of
from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, BerthmasterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import Connection

_TIMEOUT_S = 10.0
_VERSION = f"{labels.DOMAIN}/{labels.POOL_VERSION}"
_ABSENT = "the cluster has no WarmPools: the warm pool is not installed (kubectl apply -k manifests/base)"


class WarmPools:
    """The collection, asked afresh each time."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def named(self, name: str) -> WarmPool:
        """Return one.

        Raises:
            BerthmasterError: There is none; the message names those that there are.
        """
        path = paths.custom(_VERSION, labels.POOL_PLURAL, name=name)
        try:
            return pool_of(await self._client.get(path, timeout_s=_TIMEOUT_S))
        except NotFound:
            found = await self.all()
            if found is None:
                raise BerthmasterError(_ABSENT) from None
            names = ", ".join(pool.name for pool in found[0])
            raise BerthmasterError(f"no WarmPool {name}{f'; there are {names}' if names else ''}") from None
        except ApiError as error:
            raise BerthmasterError(f"cannot read WarmPool {name}: {error}") from error

    async def all(self) -> tuple[tuple[WarmPool, ...], tuple[str, ...]] | None:
        """Return all of them and what could not be read; None where the cluster does not know the kind.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        path = paths.custom(_VERSION, labels.POOL_PLURAL)
        try:
            # Version 0 is answered from the API server's memory: a live view asks often.
            raw = await self._client.get(path, {"resourceVersion": "0"}, timeout_s=_TIMEOUT_S)
        except NotFound:
            return None
        return pools_of(raw)

    async def nodes(self, pool: str) -> tuple[PoolNode, ...]:
        """Return the nodes that say they are this pool's.

        Raises:
            BerthmasterError: They cannot be read.
        """
        params = {"labelSelector": f"{labels.POOL}={pool}", "resourceVersion": "0"}
        try:
            return nodes_of(await self._client.get(paths.NODES, params, timeout_s=_TIMEOUT_S))
        except ApiError as error:
            raise BerthmasterError(f"cannot read the nodes of WarmPool {pool}: {error}") from error


@asynccontextmanager
async def asked_pools(connection: Connection, clock: Clock) -> AsyncIterator[WarmPools]:
    """Open a client for the collection."""
    async with Client(connection, clock, user_agent=labels.FIELD_MANAGER) as client:
        yield WarmPools(client)
