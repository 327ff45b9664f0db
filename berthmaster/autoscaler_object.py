"""A ConcurrencyAutoscaler as the commands read it: what a person said, and what the scaler told about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from fleet.errors import DecodeError


class Metadata(msgspec.Struct, rename="camel", frozen=True):
    """Name and place."""

    name: str
    namespace: str = ""
    uid: str = ""


class TargetRef(msgspec.Struct, rename="camel", frozen=True):
    """The workload that is scaled."""

    kind: str = ""
    name: str = ""


class Load(msgspec.Struct, rename="camel", frozen=True):
    """What the last second showed; None = not known."""

    in_flight: float | None = None
    queued: float | None = None
    rate: float | None = None


class Told(msgspec.Struct, rename="camel", frozen=True):
    """One decision with its reason."""

    at: str = ""
    reason: str = ""
    message: str = ""
    numbers: dict[str, float] = msgspec.field(default_factory=dict)


class Change(msgspec.Struct, rename="camel", frozen=True):
    """The last decision that changed the count."""

    at: str = ""
    before: int | None = msgspec.field(default=None, name="from")
    after: int | None = msgspec.field(default=None, name="to")
    reason: str = ""
    message: str = ""


class Need(msgspec.Struct, rename="camel", frozen=True):
    """What will be needed, and when."""

    replicas: int = 0
    by: str = ""
    confidence: float | None = None


class Learnt(msgspec.Struct, rename="camel", frozen=True):
    """The vertical axis: what one replica may hold."""

    at: str = ""
    concurrency: float | None = None
    limit: float | None = None
    learnt: float | None = None
    validated: float | None = None
    confidence: float | None = None
    canary: str = ""
    version: str = ""
    reason: str = ""
    message: str = ""
    numbers: dict[str, float] = msgspec.field(default_factory=dict)


class Forecast(msgspec.Struct, rename="camel", frozen=True):
    """What is expected once a replica ordered now is Ready."""

    standing: str = ""
    weight: float | None = None
    horizon_seconds: float | None = None
    rate: float | None = None
    confidence: float | None = None
    message: str = ""
    report: str = ""


class StartTime(msgspec.Struct, rename="camel", frozen=True):
    """From order to Ready."""

    planning_seconds: float | None = None
    seconds: tuple[float, ...] = ()


class Condition(msgspec.Struct, rename="camel", frozen=True):
    """As everywhere in Kubernetes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Status(msgspec.Struct, rename="camel", frozen=True):
    """What the scaler told; every part may be absent."""

    current_replicas: int | None = None
    ready_replicas: int | None = None
    desired_replicas: int | None = None
    load: Load = Load()
    last_decision: Told | None = None
    last_change: Change | None = None
    need: tuple[Need, ...] = ()
    next_ready: str = ""
    target: Learnt | None = None
    forecast: Forecast | None = None
    start_time: StartTime | None = None
    conditions: tuple[Condition, ...] = ()


class Autoscaler(msgspec.Struct, rename="camel", frozen=True):
    """One object; `spec` as it was written, with the API server's defaults."""

    metadata: Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: Status = Status()

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def starting(self) -> int | None:
        """Return how many replicas were ordered and are not Ready; None = not told."""
        current, ready = self.status.current_replicas, self.status.ready_replicas
        return None if current is None or ready is None else max(0, current - ready)

    def field(self, path: str) -> Any:
        """Return what stands in the spec at a dotted path; None = nothing."""
        value: Any = self.spec
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


class _AutoscalerList(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


def autoscaler_of(raw: bytes | msgspec.Raw) -> Autoscaler:
    """Return the object.

    Raises:
        DecodeError: It does not have this shape; the message says where.
    """
    try:
        return msgspec.json.decode(raw, type=Autoscaler)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"a ConcurrencyAutoscaler cannot be read: {error}") from error


def autoscalers_of(raw: bytes) -> tuple[tuple[Autoscaler, ...], tuple[str, ...]]:
    """Return the objects of a list, by namespace and name, and what was wrong with those that are left out.

    Raises:
        DecodeError: It is no list.
    """
    try:
        items = msgspec.json.decode(raw, type=_AutoscalerList).items
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"the list of ConcurrencyAutoscalers cannot be read: {error}") from error
    found, problems = [], []
    for item in items:
        try:
            found.append(autoscaler_of(item))
        except DecodeError as error:
            problems.append(str(error))
    return tuple(sorted(found, key=lambda autoscaler: autoscaler.key)), tuple(problems)


def seconds_of(time: str) -> float | None:
    """Return seconds since the epoch of a time as the API writes it; None where it is none."""
    try:
        return datetime.fromisoformat(time).timestamp() if time else None
    except ValueError:
        return None
