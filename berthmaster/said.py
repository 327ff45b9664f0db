"""What the planner has said of a pod: its condition, as it stands in the API."""

from __future__ import annotations

from typing import Final

import msgspec

from berthmaster.explain import Said
from fleet import labels
from fleet.kube import paths
from fleet.kube.client import Client

_PLACED: Final = "Placed"


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


_decode = msgspec.json.Decoder(_Pod).decode


async def read(client: Client, namespace: str, name: str) -> Said | None:
    """Return what is said of the pod now; None = nothing.

    Raises:
        ApiError: The pod cannot be read.
    """
    return said_in(await client.get(paths.pod(namespace, name)))


def said_in(body: bytes) -> Said | None:
    """Return what a pod's JSON holds; None = nothing, or that it has a berth and nothing more is to be said."""
    for one in _decode(body).status.conditions or ():
        if one.type == labels.WAITING_CONDITION and one.reason not in ("", _PLACED):
            return Said(reason=one.reason, text=one.message, since=one.last_transition_time or "")
    return None
