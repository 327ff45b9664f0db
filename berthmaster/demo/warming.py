"""The third act: a burst that finds warm nodes, and one that finds too few of them.

The cloud is played (Node objects after drawn delays, thirty times as fast as the published break-down of a large
model's cold start); planner, scaler, warm pool and kube-scheduler are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from berthmaster.traffic.ground import EndpointPlan
from berthmaster.traffic.objects import deployment, namespace
from berthmaster.warmpool_object import WarmPool, pool_of
from fleet import labels
from fleet.clock import Clock
from fleet.draw import Draw, read_draw
from fleet.errors import ApiError, Conflict, LocalClusterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject
from fleet.kube.reflector import Reflector

POOL = "demo"
NAMESPACE = "bursts"
TIME_SCALE = 30
WARM_NODES = 2
GPUS = 2
SHAPE = {"demo.berthmaster.dev/shape": "two-gpus"}
IMAGE = "example.invalid/runtime:1"
ONE_GPU = {labels.NVIDIA_GPU: "1"}
SETTINGS = {"BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE": str(TIME_SCALE)}
_LOOK_EVERY_S = 0.5
_WARM_WITHIN_S = 180.0
_BOUND_WITHIN_S = 240.0
_POOL_PATH = paths.custom(f"{labels.DOMAIN}/{labels.POOL_VERSION}", labels.POOL_PLURAL)

Tell = Callable[[str], None]


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None


class StartingPod(msgspec.Struct, rename="camel", gc=False):
    """The little of a pod that this act needs."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: _Spec = msgspec.field(default_factory=_Spec)


@dataclass(slots=True)
class Start:
    """One pod's way to its node, on this process's clock; None = not yet, or no draw was needed."""

    created_s: float
    bound_s: float | None = None
    draw: Draw | None = None

    @property
    def took_s(self) -> float | None:
        """Return how long it waited for its node."""
        return None if self.bound_s is None else self.bound_s - self.created_s


class Starts:
    """A sink for a watch of pods: when each came, when it was bound, and what its draw found."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.all: dict[str, Start] = {}
        self._now_s = now_s

    def upsert(self, obj: StartingPod) -> None:
        """Take a pod as it is now."""
        start = self.all.setdefault(obj.metadata.uid, Start(created_s=self._now_s()))
        if obj.spec.node_name and start.bound_s is None:
            start.bound_s = self._now_s()
        start.draw = read_draw((obj.metadata.annotations or {}).get(labels.DRAW, "")) or start.draw

    def delete(self, obj: StartingPod) -> None:
        """Keep what was seen of a pod that is gone."""

    def synced(self) -> None:
        """Nothing to do: the watch starts before the first pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the act ended.

    Attributes:
        hits_s: How long pods waited that found a warm node.
        misses_s: How long those waited that found none.
        warm_s: From the pool's making until all its nodes were proven warm.
        drawn_by_scaler: Replicas of the scaled endpoint that found a warm node.
    """

    hits_s: tuple[float, ...]
    misses_s: tuple[float, ...]
    warm_s: float
    drawn_by_scaler: int


def endpoint(plan: EndpointPlan) -> EndpointPlan:
    """Return the same endpoint with replicas that need a GPU of the pool's shape, placed by our planner."""
    return EndpointPlan(
        name=plan.name,
        namespace=plan.namespace,
        profile=plan.profile,
        start_delay_s=plan.start_delay_s,
        limit=plan.limit,
        slots=plan.slots,
        spec=plan.spec,
        is_managed=True,
        requests=ONE_GPU,
        node_selector=SHAPE,
        image=IMAGE,
    )


def pool_object(namespaces: list[str]) -> dict[str, Any]:
    """Return the WarmPool: two nodes of two GPUs, proven warm, whatever comes."""
    return {
        "apiVersion": f"{labels.DOMAIN}/{labels.POOL_VERSION}",
        "kind": labels.POOL_KIND,
        "metadata": {"name": POOL},
        "spec": {
            "shape": {
                "resources": {"cpu": "16", "memory": "64Gi", "pods": "32", labels.NVIDIA_GPU: str(GPUS)},
                "devices": {"count": GPUS, "model": "L4"},
                "labels": SHAPE,
            },
            "images": [{"reference": IMAGE}],
            "size": {"min": 0, "max": 16},
            "objective": {"static": WARM_NODES},
            "serves": {"namespaces": namespaces},
            "provider": {"kind": "kwok"},
            "mode": "act",
        },
    }


@asynccontextmanager
async def pool_standing(client: Client, clock: Clock, namespaces: list[str], tell: Tell) -> AsyncIterator[float]:
    """Have the pool, all its nodes proven warm, while the block runs; yields how long that took.

    Args:
        client: As somebody who may create WarmPools and namespaces.
        clock: Time.
        namespaces: Whose draws count; made if they are not there.
        tell: Told what is going on.

    Raises:
        LocalClusterError: The nodes did not become warm in time.
        ApiError: The API server refused an object.
    """
    for name in namespaces:
        with suppress(Conflict):
            await client.create("/api/v1/namespaces", msgspec.json.encode(namespace(name, is_managed=True)))
    await client.create(_POOL_PATH, msgspec.json.encode(pool_object(namespaces)))
    started_s = clock.monotonic_s()
    try:
        await until_warm(client, clock, tell)
        yield clock.monotonic_s() - started_s
    finally:
        with suppress(NotFound):
            await client.delete(f"{_POOL_PATH}/{POOL}")


async def until_warm(client: Client, clock: Clock, tell: Tell) -> None:
    """Wait until the pool has all the warm nodes that it wants.

    Raises:
        LocalClusterError: It has not in time.
    """
    deadline_s = clock.monotonic_s() + _WARM_WITHIN_S
    while ((pool := await _pool(client)).status.warm or 0) < WARM_NODES:
        status = pool.status
        tell(f"{status.warm or 0} of {WARM_NODES} nodes proven warm, {status.coming or 0} on their way")
        if clock.monotonic_s() > deadline_s:
            raise LocalClusterError(f"pool {POOL} has {status.warm or 0} warm nodes after {_WARM_WITHIN_S:.0f} s")
        await clock.sleep(_LOOK_EVERY_S)


async def _pool(client: Client) -> WarmPool:
    return pool_of(await client.get(f"{_POOL_PATH}/{POOL}"))


@asynccontextmanager
async def starts_of(client: Client, clock: Clock, name: str) -> AsyncIterator[Starts]:
    """Watch a namespace's pods while the block runs."""
    starts = Starts(clock.monotonic_s)
    watching = asyncio.ensure_future(Reflector(client, clock, paths.pods(name), StartingPod, starts).run())
    try:
        yield starts
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def burst(client: Client, clock: Clock, pods: int, tell: Tell) -> Starts:
    """Ask for whole nodes of the pool's shape at once; return how each pod came to its node.

    Args:
        client: As somebody who may create Deployments.
        clock: Time.
        pods: How many, each needing a node of its own.
        tell: Told what is going on.

    Raises:
        LocalClusterError: Not all were bound in time.
        ApiError: The API server refused the Deployment.
    """
    made = deployment(
        "burst",
        NAMESPACE,
        replicas=pods,
        is_served=False,
        requests={labels.NVIDIA_GPU: str(GPUS)},
        node_selector=SHAPE,
        image=IMAGE,
    )
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    async with starts_of(client, clock, NAMESPACE) as starts:
        await client.create(path, msgspec.json.encode(made))
        try:
            deadline_s = clock.monotonic_s() + _BOUND_WITHIN_S
            while (bound := sum(start.bound_s is not None for start in starts.all.values())) < pods:
                tell(f"{bound} of {pods} pods have their node")
                if clock.monotonic_s() > deadline_s:
                    raise LocalClusterError(
                        f"{bound} of {pods} pods of the burst were bound in {_BOUND_WITHIN_S:.0f} s"
                    )
                await clock.sleep(_LOOK_EVERY_S)
        finally:
            with suppress(ApiError):
                await client.delete(f"{path}/burst")
    return starts


def outcome(warm_s: float, burst: Starts, scaled: Starts | None) -> Outcome:
    """Return how the act ended; a start without a note of its draw counts as neither hit nor miss."""
    starts = [start for start in burst.all.values() if start.draw is not None and start.took_s is not None]
    drawn = [] if scaled is None else [start for start in scaled.all.values() if start.draw and start.draw.is_hit]
    return Outcome(
        hits_s=tuple(sorted(start.took_s or 0.0 for start in starts if start.draw and start.draw.is_hit)),
        misses_s=tuple(sorted(start.took_s or 0.0 for start in starts if start.draw and not start.draw.is_hit)),
        warm_s=warm_s,
        drawn_by_scaler=len(drawn),
    )


def middle_s(times_s: tuple[float, ...]) -> float | None:
    """Return the median, None of none."""
    return median(times_s) if times_s else None
