"""The watches of volume claims, volumes, storage classes and CSI drivers, into the planner's lookups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from binpack.controller.lookups import Lookups
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode_volumes import claim_from, storage_class_from, volume_from
from fleet.kube.reflector import Reflector
from fleet.kube.volume_objects import ClaimObject, CsiDriverObject, PersistentVolumeObject, StorageClassObject
from fleet.kube.wire import KubeObject

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)
Skipped = Callable[[str, str], None]
_POLL_S = 0.05


class _Sink(Generic[T]):
    """Sink of one of the watches."""

    def __init__(
        self,
        kind: str,
        take: Callable[[T], None],
        drop: Callable[[T], None],
        noted: Callable[[], None],
        skipped: Skipped,
    ) -> None:
        self._kind = kind
        self._take = take
        self._drop = drop
        self._noted = noted
        self._skipped = skipped

    def upsert(self, obj: T) -> None:
        try:
            self._take(obj)
        except Exception:
            # Broad on purpose: an object that we fail on must not end the watch of all the others.
            log.exception("%s %s could not be dealt with", self._kind, obj.metadata.name)
            self._drop(obj)
            self._skipped(self._kind, obj.metadata.name)
        self._noted()

    def delete(self, obj: T) -> None:
        self._drop(obj)
        self._noted()

    def synced(self) -> None:
        self._noted()


class VolumeFeed:
    """Keeps the book of volumes equal to the API for as long as `run` runs.

    Args:
        client: Connected client.
        clock: Time for back-off and staleness.
        lookups: Whose book is filled; it counts as known once all four lists are in it.
        changed: Called after every event.
        skipped: Told kind and name of every object that had to be skipped.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        lookups: Lookups,
        changed: Callable[[], None] = lambda: None,
        skipped: Skipped = lambda kind, name: None,
    ) -> None:
        self._clock = clock
        self._lookups = lookups
        self._changed = changed
        book = lookups.volumes

        def reflector(path: str, kind: type[T], take: Callable[[T], None], drop: Callable[[T], None]) -> Reflector[Any]:
            what = kind.__name__.removesuffix("Object")
            sink = _Sink(what, take, drop, self._note, skipped)
            return Reflector(client, clock, path, kind, sink, keeps_last=False)

        def set_driver(obj: CsiDriverObject) -> None:
            book.set_driver(obj.metadata.name, tells_capacity=bool(obj.spec.storage_capacity))

        self._reflectors: tuple[Reflector[Any], ...] = (
            reflector(
                paths.VOLUME_CLAIMS,
                ClaimObject,
                lambda obj: book.set_claim(claim_from(obj)),
                lambda obj: book.remove_claim(obj.metadata.namespace, obj.metadata.name),
            ),
            reflector(
                paths.VOLUMES,
                PersistentVolumeObject,
                lambda obj: book.set_volume(volume_from(obj)),
                lambda obj: book.remove_volume(obj.metadata.name),
            ),
            reflector(
                paths.STORAGE_CLASSES,
                StorageClassObject,
                lambda obj: book.set_class(storage_class_from(obj)),
                lambda obj: book.remove_class(obj.metadata.name),
            ),
            reflector(
                paths.CSI_DRIVERS,
                CsiDriverObject,
                set_driver,
                lambda obj: book.set_driver(obj.metadata.name, tells_capacity=False),
            ),
        )

    def _note(self) -> None:
        self._lookups.volumes.is_known = all(one.is_synced for one in self._reflectors)
        self._lookups.has_news = True
        self._changed()

    async def known(self, within_s: float = 3.0) -> bool:
        """Wait until the book is known, for a while: pods with claims can be planned without it, but not pinned."""
        until_s = self._clock.monotonic_s() + within_s
        while not self._lookups.volumes.is_known and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(_POLL_S)
        return self._lookups.volumes.is_known

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._reflectors:
                group.create_task(one.run())
