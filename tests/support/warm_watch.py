"""Watches nodes and pods through the API alone: every event is kept for a replay, lives are counted as they go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from fleet import labels
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.reflector import Reflector
from tests.support.warm_invariants import Fault, PoolTruth, Seen, faults_of
from tests.support.warm_seen import SeenNode, SeenPod, decoded, is_puller, notes, pool_of


@dataclass(slots=True)
class Life:
    """One replica, on the observer's own clock; None = not yet.

    Attributes:
        outcome: `hit` or `miss` as first noted; "" = it needed no draw, or nobody has said yet.
    """

    name: str
    namespace: str
    created_s: float
    bound_s: float | None = None
    ready_s: float | None = None
    gone_s: float | None = None
    pool: str = ""
    outcome: str = ""
    why: str = ""

    @property
    def is_answered(self) -> bool:
        """Return whether its draw found a node, now or later."""
        return bool(self.outcome) and self.bound_s is not None


class Observer:
    """Everything that was seen since it began.

    Attributes:
        events: Of nodes and pods.
        lives: Of the replicas in the namespaces looked at, by uid.
        counts: How many nodes the pools had, each time that changed: (seconds, pool, nodes).
    """

    def __init__(self, client: Client, clock: Clock, namespaces: Iterable[str]) -> None:
        self.events: list[Seen] = []
        self.lives: dict[str, Life] = {}
        self.counts: list[tuple[float, str, int]] = []
        self.nodes: dict[str, SeenNode] = {}
        self._clock = clock
        self._namespaces = frozenset(namespaces)
        self._reflectors = (
            Reflector(client, clock, paths.NODES, SeenNode, _Nodes(self)),
            Reflector(client, clock, paths.PODS, SeenPod, _Pods(self)),
        )

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Observer]:
        """Watch while the block runs."""
        tasks = [asyncio.ensure_future(reflector.run()) for reflector in self._reflectors]
        try:
            while not all(reflector.is_synced for reflector in self._reflectors):
                await self._clock.sleep(0.02)
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def answered(self) -> int:
        """Return how many draws found a node."""
        return sum(life.is_answered for life in self.lives.values())

    @property
    def lists(self) -> int:
        """Return how often a collection was listed: more than twice means that events were missed."""
        return sum(reflector.stats.lists for reflector in self._reflectors)

    def faults(self, pools: Iterable[PoolTruth], *, late_s: float) -> tuple[Fault, ...]:
        """Return everything that must never be, in what was seen so far; see `faults_of`."""
        return faults_of(self.events, pools, late_s=late_s)

    def of_pool(self, pool: str) -> list[SeenNode]:
        """Return the pool's nodes as they are now."""
        return [node for node in self.nodes.values() if pool_of(node) == pool]

    def saw_node(self, node: SeenNode, *, is_gone: bool = False) -> None:
        """Take a node's event."""
        now_s, name, pool = self._clock.monotonic_s(), node.metadata.name, pool_of(node)
        self.events.append(Seen(version=int(node.metadata.resource_version), at_s=now_s, node=node, is_gone=is_gone))
        is_known = name in self.nodes
        if is_gone:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
        if is_known is is_gone:
            self.counts.append((now_s, pool, len(self.of_pool(pool))))

    def saw_pod(self, pod: SeenPod, *, is_gone: bool = False) -> None:
        """Take a pod's event."""
        now_s, meta = self._clock.monotonic_s(), pod.metadata
        self.events.append(Seen(version=int(meta.resource_version), at_s=now_s, pod=pod, is_gone=is_gone))
        if meta.namespace not in self._namespaces or is_puller(pod):
            return
        life = self.lives.get(meta.uid)
        if life is None:
            life = self.lives[meta.uid] = Life(name=meta.name, namespace=meta.namespace, created_s=now_s)
        if pod.spec.node_name and life.bound_s is None:
            life.bound_s = now_s
        if life.ready_s is None and any(
            one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ()
        ):
            life.ready_s = now_s
        if is_gone:
            life.gone_s = now_s
        draw = decoded(notes(pod).get(labels.DRAW, ""))
        if draw and not life.outcome:
            life.pool, life.outcome, life.why = draw.get("pool", ""), draw.get("outcome", ""), draw.get("why", "")


class _Nodes:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def upsert(self, obj: SeenNode) -> None:
        self._observer.saw_node(obj)

    def delete(self, obj: SeenNode) -> None:
        self._observer.saw_node(obj, is_gone=True)

    def synced(self) -> None:
        """Nothing to do: what is missed shows in the number of lists."""


class _Pods:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def upsert(self, obj: SeenPod) -> None:
        self._observer.saw_pod(obj)

    def delete(self, obj: SeenPod) -> None:
        self._observer.saw_pod(obj, is_gone=True)

    def synced(self) -> None:
        """Nothing to do: what is missed shows in the number of lists."""
