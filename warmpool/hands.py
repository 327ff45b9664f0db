"""Carries out what a node's state machine wants done: one call or two to the API per action, and no decision.

Somebody being faster is no error: what is wanted follows from what is seen, so the next tick asks for what is still
wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec

from fleet import labels
from fleet.claim import unclaim_patch
from fleet.clock import Clock
from fleet.errors import ApiError, Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.nodes.action import Action, Evict, Mark, Pull, Release, Tell, Unclaim
from warmpool.nodes.marks import mark_patch, tell_patch
from warmpool.nodes.puller import puller_name, puller_pod
from warmpool.nodes.reading import WarmPod, users
from warmpool.providers.provider import Machine, Provider
from warmpool.values import PoolSpec

T = TypeVar("T")
PodName = tuple[str, str]  # namespace and name


class _Listed(msgspec.Struct, Generic[T]):
    items: list[T]


_pods = msgspec.json.Decoder(_Listed[WarmPod]).decode


class Hands:
    """The writes of one controller.

    Args:
        client: To the API server.
        clock: For the times of conditions.
        provider: Who made the nodes.
        namespace: Of the pulling pods; the pull secrets must be there.
        has_image_volumes: Whether the cluster mounts images as volumes (Kubernetes 1.36 and newer).
        fetch_image: Image with `berthmaster-fetch`, for pools with models.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        provider: Provider,
        *,
        namespace: str = labels.NAMESPACE,
        has_image_volumes: bool = True,
        fetch_image: str = "",
    ) -> None:
        self._client = client
        self._clock = clock
        self._provider = provider
        self._namespace = namespace
        self._has_image_volumes = has_image_volumes
        self._fetch_image = fetch_image

    async def carry_out(
        self,
        pool: PoolSpec,
        action: Action,
        *,
        machines: Mapping[str, Machine],
        pods: Mapping[str, PodName] | None = None,
    ) -> bool:
        """Do it; False = not done, because somebody was faster or came. News (Outcome, Step, …) are nothing to do.

        Args:
            pool: Whose node it is.
            action: What to do.
            machines: The pool's machines by name, as listed in this tick.
            pods: Namespace and name by UID, for evictions.

        Raises:
            ApiError: The API server refused it or did not answer.
        """
        try:
            match action:
                case Mark():
                    await self._client.json_patch(paths.node(action.node), mark_patch(action))
                case Unclaim():
                    await self._client.json_patch(paths.node(action.node), unclaim_patch(action.uid, action.text))
                case Tell():
                    body = tell_patch(action, _rfc3339(self._clock.now_s()))
                    await self._client.merge_patch(f"{paths.node(action.node)}/status", body, strategic=True)
                case Pull():
                    await self._pull(pool, action)
                case Release():
                    return await self._release(pool, action, machines)
                case Evict():
                    return await self._evict(action, pods or {})
                case _:
                    return True
        except (Conflict, Invalid, NotFound):
            return False
        return True

    async def _pull(self, pool: PoolSpec, pull: Pull) -> None:
        name = puller_name(pool, pull.node)
        if pull.is_again:
            await self._client.delete(paths.pod(self._namespace, name), grace_s=0)
        pod = puller_pod(
            pool,
            pull.node,
            namespace=self._namespace,
            has_image_volumes=self._has_image_volumes,
            fetch_image=self._fetch_image,
        )
        await self._client.create(paths.pods(self._namespace), msgspec.json.encode(pod))

    async def _release(self, pool: PoolSpec, release: Release, machines: Mapping[str, Machine]) -> bool:
        """Look once more where that was asked for: emptiness seen through a watch may be old."""
        if release.must_look and release.node:
            selector = {"fieldSelector": f"spec.nodeName={release.node}"}
            if users(_pods(await self._client.get(paths.PODS, selector)).items):
                return False
        machine = machines.get(release.name)
        if machine is None:  # the provider no longer knows it, but the Node is there
            await self._client.delete(paths.node(release.node))
            return True
        await self._provider.release(pool, machine)
        return True

    async def _evict(self, evict: Evict, pods: Mapping[str, PodName]) -> bool:
        """Evict one pod; the next one when it is gone."""
        for uid in evict.pods:
            if uid in pods:
                namespace, name = pods[uid]
                try:
                    await self._client.evict(namespace, name, uid=uid)
                except ApiError as error:
                    if error.status != 429:  # a disruption budget says: not now
                        raise
                    return False
                return True
        return False


def _rfc3339(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
