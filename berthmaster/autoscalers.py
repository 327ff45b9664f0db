"""Reading ConcurrencyAutoscalers from the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from berthmaster.autoscaler_object import Autoscaler, autoscaler_of, autoscalers_of
from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, BerthmasterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import Connection

_TIMEOUT_S = 10.0
_ABSENT = "the cluster has no ConcurrencyAutoscalers: the scaler is not installed (kubectl apply -k manifests/base)"


class Autoscalers:
    """The collection, asked afresh each time."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def named(self, namespace: str, name: str) -> Autoscaler:
        """Return one.

        Raises:
            BerthmasterError: There is none; the message names those of that name elsewhere.
        """
        try:
            return autoscaler_of(await self._client.get(paths.autoscalers(namespace, name), timeout_s=_TIMEOUT_S))
        except NotFound:
            found = await self.all()
            if found is None:
                raise BerthmasterError(_ABSENT) from None
            known, _ = found
            same = [autoscaler.metadata.namespace for autoscaler in known if autoscaler.metadata.name == name]
            here = [autoscaler.metadata.name for autoscaler in known if autoscaler.metadata.namespace == namespace]
            hint = f"; there is one in namespace {', '.join(same)}" if same else ""
            hint = hint or (f"; there are {', '.join(here)}" if here else "")
            raise BerthmasterError(f"no ConcurrencyAutoscaler {namespace}/{name}{hint}") from None
        except ApiError as error:
            raise BerthmasterError(f"cannot read ConcurrencyAutoscaler {namespace}/{name}: {error}") from error

    async def all(self) -> tuple[tuple[Autoscaler, ...], tuple[str, ...]] | None:
        """Return all of them and what could not be read; None where the cluster does not know the kind.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        try:
            # Version 0 is answered from the API server's memory: a live view asks often.
            raw = await self._client.get(paths.autoscalers(), {"resourceVersion": "0"}, timeout_s=_TIMEOUT_S)
        except NotFound:
            return None
        return autoscalers_of(raw)


@asynccontextmanager
async def asked(connection: Connection, clock: Clock) -> AsyncIterator[Autoscalers]:
    """Open a client for the collection."""
    async with Client(connection, clock, user_agent=labels.FIELD_MANAGER) as client:
        yield Autoscalers(client)
