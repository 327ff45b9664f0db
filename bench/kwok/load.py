"""Pods of one GPU each: created, watched until bound, counted, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from berthmaster.demo.board import Board, PodSeen, quantile
from berthmaster.demo.replay import items
from berthmaster.local.progress import Tell
from berthmaster.recount import recount
from fleet import labels
from fleet.clock import Clock
from fleet.errors import BerthmasterError, Conflict
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.reflector import Reflector

IN_FLIGHT = 32
OWNER = "bench-kwok"
_LOOK_EVERY_S = 0.1
_STILL_AFTER_S = 60.0
_GONE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How one load went.

    Attributes:
        seconds: From the first creation to the last binding, as a watch saw it.
        latencies_s: Created to bound of every pod, sorted.
    """

    pods: int
    seconds: float
    latencies_s: tuple[float, ...]

    @property
    def pods_per_s(self) -> float:
        """Return the rate, created to bound."""
        return self.pods / self.seconds

    def latency_s(self, q: float) -> float:
        """Return a quantile of created to bound."""
        return quantile(self.latencies_s, q) or 0.0


def _owner(uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": uid, "controller": True}


class Pace:
    """Lets one through every 1/rate seconds, whoever waits; those that came late do not catch up in a burst."""

    def __init__(self, clock: Clock, rate_per_s: float) -> None:
        self._clock = clock
        self._gap_s = 1.0 / rate_per_s
        self._next_s = clock.monotonic_s()

    async def wait(self) -> None:
        """Return when it is one's turn."""
        now_s = self._clock.monotonic_s()
        self._next_s = max(self._next_s, now_s - self._gap_s) + self._gap_s
        await self._clock.sleep(max(0.0, self._next_s - now_s))


async def prepare(client: Client, namespace: str, *, is_managed: bool) -> str:
    """Make a namespace and in it an owner that stands for the pods' controller; return the owner's uid."""
    about = {"name": namespace, "labels": {labels.MANAGED_LABEL: "true"} if is_managed else {}}
    with suppress(Conflict):
        await client.create("/api/v1/namespaces", _json("Namespace", about))
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with suppress(Conflict):
        await client.create(path, _json("ConfigMap", {"name": OWNER, "namespace": namespace}))
    uid: str = msgspec.json.decode(await client.get(f"{path}/{OWNER}"))["metadata"]["uid"]
    return uid


def pod_object(
    name: str,
    namespace: str,
    owner_uid: str,
    *,
    gpus: int = 1,
    node: str = "",
    scheduler: str = "",
    marks: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a serving pod of so many `nvidia.com/gpu`, bound already where a node is given.

    Args:
        name: metadata.name.
        namespace: metadata.namespace.
        owner_uid: uid of the owner that `prepare` made; "" = the pod stands alone.
        gpus: Whole devices.
        node: Where it is bound; "" = somebody is to place it.
        scheduler: Whose it is; "" = the default, which our policy changes in a managed namespace.
        marks: More labels.
    """
    amounts = {"cpu": str(4 * gpus), "memory": f"{16 * gpus}Gi", labels.NVIDIA_GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app": "model",
                "app.kubernetes.io/name": "model",
                "pod-template-hash": "5d9c7b8f6",
                **(marks or {}),
            },
            "ownerReferences": [_owner(owner_uid)] if owner_uid else [],
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            **({"schedulerName": scheduler} if scheduler else {}),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "model",
                    "image": "example.invalid/model",
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


async def create(
    client: Client, pods: Iterable[dict[str, Any]], told: Any = lambda uid: None, *, pace: Pace | None = None
) -> None:
    """Create pods, 32 in flight; `told` hears each uid once the API has answered. A pace holds them back."""
    waiting = iter(pods)
    decode = msgspec.json.Decoder(PodSeen).decode

    async def work() -> None:
        for pod in waiting:
            if pace is not None:
                await pace.wait()
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
            told(decode(await client.create(path, msgspec.json.encode(pod), timeout_s=60.0)).metadata.uid)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())


async def place(
    client: Client, clock: Clock, pods: list[dict[str, Any]], tell: Tell, *, rate_per_s: float | None = None
) -> Bound:
    """Create these pods of one namespace, as fast as can be or at a rate, and wait until a watch saw each bound.

    Raises:
        BerthmasterError: For a minute nothing moved, or a pod was deleted by somebody else.
    """
    board = Board(clock.monotonic_s)
    namespace = pods[0]["metadata"]["namespace"]
    watch = Reflector(client, clock, f"/api/v1/namespaces/{namespace}/pods", PodSeen, board)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        while not watch.is_synced:
            await clock.sleep(_LOOK_EVERY_S)
        started_s = moved_s = clock.monotonic_s()
        creating = group.create_task(
            create(client, pods, board.created, pace=Pace(clock, rate_per_s) if rate_per_s else None)
        )
        last = board.standings
        while not creating.done() or board.standings.bound < len(pods):
            await clock.sleep(_LOOK_EVERY_S)
            now_s, standings = clock.monotonic_s(), board.standings
            tell(standings.bound / len(pods), f"{standings.bound} of {len(pods)} bound")
            if standings != last:
                moved_s, last = now_s, standings
            if now_s - moved_s > _STILL_AFTER_S or board.deleted:
                raise BerthmasterError(
                    f"{standings.bound} of {len(pods)} pods are bound in {namespace}, {board.deleted} were deleted, "
                    f"{standings.waiting} wait, and nothing has moved for {now_s - moved_s:.0f} s"
                )
        watching.cancel()
    return Bound(pods=len(pods), seconds=(board.last_bound_s or started_s) - started_s, latencies_s=board.latencies_s)


async def faults(client: Client) -> tuple[str, ...]:
    """Return what an independent count over the API's objects finds wrong: over-allocation, pods without a node."""
    truth = recount(await items(client, paths.NODES), await items(client, paths.PODS))
    unbound = truth.pods - truth.bound
    return (*truth.faults, *((f"{unbound} pods are not bound",) if unbound else ()))


async def clear(client: Client, clock: Clock, namespace: str) -> None:
    """Delete all pods of a namespace and wait until they are gone.

    Raises:
        BerthmasterError: They do not go.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    deadline_s = clock.monotonic_s() + _GONE_S
    while True:
        await client.request("DELETE", path, params={"gracePeriodSeconds": "0"}, timeout_s=_GONE_S)
        if not (await items(client, path)):
            return
        if clock.monotonic_s() > deadline_s:
            raise BerthmasterError(f"pods of {namespace} are not gone after {_GONE_S:.0f} s")
        await clock.sleep(1.0)


def _json(kind: str, metadata: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": kind, "metadata": metadata})
