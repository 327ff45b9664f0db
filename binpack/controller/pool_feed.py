"""The watch of warm pools, into the planner's world."""

from __future__ import annotations

import logging
from collections.abc import Callable

from binpack.controller.world import World
from fleet import labels
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode_pool import WarmPoolObject, pool_from
from fleet.kube.reflector import Reflector

log = logging.getLogger(__name__)


class _PoolSink:
    """Sink of the watch."""

    def __init__(self, world: World, changed: Callable[[], None]) -> None:
        self._world = world
        self._changed = changed

    def upsert(self, obj: WarmPoolObject) -> None:
        try:
            self._world.pool_seen(pool_from(obj))
        except Exception:
            # Broad on purpose: an object that we fail on must not end the watch of all the others.
            log.exception("pool %s could not be dealt with", obj.metadata.name)
            self._world.pool_gone(obj.metadata.name)
        self._changed()

    def delete(self, obj: WarmPoolObject) -> None:
        self._world.pool_gone(obj.metadata.name)
        self._changed()

    def synced(self) -> None:
        """Nothing to do: pools are taken one by one."""


def watch_pools(
    client: Client, clock: Clock, world: World, changed: Callable[[], None] = lambda: None
) -> Reflector[WarmPoolObject]:
    """Return the watch, not running yet; a cluster without the resource has no pools."""
    path = paths.custom(f"{labels.DOMAIN}/{labels.POOL_VERSION}", labels.POOL_PLURAL)
    return Reflector(client, clock, path, WarmPoolObject, _PoolSink(world, changed), keeps_last=False)
