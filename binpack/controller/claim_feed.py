"""The watches of resource claims, device classes and device taint rules, into the planner's desk.

A cluster that does not serve them has none. Pods with claims wait until all three are listed from quorum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from binpack.dra.desk import Desk
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode_claim import claim_from, class_from
from fleet.kube.decode_dra import slice_from, taint_rule_from
from fleet.kube.dra_objects import DeviceClassObject, DeviceTaintRuleObject, ResourceClaimObject
from fleet.kube.objects import MetaObject, ResourceSliceObject
from fleet.kube.reflector import Reflector
from fleet.kube.wire import Unreadable

log = logging.getLogger(__name__)

Skipped = Callable[[str, str], None]


class _Named(Protocol):
    @property
    def metadata(self) -> MetaObject: ...


class _Sink:
    """Sink of one watch: a total decoder, and what the desk does with the value."""

    def __init__(
        self,
        kind: str,
        take: Callable[[Any], None],
        drop: Callable[[MetaObject], None],
        changed: Callable[[], None],
        skipped: Skipped,
    ) -> None:
        self._kind = kind
        self._take = take
        self._drop = drop
        self._changed = changed
        self._skipped = skipped

    def upsert(self, obj: _Named) -> None:
        try:
            self._take(obj)
        except Exception:
            # Broad on purpose: an object that we fail on must not end the watch of all the others.
            log.exception("%s %s could not be dealt with", self._kind, obj.metadata.name)
            self._skipped(self._kind, obj.metadata.name)
        self._changed()

    def delete(self, obj: _Named) -> None:
        self._drop(obj.metadata)
        self._changed()

    def synced(self) -> None:
        """Nothing to do: objects are taken one by one."""


class ClaimFeed:
    """Keeps a desk equal to the API for as long as `run` runs.

    Args:
        client: Connected client.
        clock: Time for back-off.
        desk: Filled and kept up to date; resource slices come from the planner's own watch of them.
        changed: Called after every event.
        skipped: Told kind and name of every object that had to be skipped.
    """

    def __init__(self, client: Client, clock: Clock, desk: Desk, changed: Callable[[], None], skipped: Skipped) -> None:
        self._desk = desk
        self._changed = changed

        def watch(
            path: str, kind: type[Any], name: str, take: Callable[[Any], None], drop: Callable[[MetaObject], None]
        ) -> Reflector[Any]:
            sink = _Sink(name, take, drop, changed, skipped)

            def unreadable(what: Unreadable) -> None:
                skipped(name, what.key)

            return Reflector(client, clock, path, kind, sink, keeps_last=False, on_unreadable=unreadable)

        self._reflectors = (
            watch(
                paths.RESOURCE_CLAIMS,
                ResourceClaimObject,
                "resource claim",
                self._claim_seen,
                lambda meta: desk.remove_claim(meta.uid),
            ),
            watch(
                paths.DEVICE_CLASSES,
                DeviceClassObject,
                "device class",
                lambda obj: desk.set_class(class_from(obj)),
                lambda meta: desk.remove_class(meta.name),
            ),
            watch(
                paths.DEVICE_TAINT_RULES,
                DeviceTaintRuleObject,
                "device taint rule",
                lambda obj: desk.set_rule(taint_rule_from(obj)),
                lambda meta: desk.remove_rule(meta.name),
            ),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors))
            self._desk.is_synced = True
            self._desk.reconsider()
            self._changed()

    def _claim_seen(self, obj: ResourceClaimObject) -> None:
        claim = claim_from(obj)
        before = self._desk.claims.get(claim.uid)
        self._desk.set_claim(claim)
        if claim.allocation is not None and (before is None or before.allocation is None):
            rivals = self._desk.rivals(claim)
            if rivals:
                log.warning("claim %s was given a device that claims %s have", claim.key, ", ".join(rivals))


class SliceListener:
    """Hands on to a desk what the planner's own watch of resource slices shows."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def slice_seen(self, obj: ResourceSliceObject) -> None:
        """Take note of a new or changed slice."""
        self._desk.set_slice(slice_from(obj))

    def slice_gone(self, obj: ResourceSliceObject) -> None:
        """Take note that a slice is gone."""
        self._desk.remove_slice(obj.metadata.name)
