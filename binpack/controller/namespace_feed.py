"""The watch of namespaces, into the planner's world: their weights, and their labels, which rules between pods read."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from binpack.controller.world import World
from binpack.fairness import weight_of
from fleet import labels
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject, Object
from fleet.kube.reflector import Reflector

log = logging.getLogger(__name__)


class NamespaceObject(Object):
    """A v1 Namespace."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)


class _Sink:
    """Sink of the watch."""

    def __init__(self, world: World, malformed: Callable[[], None]) -> None:
        self._world = world
        self._malformed = malformed

    def upsert(self, obj: NamespaceObject) -> None:
        name, text = obj.metadata.name, (obj.metadata.annotations or {}).get(labels.SHARE)
        weight = None if text is None else weight_of(text)
        if text is not None and weight is None:
            self._malformed()
            log.warning("namespace %s: annotation %s: %r is no weight of 0.001 to 1000", name, labels.SHARE, text[:80])
        if weight is None:
            self._world.weights.pop(name, None)
        else:
            self._world.weights[name] = weight
        self._world.namespace_seen(name, obj.metadata.labels or {})

    def delete(self, obj: NamespaceObject) -> None:
        self._world.weights.pop(obj.metadata.name, None)
        self._world.namespace_seen(obj.metadata.name, None)

    def synced(self) -> None:
        self._world.namespaces_known()


def watch_namespaces(
    client: Client, clock: Clock, world: World, malformed: Callable[[], None] = lambda: None
) -> Reflector[NamespaceObject]:
    """Return the watch, not running yet."""
    return Reflector(client, clock, paths.NAMESPACES, NamespaceObject, _Sink(world, malformed), keeps_last=False)
