"""Watches ConcurrencyAutoscalers for what they allow the replicas behind this balancer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject, Object
from fleet.kube.reflector import Reflector
from scaler.balancer.limits import Allowance, allowance_of

_log = logging.getLogger(__name__)


class BalancerObject(Object):
    """spec.signals.balancer."""

    name: str = ""
    backend: str = ""


class SignalsObject(Object):
    """spec.signals."""

    balancer: BalancerObject | None = None


class SpecObject(Object):
    """spec."""

    signals: SignalsObject | None = None


class AutoscalerObject(Object):
    """A ConcurrencyAutoscaler, as far as the exporter reads it."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: SpecObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    created: str
    backend: str
    allowance: Allowance
    problems: tuple[str, ...]


class Allowances:
    """Sink of the watch. A backend that several autoscalers name belongs to the oldest; all are told.

    Not to the first by name: whoever may make autoscalers in any namespace could take a backend from its owner.

    Attributes:
        problems: What in the objects cannot be used, by NAMESPACE/NAME.
    """

    def __init__(self, balancer: str) -> None:
        self.problems: dict[str, tuple[str, ...]] = {}
        self._balancer = balancer
        self._claims: dict[str, _Claim] = {}
        self._by_backend: dict[str, Allowance] = {}

    def by_backend(self) -> Mapping[str, Allowance]:
        """Return what is allowed now, by backend."""
        return self._by_backend

    def upsert(self, obj: AutoscalerObject) -> None:
        """Take a new or changed object."""
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        named = obj.spec and obj.spec.signals and obj.spec.signals.balancer
        if not named or named.name != self._balancer or not named.backend:
            self._claims.pop(key, None)
        else:
            allowance, problems = allowance_of(obj.metadata.annotations or {})
            self._claims[key] = _Claim(
                created=obj.metadata.creation_timestamp or "",
                backend=named.backend,
                allowance=allowance,
                problems=problems,
            )
        self._index()

    def delete(self, obj: AutoscalerObject) -> None:
        """Forget an object; the balancer keeps the limits it has."""
        self._claims.pop(f"{obj.metadata.namespace}/{obj.metadata.name}", None)
        self._index()

    def synced(self) -> None:
        """Nothing to do: every object was told."""

    def _index(self) -> None:
        owners: dict[str, str] = {}
        found: dict[str, Allowance] = {}
        problems: dict[str, tuple[str, ...]] = {}
        for key, claim in sorted(self._claims.items(), key=lambda item: (item[1].created, item[0])):
            owner = owners.setdefault(claim.backend, key)
            if owner == key:
                found[claim.backend] = claim.allowance
                told = claim.problems
            else:
                told = (*claim.problems, f"backend {claim.backend} belongs to {owner} already")
            if told:
                problems[key] = told
        for key, told in problems.items():
            if told != self.problems.get(key):
                _log.warning("%s: %s", key, "; ".join(told))
        self._by_backend, self.problems = found, problems


def watch(client: Client, clock: Clock, allowances: Allowances) -> Reflector[AutoscalerObject]:
    """Return the watch that keeps `allowances` equal to the API while it runs."""
    return Reflector(client, clock, paths.autoscalers(), AutoscalerObject, allowances, keeps_last=False)
