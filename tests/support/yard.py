"""A pool, and a Deployment whose replicas draw from it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import ApiError, NotFound
from fleet.kube import paths
from tests.support.cluster import client_of
from tests.support.eventually import eventually
from tests.support.warming import Dock, Object

GPU = {labels.NVIDIA_GPU: "1"}


class Yard(Dock):
    """A pool, and a Deployment whose replicas draw from it."""

    async def deploy(self, replicas: int) -> None:
        await self.client.create(
            "/api/v1/namespaces",
            json.dumps({"metadata": {"name": self.name, "labels": {labels.MANAGED_LABEL: "true"}}}).encode(),
        )

        async def has_account() -> bool:
            with contextlib.suppress(NotFound):
                await self.client.get(f"/api/v1/namespaces/{self.name}/serviceaccounts/default")
                return True
            return False

        await eventually(has_account, what="the namespace has its account")
        tags = {"app": self.name}
        container = {"name": "main", "image": "reg.example/rt:1", "resources": {"requests": GPU, "limits": GPU}}
        template = {
            "metadata": {"labels": tags | {labels.POOL: self.name}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        body = {
            "metadata": {"name": "llm"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": tags}, "template": template},
        }
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments"
        await self.client.create(path, json.dumps(body).encode())

    async def scale(self, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments/llm"
        await self.client.merge_patch(path, json.dumps({"spec": {"replicas": replicas}}).encode())

    async def pods(self) -> list[Object]:
        return list(msgspec.json.decode(await self.client.get(paths.pods(self.name)))["items"])

    async def until_bound(self, count: int, *, within_s: float = 60.0) -> list[Object]:
        return await eventually(
            self.pods,
            lambda pods: len(pods) == count and all(pod["spec"].get("nodeName") for pod in pods),
            within_s=within_s,
            what=f"{count} replicas are bound",
        )


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, name: str) -> AsyncIterator[Yard]:
    """Give a yard of this name; its replicas, its pool and its machines are gone when it closes."""
    async with client_of(cluster) as client:
        yard = Yard(client, name)
        yield yard
        with contextlib.suppress(ApiError):
            await client.delete(f"/apis/apps/v1/namespaces/{name}/deployments/llm")
            await eventually(yard.pods, lambda pods: not pods, within_s=30.0)
        await yard.clear()


def one_gpu(**spec: Any) -> dict[str, Any]:
    return {"shape": {"resources": {"cpu": "8", "memory": "16Gi"}, "devices": {"count": 1}}, "size": {"max": 40}} | spec


def two_gpus(**spec: Any) -> dict[str, Any]:
    return one_gpu(shape={"resources": {"cpu": "16", "memory": "32Gi"}, "devices": {"count": 2}}) | spec
