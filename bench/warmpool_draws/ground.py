"""The pools, who draws from them, and what must be gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from berthmaster.traffic.objects import deployment, namespace
from fleet import labels
from fleet.clock import Clock
from fleet.errors import Conflict, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from tests.support.warm_invariants import PoolTruth
from tests.support.warm_watch import Observer

_POOL_PATH = paths.custom(f"{labels.DOMAIN}/{labels.POOL_VERSION}", labels.POOL_PLURAL)
_DIGEST = f"sha256:{'a' * 64}"
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Basin:
    """A pool and the Deployment that draws from it, both by the same name.

    Attributes:
        gpus: Of one node; each replica takes one.
        objective: As the WarmPool says it.
    """

    name: str
    gpus: int
    objective: dict[str, Any]
    most_nodes: int = 120

    @property
    def image(self) -> str:
        """Return what its replicas run."""
        return f"reg.example/{self.name}:1"

    @property
    def selector(self) -> dict[str, str]:
        """Return the label of its nodes."""
        return {"bench.berthmaster.dev/shape": self.name}

    @property
    def truth(self) -> PoolTruth:
        """Return what must hold of its nodes."""
        pinned = f"reg.example/{self.name}@{_DIGEST}"
        return PoolTruth(name=self.name, devices=self.gpus, images=(pinned,), namespaces=frozenset({self.name}))

    def pool(self) -> dict[str, Any]:
        """Return the WarmPool."""
        return {
            "apiVersion": f"{labels.DOMAIN}/{labels.POOL_VERSION}",
            "kind": labels.POOL_KIND,
            "metadata": {"name": self.name},
            "spec": {
                "shape": {
                    "resources": {"cpu": "16", "memory": "64Gi", "pods": "32", labels.NVIDIA_GPU: str(self.gpus)},
                    "devices": {"count": self.gpus, "model": "L4"},
                    "labels": self.selector,
                },
                "images": [{"reference": self.image, "digest": _DIGEST}],
                "size": {"min": 0, "max": self.most_nodes},
                "objective": self.objective,
                "serves": {"namespaces": [self.name]},
                "provider": {"kind": "kwok"},
                "mode": "act",
            },
        }


@dataclass(slots=True)
class Workload:
    """The replicas that are wanted of one basin now."""

    client: Client
    basin: Basin
    wanted: int = 0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def more(self, count: int) -> None:
        """Want so many more, or fewer."""
        await self.want(self.wanted + count)

    async def want(self, count: int) -> None:
        """Want so many."""
        self.wanted = max(0, count)
        async with self._lock:
            path = f"/apis/apps/v1/namespaces/{self.basin.name}/deployments/{self.basin.name}"
            await self.client.merge_patch(path, msgspec.json.encode({"spec": {"replicas": self.wanted}}))


async def lay(client: Client, basin: Basin) -> Workload:
    """Create pool, namespace and an empty Deployment."""
    with contextlib.suppress(Conflict):
        await client.create("/api/v1/namespaces", msgspec.json.encode(namespace(basin.name, is_managed=True)))
    await client.create(_POOL_PATH, msgspec.json.encode(basin.pool()))
    body = deployment(
        basin.name,
        basin.name,
        replicas=0,
        is_served=False,
        requests={labels.NVIDIA_GPU: "1"},
        node_selector=basin.selector,
        image=basin.image,
    )
    await client.create(f"/apis/apps/v1/namespaces/{basin.name}/deployments", msgspec.json.encode(body))
    return Workload(client=client, basin=basin)


async def status(client: Client, pool: str) -> dict[str, Any]:
    """Return a pool's status."""
    found: dict[str, Any] = msgspec.json.decode(await client.get(f"{_POOL_PATH}/{pool}")).get("status", {})
    return found


async def remove(client: Client, basin: Basin) -> None:
    """Ask for the pool's end."""
    with contextlib.suppress(NotFound):
        await client.delete(f"{_POOL_PATH}/{basin.name}")


async def left(client: Client) -> list[str]:
    """Return every pool, node, record of a machine, and pulling pod that is still there."""
    found: list[str] = []
    for path, selector in (
        (_POOL_PATH, ""),
        (paths.NODES, labels.POOL),
        (paths.config_maps(labels.PULL_NAMESPACE), labels.MACHINE),
        (paths.PODS, labels.PULLER),
    ):
        listed = msgspec.json.decode(await client.get(path, {"labelSelector": selector} if selector else None))
        found += [f"{listed['kind'].removesuffix('List')} {item['metadata']['name']}" for item in listed["items"]]
    return found


def soiled(observer: Observer, basin: Basin) -> list[str]:
    """Return the nodes of a pool that nobody uses whose taints are not exactly the pool's own, or that are claimed.

    One that is being given up is none of them: whether it goes shows later.
    """
    found = []
    for node in observer.of_pool(basin.name):
        keys = sorted(taint.key for taint in node.spec.taints or ())
        notes = node.metadata.annotations or {}
        claim, is_leaving = notes.get(labels.CLAIM, ""), bool(notes.get(labels.CLOSING))
        if not is_leaving and (keys != [labels.POOL] or claim or node.spec.unschedulable):
            found.append(f"{node.metadata.name}: taints {keys}, claim {claim!r}")
    return found


async def until(clock: Clock, holds: Callable[[], Any], within_s: float) -> float | None:
    """Wait until it holds; returns how long that took, None where it did not in time. `holds` may be a coroutine."""
    begun_s = clock.monotonic_s()
    while True:
        answer = holds()
        if asyncio.iscoroutine(answer):
            answer = await answer
        took_s = clock.monotonic_s() - begun_s
        if answer:
            return took_s
        if took_s > within_s:
            return None
        await clock.sleep(_LOOK_EVERY_S)
