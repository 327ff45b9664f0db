"""Pods that come and go: shares, whole devices, several, counted ones, CPU, MIG instances, gangs, urgent ones."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bench.chaos.seen import Object
from berthmaster.local import fake_nodes
from fleet import labels
from fleet.clock import Clock
from fleet.device import WHOLE_MILLI
from fleet.errors import ApiError, BerthmasterError, Conflict, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.node import Node

POOL = "bench.berthmaster.dev/pool"
NAMESPACE, STRANGERS = "bench-chaos", "bench-chaos-strangers"
URGENT = "bench-chaos-urgent"
_H100 = "NVIDIA-H100-80GB-HBM3"
_CORES, _GPUS = 32, 4
_LIFE_S, _SHORTEST_S = 22.0, 4.0
_PATIENCE_S = 90.0
_GANG_RATIO, _URGENT_RATIO, _BARE_RATIO = 0.02, 0.06, 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One kind of pod: where, what, how often, and what it takes of a pool's devices (for the load's size alone)."""

    pool: str
    requests: Mapping[str, str]
    weight: int
    milli: int
    profile: str = ""


WISHES = (
    Wish(pool="sharing", requests={labels.GPU_MILLI: "100", "cpu": "500m"}, weight=18, milli=100),
    Wish(
        pool="sharing",
        requests={labels.GPU_MILLI: "250", labels.GPU_MEMORY_MIB: "20000", "cpu": "1"},
        weight=16,
        milli=250,
    ),
    Wish(pool="sharing", requests={labels.GPU_MILLI: "500", "cpu": "2"}, weight=12, milli=500),
    Wish(pool="sharing", requests={labels.GPU: "1", "cpu": "4"}, weight=18, milli=1000),
    Wish(pool="sharing", requests={labels.GPU: "2", "cpu": "6"}, weight=5, milli=2000),
    Wish(pool="sharing", requests={labels.GPU: "4", "cpu": "8"}, weight=2, milli=4000),
    Wish(pool="sharing", requests={"cpu": "3", "memory": "4Gi"}, weight=10, milli=0),
    Wish(pool="classic", requests={labels.NVIDIA_GPU: "1", "cpu": "3"}, weight=14, milli=1000),
    Wish(pool="classic", requests={labels.NVIDIA_GPU: "2", "cpu": "4"}, weight=4, milli=2000),
    Wish(pool="mig", requests={labels.GPU: "1", "cpu": "1"}, weight=3, milli=430, profile="3g.40gb"),
    Wish(pool="mig", requests={labels.GPU: "1", "cpu": "1"}, weight=3, milli=140, profile="1g.10gb"),
)
_MEMBER = WISHES[3]


def nodes(scale: int) -> tuple[Node, ...]:
    """Return the cluster's machines: 8 per `scale` for sharing, 4 counted, 1 of MIG."""
    found: list[Node] = []
    for pool, count, gpus, model, mib in (
        ("sharing", 8 * scale, _GPUS, "G2", 81_920),
        ("classic", 4 * scale, _GPUS, "G2", 81_920),
        ("mig", scale, 2, _H100, 81_559),
    ):
        found += [
            replace(node, labels={POOL: pool})
            for node in fake_nodes.uniform(
                count,
                is_sharing=pool != "classic",
                prefix=pool,
                gpus=gpus,
                model=model,
                gpu_memory_mib=mib,
                milli_cpu=1000 * _CORES,
            )
        ]
    return tuple(found)


@dataclass(slots=True, kw_only=True)
class _Guest:
    """A pod that is wanted: as it is created, how long it lives once bound, and when it goes; None = not bound yet."""

    pod: Object
    life_s: float
    came_at_s: float
    ends_at_s: float | None = None
    is_seen: bool = False


class Load:
    """Creates pods at a rate, takes them away when their time is over, and makes new ones for those that went.

    Args:
        client: As the administrator.
        clock: To wait on.
        draw: Of everything random.
        scale: Of the cluster.
        demand_ratio: Offered load over what the devices could hold.
    """

    def __init__(self, client: Client, clock: Clock, draw: random.Random, scale: int, demand_ratio: float) -> None:
        self.created = 0
        self.gangs = 0
        self.replaced = 0
        self.taken_away: set[str] = set()
        self._client = client
        self._clock = clock
        self._draw = draw
        self._number = 0
        self._owner_uid = ""
        self._guests: dict[str, _Guest] = {}
        capacity = WHOLE_MILLI * scale * _GPUS * 8
        weights = sum(wish.weight for wish in WISHES)
        mean = sum(wish.weight * wish.milli for wish in WISHES if wish.pool == "sharing") / weights
        mean += _GANG_RATIO * 5 * WHOLE_MILLI
        self._per_s = demand_ratio * capacity / (mean * _LIFE_S)

    def is_ours(self, uid: str) -> bool:
        """Return whether a pod was taken away by this load."""
        return uid in self.taken_away

    async def open(self) -> None:
        """Create namespaces, the class of urgent pods, and the object that stands for a controller."""
        for name, marks in ((NAMESPACE, {labels.MANAGED_LABEL: "true"}), (STRANGERS, {})):
            with contextlib.suppress(Conflict):
                await self._create("/api/v1/namespaces", {"metadata": {"name": name, "labels": marks}})
        with contextlib.suppress(Conflict):
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            await self._create(path, {"metadata": {"name": URGENT}, "value": 1000})
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        with contextlib.suppress(Conflict):
            await self._create(path, {"metadata": {"name": "owner"}})
        self._owner_uid = msgspec.json.decode(await self._client.get(f"{path}/owner"))["metadata"]["uid"]

    async def run(self, pods: Mapping[str, Object], stop_at_s: float) -> None:
        """Come and go until a time, whatever the API server does meanwhile.

        Args:
            pods: By uid, as they are now.
            stop_at_s: Monotonic.
        """
        next_s = self._clock.monotonic_s()
        while (now_s := self._clock.monotonic_s()) < stop_at_s:
            if next_s <= now_s:
                # What a dead API server held back does not come in one burst.
                next_s = max(next_s, now_s - 1.0) + self._draw.expovariate(self._per_s)
                with contextlib.suppress(BerthmasterError):
                    await self._arrive()
                continue
            with contextlib.suppress(BerthmasterError):
                await self._leave(pods)
            await self._clock.sleep(min(0.1, max(0.0, next_s - now_s)))

    async def end(self, pods: Mapping[str, Object]) -> None:
        """Let nobody new come and everybody go."""
        self.taken_away.update(pods)
        self._guests.clear()
        for namespace in (NAMESPACE, STRANGERS):
            await self._client.delete(f"/api/v1/namespaces/{namespace}/pods", timeout_s=60.0)

    async def stranger(self, node: str, milli_cpu: int, *, is_direct: bool) -> None:
        """Create a pod of somebody else that takes CPU, by kube-scheduler's default profile or past everybody."""
        self._number += 1
        pod = self._pod(
            f"stranger-{self._number:05d}", {"cpu": f"{milli_cpu}m"}, "", namespace=STRANGERS, is_owned=False
        )
        if is_direct:
            pod["metadata"]["labels"]["bench.berthmaster.dev/foreign"] = "true"
            pod["spec"]["nodeName"] = node
        else:
            pod["spec"]["nodeSelector"] = {labels.HOSTNAME: node}
        await self._create(f"/api/v1/namespaces/{STRANGERS}/pods", pod)

    async def strangers_go(self) -> None:
        """Take the strangers away."""
        await self._client.delete(f"/api/v1/namespaces/{STRANGERS}/pods", timeout_s=60.0)

    # -- coming --------------------------------------------------------------------------------------------------

    async def _arrive(self) -> None:
        draw = self._draw
        if draw.random() < _GANG_RATIO:
            self.gangs += 1
            size, name = draw.choice((3, 4, 6, 8)), f"gang-{self.gangs:04d}"
            life_s = self._life_s()
            urgency: dict[str, Any] = {"priorityClassName": URGENT} if draw.random() < 0.3 else {}
            for _ in range(size):
                marks = {labels.GANG: name, labels.GANG_SIZE: str(size)}
                await self._add(self._next(_MEMBER, marks=marks, **urgency), life_s)
            return
        wish = draw.choices(WISHES, [one.weight for one in WISHES])[0]
        words: dict[str, Any] = {"priorityClassName": URGENT} if draw.random() < _URGENT_RATIO else {}
        is_owned = draw.random() >= _BARE_RATIO
        await self._add(self._next(wish, is_owned=is_owned, **words), self._life_s())

    def _life_s(self) -> float:
        return _SHORTEST_S + self._draw.expovariate(1.0 / (_LIFE_S - _SHORTEST_S))

    def _next(
        self, wish: Wish, *, marks: Mapping[str, str] | None = None, is_owned: bool = True, **spec: Any
    ) -> Object:
        self._number += 1
        pod = self._pod(f"p{self._number:06d}", wish.requests, wish.pool, is_owned=is_owned)
        pod["metadata"]["labels"] |= marks or {}
        if wish.profile:
            pod["metadata"]["annotations"] = {labels.MIG_PROFILE: wish.profile}
        pod["spec"] |= spec
        return pod

    async def _add(self, pod: Object, life_s: float) -> None:
        """Create a pod exactly once, also where the API server's answer is lost."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        while True:
            try:
                found = msgspec.json.decode(await self._client.create(path, msgspec.json.encode(pod)))
                break
            except Conflict:
                found = msgspec.json.decode(await self._client.get(f"{path}/{pod['metadata']['name']}"))
                break
            except ApiError:
                await self._clock.sleep(0.3)
        self.created += 1
        self._guests[found["metadata"]["uid"]] = _Guest(pod=pod, life_s=life_s, came_at_s=self._clock.monotonic_s())

    # -- going ---------------------------------------------------------------------------------------------------

    async def _leave(self, pods: Mapping[str, Object]) -> None:
        """Take away whose time is over or whose patience ended, and make anew who went otherwise."""
        now_s = self._clock.monotonic_s()
        for uid, guest in list(self._guests.items()):
            pod = pods.get(uid)
            if pod is None:
                if guest.is_seen:
                    del self._guests[uid]
                    await self._again(guest)
                continue
            guest.is_seen = True
            if guest.ends_at_s is None and pod["spec"].get("nodeName"):
                guest.ends_at_s = now_s + guest.life_s
            ends_at_s = guest.ends_at_s if guest.ends_at_s is not None else guest.came_at_s + _PATIENCE_S
            if now_s >= ends_at_s and "deletionTimestamp" not in pod["metadata"]:
                self.taken_away.add(uid)
                with contextlib.suppress(NotFound):
                    await self._client.delete(paths.pod(NAMESPACE, pod["metadata"]["name"]))
                del self._guests[uid]

    async def _again(self, guest: _Guest) -> None:
        """Make a pod anew, as its controller would."""
        self._number += 1
        self.replaced += 1
        guest.pod["metadata"]["name"] = f"p{self._number:06d}"
        await self._add(guest.pod, guest.life_s)

    # -- objects -------------------------------------------------------------------------------------------------

    async def _create(self, path: str, obj: Mapping[str, Any]) -> None:
        await self._client.create(path, msgspec.json.encode(obj))

    def _pod(
        self, name: str, amounts: Mapping[str, str], pool: str, *, namespace: str = NAMESPACE, is_owned: bool = True
    ) -> Object:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": self._owner_uid, "controller": True}
        limits = {name: amount for name, amount in amounts.items() if "/" in name}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app": name},
                "ownerReferences": [owner] if is_owned else [],
            },
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {POOL: pool} if pool else {},
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": dict(amounts), "limits": limits}}
                ],
            },
        }
