"""Six watches into one world; an object that we fail on never ends the watch of all the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from fleet.clock import Clock
from fleet.kube import paths as kube_paths
from fleet.kube.client import Client
from fleet.kube.reflector import Reflector, Sink
from fleet.kube.wire import T, Unreadable
from scaler.controller import paths
from scaler.controller.objects import AutoscalerObject, NodeObject, ReplicaObject, RivalObject, WorkloadObject
from scaler.controller.pods import Pod, Workload, pod_from
from scaler.controller.world import Autoscaler, Key, World

log = logging.getLogger(__name__)

Failed = Callable[[str, str], None]


class Listener(Protocol):
    """Who wants to know at once."""

    def autoscaler_seen(self, autoscaler: Autoscaler) -> None:
        """Take note of a new or changed autoscaler."""
        ...

    def autoscaler_gone(self, key: Key) -> None:
        """Take note that one is gone."""
        ...

    def pod_ready(self, pod: Pod, workloads: tuple[Workload, ...]) -> None:
        """Take note that a pod that we saw from its creation on is Ready for the first time."""
        ...


class _Autoscalers:
    """Sink of the autoscalers' watch."""

    def __init__(self, world: World, listener: Listener, failed: Failed) -> None:
        self._world = world
        self._listener = listener
        self._failed = failed

    def upsert(self, obj: AutoscalerObject) -> None:
        try:
            self._listener.autoscaler_seen(self._world.set_autoscaler(obj))
        except Exception:
            # Broad on purpose: see above.
            log.exception("autoscaler %s/%s could not be dealt with", obj.metadata.namespace, obj.metadata.name)
            self._failed("autoscaler", obj.metadata.name)

    def delete(self, obj: AutoscalerObject) -> None:
        key = Key(namespace=obj.metadata.namespace, name=obj.metadata.name)
        self._world.remove_autoscaler(key)
        self._listener.autoscaler_gone(key)

    def synced(self) -> None:
        """Nothing to do: every object was told."""


class _Workloads:
    """Sink of the watch of one built-in kind."""

    def __init__(self, world: World, kind: str, clock: Clock) -> None:
        self._world = world
        self._kind = kind
        self._clock = clock

    def upsert(self, obj: WorkloadObject) -> None:
        self._world.set_workload(self._kind, obj, self._clock.monotonic_s())

    def delete(self, obj: WorkloadObject) -> None:
        meta = obj.metadata
        self._world.remove_workload(Workload(namespace=meta.namespace, kind=self._kind, name=meta.name))

    def synced(self) -> None:
        """Nothing to do: every object was told."""


class _Rivals:
    """Sink of the HorizontalPodAutoscalers' watch."""

    def __init__(self, world: World) -> None:
        self._world = world

    def upsert(self, obj: RivalObject) -> None:
        self._world.set_rival(obj)

    def delete(self, obj: RivalObject) -> None:
        self._world.remove_rival(obj.metadata.uid)

    def synced(self) -> None:
        """Nothing to do: every object was told."""


class _Nodes:
    """Sink of the nodes' watch."""

    def __init__(self, world: World) -> None:
        self._world = world

    def upsert(self, obj: NodeObject) -> None:
        self._world.set_node(obj)

    def delete(self, obj: NodeObject) -> None:
        self._world.remove_node(obj.metadata.name)

    def synced(self) -> None:
        """Nothing to do: every object was told."""


class _Pods:
    """Sink of the pods' watch."""

    def __init__(self, world: World, listener: Listener, clock: Clock, failed: Failed) -> None:
        self._world = world
        self._listener = listener
        self._clock = clock
        self._failed = failed
        self._is_listed = False

    def upsert(self, obj: ReplicaObject) -> None:
        try:
            pod = pod_from(obj, now_s=self._clock.monotonic_s(), epoch_s=self._clock.now_s(), is_new=self._is_listed)
            before, workloads = self._world.pods.set(pod)
            if before is not None and before.is_seen_born and before.ready_at_s is None and pod.ready_at_s is not None:
                kept = self._world.pods.get(pod.uid)
                if kept is not None:
                    self._listener.pod_ready(kept, workloads)
        except Exception:
            # Broad on purpose: see above.
            log.exception("pod %s/%s could not be dealt with", obj.metadata.namespace, obj.metadata.name)
            self._failed("pod", obj.metadata.name)

    def delete(self, obj: ReplicaObject) -> None:
        self._world.pods.remove(obj.metadata.uid)

    def synced(self) -> None:
        self._is_listed = True


class Feed:
    """Keeps a world equal to the API for as long as `run` runs.

    Args:
        client: Connected client.
        clock: Time for ages, back-off and staleness.
        world: Filled and kept up to date.
        listener: Told of what cannot wait for the next look at the world.
        failed: Told kind and name of every object that had to be skipped, after the log was.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        world: World,
        listener: Listener,
        failed: Failed = lambda kind, name: None,
    ) -> None:
        def unreadable(kind: str) -> Callable[[Unreadable], None]:
            return lambda what: failed(kind, what.key)

        self._has_all = asyncio.Event()
        autoscalers = _Autoscalers(world, listener, failed)
        # Workloads first: an autoscaler is then told with the count that is found.
        self._workloads = (
            _reflector(client, clock, paths.DEPLOYMENTS, WorkloadObject, _Workloads(world, "Deployment", clock)),
            _reflector(client, clock, paths.STATEFUL_SETS, WorkloadObject, _Workloads(world, "StatefulSet", clock)),
            _reflector(client, clock, paths.RIVALS, RivalObject, _Rivals(world)),
            _reflector(client, clock, kube_paths.NODES, NodeObject, _Nodes(world)),
            Reflector(
                client,
                clock,
                kube_paths.PODS,
                ReplicaObject,
                _Pods(world, listener, clock, failed),
                keeps_last=False,
                on_unreadable=unreadable("pod"),
            ),
        )
        self._autoscalers = Reflector(
            client,
            clock,
            kube_paths.autoscalers(),
            AutoscalerObject,
            autoscalers,
            keeps_last=False,
            on_unreadable=unreadable("autoscaler"),
        )

    @property
    def is_synced(self) -> bool:
        """Return True once every list is in the world."""
        return all(reflector.is_synced for reflector in (*self._workloads, self._autoscalers))

    async def run(self) -> None:
        """Watch until cancelled; the end of one watch ends all, loudly."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._workloads:
                group.create_task(reflector.run())
            await asyncio.gather(*(reflector.refresh() for reflector in self._workloads))
            group.create_task(self._autoscalers.run())
            await self._autoscalers.refresh()
            self._has_all.set()

    async def synced(self) -> None:
        """Return once all lists were taken from quorum; a new leader needs that before it writes."""
        await self._has_all.wait()


def _reflector(client: Client, clock: Clock, path: str, kind: type[T], sink: Sink[T]) -> Reflector[T]:
    return Reflector(client, clock, path, kind, sink, keeps_last=False)
