"""A WarmPool and its nodes as the commands read them: what a person said, and what the controller told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from berthmaster.autoscaler_object import Condition, Told
from fleet import labels
from fleet.claim import Claim, read_claim
from fleet.errors import DecodeError


class Metadata(msgspec.Struct, rename="camel", frozen=True):
    """Name."""

    name: str
    uid: str = ""


class Plan(msgspec.Struct, rename="camel", frozen=True):
    """What is done about the decision, or would be."""

    reason: str = ""
    message: str = ""
    orders: int | None = None
    closes: int | None = None
    short: int | None = None


class Quantile(msgspec.Struct, rename="camel", frozen=True):
    """Draws that are not exceeded with this probability."""

    probability: float = 0.0
    draws: float = 0.0


class Forecast(msgspec.Struct, rename="camel", frozen=True):
    """Draws expected within one lead time."""

    summary: str = ""
    horizon_seconds: float | None = None
    quantiles: tuple[Quantile, ...] = ()


class LeadTime(msgspec.Struct, rename="camel", frozen=True):
    """From order to proven warm."""

    summary: str = ""
    count: int | None = None
    mean_seconds: float | None = None


class HitRate(msgspec.Struct, rename="camel", frozen=True):
    """What draws found."""

    summary: str = ""
    realised: float | None = None
    goal: float | None = None
    draws: int | None = None
    misses: int | None = None
    since_seconds: float | None = None


class Idle(msgspec.Struct, rename="camel", frozen=True):
    """What warm unclaimed nodes cost."""

    summary: str = ""
    node_hours: float | None = None
    cost: float | None = None
    day_node_hours: float | None = None
    day_cost: float | None = None


class Marginal(msgspec.Struct, rename="camel", frozen=True):
    """What one node more would have done."""

    message: str = ""
    misses_saved: float | None = None
    idle_node_hours: float | None = None


class Starts(msgspec.Struct, rename="camel", frozen=True):
    """How long replicas' starts took."""

    summary: str = ""


class Status(msgspec.Struct, rename="camel", frozen=True):
    """What the controller told; every part may be absent."""

    wanted: int | None = None
    warm: int | None = None
    coming: int | None = None
    ordered: int | None = None
    provisioning: int | None = None
    claimed: int | None = None
    serving: int | None = None
    leaving: int | None = None
    failed: int | None = None
    nodes: int | None = None
    last_decision: Told | None = None
    plan: Plan | None = None
    forecast: Forecast | None = None
    lead_time: LeadTime | None = None
    hit_rate: HitRate | None = None
    idle: Idle | None = None
    marginal: Marginal | None = None
    starts: Starts | None = None
    conditions: tuple[Condition, ...] = ()


class WarmPool(msgspec.Struct, rename="camel", frozen=True):
    """One object; `spec` as it was written, with the API server's defaults."""

    metadata: Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: Status = Status()

    @property
    def name(self) -> str:
        """Return its name."""
        return self.metadata.name

    def field(self, path: str) -> Any:
        """Return what stands in the spec at a dotted path; None = nothing."""
        value: Any = self.spec
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


class _NodeCondition(msgspec.Struct, rename="camel", frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class _NodeMeta(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    annotations: dict[str, str] | None = None


class _NodeSpec(msgspec.Struct, rename="camel", frozen=True):
    unschedulable: bool | None = None


class _NodeStatus(msgspec.Struct, rename="camel", frozen=True):
    conditions: tuple[_NodeCondition, ...] | None = None


class PoolNode(msgspec.Struct, rename="camel", frozen=True):
    """A node of a pool."""

    metadata: _NodeMeta = _NodeMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def claim(self) -> Claim | None:
        """Return the claim on it."""
        return read_claim((self.metadata.annotations or {}).get(labels.CLAIM, ""))

    @property
    def is_open(self) -> bool:
        """Return True if a draw now would get it."""
        notes = self.metadata.annotations or {}
        return bool(notes.get(labels.WARM)) and self.claim is None and not self.spec.unschedulable

    @property
    def told(self) -> tuple[str, str]:
        """Return the reason and message of its condition berthmaster.dev/Warm; ("", "") = nobody has told yet."""
        for condition in self.status.conditions or ():
            if condition.type == labels.WARM_CONDITION:
                return condition.reason or "", condition.message or ""
        return "", ""


class _List(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[PoolNode, ...] = ()


def pool_of(raw: bytes | msgspec.Raw) -> WarmPool:
    """Return the object.

    Raises:
        DecodeError: It does not have this shape; the message says where.
    """
    try:
        return msgspec.json.decode(raw, type=WarmPool)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"a WarmPool cannot be read: {error}") from error


def pools_of(raw: bytes) -> tuple[tuple[WarmPool, ...], tuple[str, ...]]:
    """Return the objects of a list by name, and what was wrong with those that are left out.

    Raises:
        DecodeError: It is no list.
    """
    try:
        items = msgspec.json.decode(raw, type=_List).items
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"the list of WarmPools cannot be read: {error}") from error
    found, problems = [], []
    for item in items:
        try:
            found.append(pool_of(item))
        except DecodeError as error:
            problems.append(str(error))
    return tuple(sorted(found, key=lambda pool: pool.name)), tuple(problems)


def nodes_of(raw: bytes) -> tuple[PoolNode, ...]:
    """Return the nodes of a list, by name.

    Raises:
        DecodeError: It is no list of nodes.
    """
    try:
        items = msgspec.json.decode(raw, type=_Nodes).items
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"the list of nodes cannot be read: {error}") from error
    return tuple(sorted(items, key=lambda node: node.metadata.name))
