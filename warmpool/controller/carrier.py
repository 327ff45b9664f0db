"""Carries out what a look at a pool wants done: writes on nodes, pods that pull, evictions, releases, orders.

Nothing here is remembered: what did not happen is wanted again at the next look, because it follows from what is seen.
A write that somebody was faster than (409, 422) or whose object is gone (404) is no failure.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from fleet.claim import unclaim_patch
from fleet.clock import Clock
from fleet.condition import stamp
from fleet.errors import ApiError, Conflict, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.controller.pods import PullerView
from warmpool.controller.world import World
from warmpool.nodes.action import Action, Evict, Mark, Pull, Release, Tell, Unclaim
from warmpool.nodes.marks import mark_patch, tell_patch
from warmpool.nodes.puller import puller_pod
from warmpool.nodes.reading import WarmPod, users
from warmpool.providers.provider import Machine, Provider
from warmpool.resource import Spec

log = logging.getLogger(__name__)

_CALL_S = 5.0
_AGAIN_S = 15.0  # before a pod that could not be made is tried again


class _Pods(msgspec.Struct):
    items: list[WarmPod]


_pods = msgspec.json.Decoder(_Pods).decode
_encode = msgspec.json.encode


@dataclass(slots=True)
class Budget:
    """Pods that may be moved: a bucket that fills by the hour.

    Attributes:
        per_hour: In the long run, and at once after a quiet hour.
    """

    per_hour: int
    _left: float = field(init=False)
    _filled_at_s: float | None = None

    def __post_init__(self) -> None:
        self._left = float(self.per_hour)

    def take(self, now_s: float) -> bool:
        """Return True if one more pod may be moved now, and count it."""
        if self._filled_at_s is not None:
            gained = (now_s - self._filled_at_s) * self.per_hour / 3600.0
            self._left = min(float(self.per_hour), self._left + gained)
        self._filled_at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        """Take note that the last one was not moved after all."""
        self._left += 1.0


class Carrier:
    """Writes.

    Attributes:
        counts: Writes by outcome.
        problems: Why pods that pull could not be made, by pool; none = they could.
    """

    def __init__(
        self,
        client: Client,
        world: World,
        clock: Clock,
        *,
        has_image_volumes: bool = True,
        fetch_image: str = "",
        moves_per_hour: int = 60,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self._client = client
        self._world = world
        self._clock = clock
        self._has_image_volumes = has_image_volumes
        self._fetch_image = fetch_image
        self._budget = Budget(per_hour=moves_per_hour)
        self._retry_s: dict[tuple[str, str], float] = {}

    async def carry(
        self,
        spec: Spec,
        action: Action,
        provider: Provider,
        machines: Mapping[str, Machine],
        undone: Callable[[Release], None],
    ) -> None:
        """Do one thing.

        Args:
            spec: Of the pool.
            action: What.
            provider: Who made the nodes.
            machines: As listed, by name.
            undone: Told of a release that was not asked for after all.

        Raises:
            NotLeading: Nothing more may be written.
        """
        kind = type(action).__name__.lower()
        try:
            done = await self._do(spec, action, provider, machines, undone)
        except NotLeading:
            raise
        except (Conflict, Invalid, NotFound) as error:
            # Somebody was faster. But what is always refused would never be heard of, so it is counted.
            self.counts[f"{kind}-overtaken"] += 1
            log.debug("%s of pool %s: %s", kind, spec.pool.name, error)
        except ApiError as error:
            self.counts[f"{kind}-failed"] += 1
            if isinstance(action, Release):
                undone(action)
            log.warning("%s of pool %s: %s", kind, spec.pool.name, error)
        else:
            if done:
                self.counts[f"{kind}-done"] += 1

    async def _do(
        self,
        spec: Spec,
        action: Action,
        provider: Provider,
        machines: Mapping[str, Machine],
        undone: Callable[[Release], None],
    ) -> bool:
        match action:
            case Mark():
                await self._client.json_patch(paths.node(action.node), mark_patch(action), timeout_s=_CALL_S)
            case Tell():
                await self._client.merge_patch(
                    f"{paths.node(action.node)}/status",
                    tell_patch(action, stamp(self._clock.now_s())),
                    strategic=True,
                    timeout_s=_CALL_S,
                )
            case Unclaim():
                body = unclaim_patch(action.uid, action.text)
                await self._client.json_patch(paths.node(action.node), body, timeout_s=_CALL_S)
            case Pull():
                return await self._pull(spec, action)
            case Evict():
                return await self._evict(action)
            case Release():
                return await self._release(spec, action, provider, machines, undone)
        return True

    async def _pull(self, spec: Spec, pull: Pull) -> bool:
        pool, now_s = spec.pool, self._clock.monotonic_s()
        key = (pool.name, pull.node)
        if now_s < self._retry_s.get(key, now_s):
            return False
        if pull.is_again:
            await self.drop_pullers(pool.name, pull.node)
        body = puller_pod(
            pool,
            pull.node,
            namespace=spec.pull_namespace,
            has_image_volumes=self._has_image_volumes,
            fetch_image=self._fetch_image,
        )
        try:
            await self._client.create(paths.pods(spec.pull_namespace), _encode(body), timeout_s=_CALL_S)
        except Conflict:
            return False  # it is there, and the watch will say so; or it is still going
        except NotLeading:
            raise
        except ApiError as error:
            self._retry_s[key] = now_s + _AGAIN_S
            self.problems[pool.name] = f"no pod can pull in namespace {spec.pull_namespace}: {error}"[:500]
            raise
        self._retry_s.pop(key, None)
        self.problems.pop(pool.name, None)
        return True

    async def drop_pullers(self, pool: str, node: str) -> None:
        """Delete our own pods of a pool on a node."""
        for puller in self._world.pods.pulling(pool, node):
            await self.drop_puller(puller)

    async def drop_puller(self, puller: PullerView) -> None:
        """Delete one of our own pods."""
        meta = puller.pod.metadata
        try:
            await self._client.delete(paths.pod(meta.namespace, meta.name), uid=meta.uid, grace_s=0, timeout_s=_CALL_S)
        except (NotFound, Conflict):
            return

    async def _evict(self, evict: Evict) -> bool:
        """Move one pod: the first that a disruption budget lets go."""
        for uid in evict.pods:
            pod = self._world.pods.pods.get(uid)
            if pod is None or not pod.is_bound:
                continue
            if not self._budget.take(self._clock.monotonic_s()):
                return False
            try:
                await self._client.evict(pod.namespace, pod.name, uid=uid, timeout_s=_CALL_S)
            except ApiError as error:
                self._budget.give_back()
                if error.status == 429:
                    continue
                raise
            return True
        return False

    async def _release(
        self,
        spec: Spec,
        release: Release,
        provider: Provider,
        machines: Mapping[str, Machine],
        undone: Callable[[Release], None],
    ) -> bool:
        machine = machines.get(release.name)
        if machine is None:
            # Whoever made it knows nothing of it (any more): the Node itself stands for it.
            machine = Machine(name=release.name, pool=spec.pool.name, node_name=release.node)
        if release.must_look and await self._is_used(release.node):
            undone(release)
            return False
        await provider.release(spec.pool, machine)
        return True

    async def _is_used(self, node: str) -> bool:
        """Return True if the API itself, not what a watch has brought so far, shows a pod that uses the node."""
        if self._world.pods.on(node):
            return True
        listed = _pods(await self._client.get(paths.PODS, {"fieldSelector": f"spec.nodeName={node}"}))
        return bool(users(listed.items))
