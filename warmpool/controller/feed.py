"""Six watches into one world; an object that we fail on never ends the watch of all the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject, Object, ResourceSliceObject
from fleet.kube.reflector import Reflector
from fleet.kube.wire import Unreadable
from warmpool.controller.keeper import API_VERSION
from warmpool.controller.objects import AgentObject, PoolObject, ScalerObject
from warmpool.controller.world import World
from warmpool.nodes.reading import WarmNode, WarmPod

log = logging.getLogger(__name__)

POOLS = paths.custom(API_VERSION, labels.POOL_PLURAL)
AGENTS = "/apis/apps/v1/daemonsets"
LEASES = paths.leases("kube-node-lease")
_HEARTBEATS_S = 30.0

Failed = Callable[[str, str], None]


class _Sink:
    """Tells a world of one kind's objects."""

    def __init__(self, kind: str, upsert: Callable[[Any], Any], delete: Callable[[Any], Any], failed: Failed) -> None:
        self._kind = kind
        self._upsert = upsert
        self._delete = delete
        self._failed = failed

    def upsert(self, obj: Any) -> None:
        try:
            self._upsert(obj)
        except Exception:
            # Broad on purpose: see above.
            log.exception("%s %s could not be dealt with", self._kind, obj.metadata.name)
            self._failed(self._kind, obj.metadata.name)

    def delete(self, obj: Any) -> None:
        self._delete(obj)

    def synced(self) -> None:
        """Nothing to do: every object was told."""


class Feed:
    """Keeps a world equal to the API for as long as `run` runs.

    Args:
        client: Connected client.
        clock: Time for ages, back-off and staleness.
        world: Filled and kept up to date.
        failed: Told kind and name of every object that had to be skipped, after the log was.
    """

    def __init__(self, client: Client, clock: Clock, world: World, failed: Failed = lambda kind, name: None) -> None:
        def reflector(
            kind: str,
            path: str,
            struct: Any,
            upsert: Callable[[Any], Any],
            delete: Callable[[Any], Any],
            *,
            params: dict[str, str] | None = None,
            keeps_last: bool = False,
        ) -> Reflector[Any]:
            def unreadable(what: Unreadable) -> None:
                failed(kind, what.key)

            return Reflector(
                client,
                clock,
                path,
                struct,
                _Sink(kind, upsert, delete, failed),
                keeps_last=keeps_last,
                params=params,
                on_unreadable=unreadable,
            )

        self._client = client
        self._clock = clock
        self._world = world
        self._has_all = asyncio.Event()
        self._reflectors = (
            reflector(
                "node",
                paths.NODES,
                WarmNode,
                lambda node: world.set_node(node, clock.monotonic_s()),
                lambda node: world.remove_node(node.metadata.name),
                # A node that loses the label leaves this watch as if it were deleted.
                params={"labelSelector": labels.POOL},
            ),
            reflector(
                "resource slice",
                paths.RESOURCE_SLICES,
                ResourceSliceObject,
                world.set_slice,
                world.remove_slice,
                keeps_last=True,
            ),
            reflector("pod", paths.PODS, WarmPod, world.set_pod, lambda pod: world.remove_pod(pod.metadata.uid)),
            reflector(
                "daemonset",
                AGENTS,
                AgentObject,
                world.set_agent,
                lambda agent: world.remove_agent(agent.metadata.namespace, agent.metadata.name),
            ),
            reflector(
                "autoscaler",
                paths.autoscalers(),
                ScalerObject,
                world.set_needs,
                lambda scaler: world.remove_needs(scaler.metadata.namespace, scaler.metadata.name),
            ),
        )
        # Pools last: one is then looked at with everything that is there.
        self._pools = reflector(
            "pool", POOLS, PoolObject, world.set_pool, lambda pool: world.remove_pool(pool.metadata.name)
        )

    @property
    def is_synced(self) -> bool:
        """Return True once every list is in the world."""
        return all(reflector.is_synced for reflector in (*self._reflectors, self._pools))

    async def run(self) -> None:
        """Watch until cancelled; the end of one watch ends all, loudly."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors))
            group.create_task(self._pools.run())
            await self._pools.refresh()
            self._has_all.set()
            group.create_task(self._listen())

    async def synced(self) -> None:
        """Return once all lists were taken from quorum; a new leader needs that before it writes."""
        await self._has_all.wait()

    async def _listen(self) -> None:
        """Read the nodes' leases every half minute: whether they change is all that is asked.

        A watch would bring one message per node and ten seconds.
        """
        while True:
            if self._world.nodes:
                try:
                    listed = _leases(await self._client.get(LEASES, {"resourceVersion": "0"}))
                except (ApiError, msgspec.DecodeError) as error:
                    log.warning("the nodes' leases could not be read: %s", error)
                else:
                    self._world.heartbeats = {
                        lease.metadata.name: lease.spec.renew_time or ""
                        for lease in listed.items
                        if lease.metadata.name in self._world.nodes
                    }
            await self._clock.sleep(_HEARTBEATS_S)


class _LeaseSpec(Object):
    renew_time: str | None = None


class _Lease(Object):
    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _Leases(msgspec.Struct):
    items: list[_Lease]


_leases = msgspec.json.Decoder(_Leases).decode
