"""A namespace of its own with Deployments and autoscalers, and controllers in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from berthmaster.local.cluster import Cluster
from fleet.errors import NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from scaler.controller.service import run_controller
from tests.support.eventually import eventually

Object = dict[str, Any]
# Short windows, so that a test need not wait for the real ones.
QUICK: Object = {
    "periodSeconds": 1,
    "scaleUp": {"lookBackSeconds": 3},
    "scaleDown": {"lookBackSeconds": 4},
    "toZeroAfterSeconds": 4,
    "startTimeSeconds": 1,
}


class Yard:
    """One test's corner of a cluster."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def open(self) -> None:
        await self.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

        async def has_account() -> bool:
            with contextlib.suppress(NotFound):
                await self.client.get(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")
                return True
            return False

        await eventually(has_account, what="the namespace has its account")

    async def close(self) -> None:
        await self.client.delete(f"/apis/berthmaster.dev/v1alpha1/namespaces/{self.namespace}/concurrencyautoscalers")
        for kind in ("deployments", "statefulsets"):
            await self.client.delete(f"/apis/apps/v1/namespaces/{self.namespace}/{kind}")

    async def post(self, path: str, obj: Object) -> Object:
        found: Object = msgspec.json.decode(await self.client.create(path, msgspec.json.encode(obj)))
        return found

    async def workload(
        self, name: str = "shop", replicas: int = 1, kind: str = "Deployment", **metadata: Any
    ) -> Object:
        tags = {"app": name}
        pod = {
            "metadata": {"labels": tags},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "none"}]},
        }
        return await self.post(
            f"/apis/apps/v1/namespaces/{self.namespace}/{kind.lower()}s",
            {
                "apiVersion": "apps/v1",
                "kind": kind,
                "metadata": {"name": name} | metadata,
                "spec": {"replicas": replicas, "selector": {"matchLabels": tags}, "template": pod}
                | ({"serviceName": name} if kind == "StatefulSet" else {}),
            },
        )

    async def autoscaler(self, name: str = "shop", **spec: Any) -> Object:
        return await self.post(paths.autoscalers(self.namespace), an_autoscaler(name, **spec))

    async def edit(self, name: str = "shop", **spec: Any) -> None:
        await self.client.merge_patch(paths.autoscalers(self.namespace, name), msgspec.json.encode({"spec": spec}))

    async def read(self, name: str = "shop") -> Object:
        found: Object = msgspec.json.decode(await self.client.get(paths.autoscalers(self.namespace, name)))
        return found

    async def replicas(self, name: str = "shop", kind: str = "Deployment") -> int:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/{kind.lower()}s/{name}"
        return int(msgspec.json.decode(await self.client.get(path))["spec"]["replicas"])

    async def pods(self, name: str = "shop") -> list[Object]:
        body = await self.client.get(paths.pods(self.namespace), params={"labelSelector": f"app={name}"})
        return list(msgspec.json.decode(body)["items"])

    async def events(self, name: str = "shop") -> list[Object]:
        items = msgspec.json.decode(await self.client.get(paths.events(self.namespace)))["items"]
        return [event for event in items if event["regarding"].get("name") == name]

    async def until_replicas(self, wanted: int, name: str = "shop", *, within_s: float = 30.0, **more: Any) -> None:
        await eventually(
            lambda: self.replicas(name, **more), lambda n: n == wanted, within_s=within_s, what=f"{wanted} replicas"
        )

    async def until_condition(
        self, kind: str, status: str, reason: str = "", name: str = "shop", *, within_s: float = 30.0
    ) -> Object:
        async def look() -> Object:
            found = (await self.read(name)).get("status", {}).get("conditions", [])
            return next((one for one in found if one["type"] == kind), {})

        return await eventually(
            look,
            lambda one: one.get("status") == status and reason in ("", one["reason"]),
            within_s=within_s,
            what=f"{kind} is {status} {reason}",
        )


def an_autoscaler(name: str = "shop", **spec: Any) -> Object:
    """Return an object; `spec` replaces parts of a fixed target of 5 on balancer `main`, with short windows."""
    return {
        "apiVersion": "berthmaster.dev/v1alpha1",
        "kind": "ConcurrencyAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 20,
            "targetConcurrency": {"initial": 5, "learn": False},
            "signals": {"balancer": {"name": "main", "backend": name}},
            "behavior": QUICK,
        }
        | spec,
    }


@contextlib.asynccontextmanager
async def controller(
    cluster: Cluster, sources: str, *, client: str = "scaler", token: str = "", **flags: Any
) -> AsyncIterator[str]:
    """Run one controller in this loop, under its own account; yields its address."""
    own = cluster.layout.config / f"{client}.kubeconfig"
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(
        run_controller(
            kubeconfig=str(own),
            listen="127.0.0.1:0",
            environment={},
            prefix="BERTHMASTER_SETTING",
            flags={"sources": sources, "history_token": token or None} | flags,
            started=port.set_result,
        )
    )
    done, _ = await asyncio.wait((work, port), return_when=asyncio.FIRST_COMPLETED)
    if work in done:
        await work
    try:
        yield f"http://127.0.0.1:{port.result()}"
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
