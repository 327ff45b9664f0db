"""Watches ConcurrencyAutoscalers for what they allow the replicas behind this balancer."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from fleet import labels
from fleet.clock import Clock
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject, Object
from fleet.kube.reflector import Reflector
from scaler.balancer.limits import Allowance, allowance_of

_log = logging.getLogger(__name__)

PATH = f"/apis/{labels.DOMAIN}/{labels.AUTOSCALER_VERSION}/{labels.AUTOSCALER_PLURAL}"


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


class Allowances:
    """Sink of the watch. A backend that two autoscalers name is left to the older name in the alphabet, and told.

    Attributes:
        problems: What in the objects cannot be used, by NAMESPACE/NAME.
    """

    def __init__(self, balancer: str) -> None:
        self.problems: dict[str, tuple[str, ...]] = {}
        self._balancer = balancer
        self._claims: dict[str, tuple[str, Allowance]] = {}
        self._by_backend: dict[str, Allowance] = {}

    def by_backend(self) -> Mapping[str, Allowance]:
        """Return what is allowed now, by backend."""
        return self._by_backend

    def upsert(self, obj: AutoscalerObject) -> None:
        """Take a new or changed object."""
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        named = obj.spec and obj.spec.signals and obj.spec.signals.balancer
        if not named or named.name != self._balancer or not named.backend:
            self._forget(key)
        else:
            allowance, problems = allowance_of(obj.metadata.annotations or {})
            self._claims[key] = (named.backend, allowance)
            if problems != self.problems.get(key, ()):
                for problem in problems:
                    _log.warning("%s: %s", key, problem)
            self._set_problems(key, problems)
        self._index()

    def delete(self, obj: AutoscalerObject) -> None:
        """Forget an object; the balancer keeps the limits it has."""
        self._forget(f"{obj.metadata.namespace}/{obj.metadata.name}")
        self._index()

    def synced(self) -> None:
        """Nothing to do: every object was told."""

    def _forget(self, key: str) -> None:
        self._claims.pop(key, None)
        self.problems.pop(key, None)

    def _set_problems(self, key: str, problems: tuple[str, ...]) -> None:
        if problems:
            self.problems[key] = problems
        else:
            self.problems.pop(key, None)

    def _index(self) -> None:
        found: dict[str, Allowance] = {}
        for key, (backend, allowance) in sorted(self._claims.items()):
            if backend in found:
                self._set_problems(key, (f"backend {backend} belongs to another autoscaler already",))
            else:
                found[backend] = allowance
        self._by_backend = found


def watch(client: Client, clock: Clock, allowances: Allowances) -> Reflector[AutoscalerObject]:
    """Return the watch that keeps `allowances` equal to the API while it runs."""
    return Reflector(client, clock, PATH, AutoscalerObject, allowances, keeps_last=False)
