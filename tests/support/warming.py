"""Pools on a real cluster, and their controller in the test's own loop or in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from tests.support.eventually import eventually
from warmpool.controller.service import run_controller

Object = dict[str, Any]
API_VERSION = f"{labels.DOMAIN}/{labels.POOL_VERSION}"
DIGEST = f"sha256:{'a' * 64}"
IMAGE = f"reg.example/rt@{DIGEST}"
# A node is warm some three seconds after it was ordered.
QUICK_CLOUD = {"kwok.is_enabled": True, "kwok.time_scale": 200.0, "kwok.seed": 1}


def a_pool(name: str, **spec: Any) -> Object:
    """Return a pool of two, acting, on nodes that kwok keeps; `spec` replaces parts."""
    return {
        "apiVersion": API_VERSION,
        "kind": labels.POOL_KIND,
        "metadata": {"name": name},
        "spec": {
            "shape": {"resources": {"cpu": "32", "memory": "64Gi"}, "devices": {"count": 4, "model": "G2"}},
            "images": [{"reference": "reg.example/rt:1", "digest": DIGEST}],
            "size": {"max": 6},
            "objective": {"static": 2},
            "provider": {"kind": "kwok"},
            "mode": "act",
        }
        | spec,
    }


def pool_path(name: str = "", subresource: str = "") -> str:
    return paths.custom(API_VERSION, labels.POOL_PLURAL, name=name, subresource=subresource)


class Dock:
    """One test's pool; `planner` is a client in the planner's name."""

    def __init__(self, client: Client, name: str, planner: Client | None = None) -> None:
        self.client = client
        self.planner = planner
        self.name = name

    async def create(self, **spec: Any) -> Object:
        body = msgspec.json.encode(a_pool(self.name, **spec))
        found: Object = msgspec.json.decode(await self.client.create(pool_path(), body))
        return found

    async def edit(self, **spec: Any) -> None:
        await self.client.merge_patch(pool_path(self.name), msgspec.json.encode({"spec": spec}))

    async def delete(self) -> None:
        await self.client.delete(pool_path(self.name))

    async def read(self) -> Object:
        found: Object = msgspec.json.decode(await self.client.get(pool_path(self.name)))
        return found

    async def status(self) -> Object:
        found: Object = (await self.read()).get("status", {})
        return found

    async def is_gone(self) -> bool:
        try:
            await self.read()
        except NotFound:
            return True
        return False

    async def nodes(self) -> list[Object]:
        selector = {"labelSelector": f"{labels.POOL}={self.name}"}
        return list(msgspec.json.decode(await self.client.get(paths.NODES, selector))["items"])

    async def records(self) -> list[str]:
        """Return the names of the machines that the simulated cloud knows of."""
        selector = {"labelSelector": f"{labels.POOL}={self.name},{labels.MACHINE}"}
        body = await self.client.get(paths.config_maps(labels.PULL_NAMESPACE), selector)
        return sorted(item["metadata"]["name"] for item in msgspec.json.decode(body)["items"])

    async def pullers(self) -> list[Object]:
        selector = {"labelSelector": f"{labels.POOL}={self.name},{labels.PULLER}"}
        return list(msgspec.json.decode(await self.client.get(paths.PODS, selector))["items"])

    async def warm(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in await self.nodes() if is_open(node, self.name))

    async def until_warm(self, count: int, *, within_s: float = 40.0) -> list[str]:
        return await eventually(self.warm, lambda names: len(names) == count, within_s=within_s, what=f"{count} warm")

    async def until_nodes(self, count: int, *, within_s: float = 40.0) -> list[Object]:
        return await eventually(self.nodes, lambda nodes: len(nodes) == count, within_s=within_s, what=f"{count} nodes")

    async def until_told(self, within_s: float = 30.0, **wanted: Any) -> Object:
        return await eventually(
            self.status,
            lambda told: all(told.get(name) == value for name, value in wanted.items()),
            within_s=within_s,
            what=f"the status tells {wanted}",
        )

    async def until_condition(self, kind: str, status: str, reason: str = "", *, within_s: float = 30.0) -> Object:
        async def look() -> Object:
            found = (await self.status()).get("conditions", [])
            return next((one for one in found if one["type"] == kind), {})

        return await eventually(
            look,
            lambda one: one.get("status") == status and reason in ("", one["reason"]),
            within_s=within_s,
            what=f"{kind} is {status} {reason}",
        )

    async def place(self, name: str, node: str, draw: str = "") -> None:
        """Make a pod on a node, as a scheduler would have bound it; `draw` as the planner would have noted it."""
        body = {
            "metadata": {"name": name, "labels": {"test": self.name}},
            "spec": {
                "nodeName": node,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "none"}],
            },
        }
        await self._make(name, body, draw)

    async def wait(self, name: str, requests: Object, draw: str = "") -> None:
        """Make a pod that has no node and gets none: a gate that is nobody's holds it."""
        body = {
            "metadata": {"name": name, "labels": {"test": self.name}},
            "spec": {
                "schedulingGates": [{"name": "tests.example.com/never"}],
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
            },
        }
        await self._make(name, body, draw)

    async def _make(self, name: str, body: Object, draw: str) -> None:
        await self.client.create(paths.pods("default"), msgspec.json.encode(body))
        if draw:
            note = {"metadata": {"annotations": {labels.DRAW: draw}}}
            assert self.planner is not None
            await self.planner.merge_patch(paths.pod("default", name), msgspec.json.encode(note))

    async def clear(self) -> None:
        """Leave nothing behind, whether a controller runs or not."""
        for item in msgspec.json.decode(
            await self.client.get(paths.pods("default"), {"labelSelector": f"test={self.name}"})
        )["items"]:
            with contextlib.suppress(NotFound):
                await self.client.delete(paths.pod("default", item["metadata"]["name"]), grace_s=0)
        with contextlib.suppress(NotFound):
            await self.client.merge_patch(pool_path(self.name), b'{"metadata":{"finalizers":null}}')
            await self.client.delete(pool_path(self.name))
        for puller in await self.pullers():
            with contextlib.suppress(NotFound):
                await self.client.delete(paths.pod(labels.PULL_NAMESPACE, puller["metadata"]["name"]), grace_s=0)
        for name in await self.records():
            with contextlib.suppress(NotFound):
                await self.client.delete(paths.config_maps(labels.PULL_NAMESPACE, name))
        for node in await self.nodes():
            with contextlib.suppress(NotFound):
                await self.client.delete(paths.node(node["metadata"]["name"]))


def taints(node: Object) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", ())}


def notes(node: Object) -> Object:
    found: Object = node["metadata"].get("annotations", {})
    return found


def is_open(node: Object, pool: str) -> bool:
    """Return whether a draw now would get it."""
    is_ready = f"{labels.READINESS_PREFIX}{pool}" not in taints(node)
    return is_ready and labels.WARM in notes(node) and labels.CLAIM not in notes(node)


@contextlib.asynccontextmanager
async def controller(cluster: Cluster, *, client: str = "warmpool", **flags: Any) -> AsyncIterator[str]:
    """Run one controller in this loop, under its own account; yields its address."""
    own = cluster.layout.config / f"{client}.kubeconfig"
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(
        run_controller(
            kubeconfig=str(own),
            listen="127.0.0.1:0",
            environment={},
            prefix="BERTHMASTER_SETTING",
            flags=QUICK_CLOUD | flags,
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


class ControllerProcess:
    """A controller in a process of its own, that ends at once when told so."""

    def __init__(self, cluster: Cluster, **flags: Any) -> None:
        own = cluster.layout.config / "warmpool.kubeconfig"
        self._command = (
            sys.executable,
            "-m",
            "warmpool",
            "controller",
            f"--kubeconfig={own}",
            "--listen=127.0.0.1:0",
        )
        settings = QUICK_CLOUD | flags
        self._environ = os.environ | {
            f"BERTHMASTER_WARMPOOL_{name.upper().replace('.', '_')}": str(value) for name, value in settings.items()
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environ, stderr=asyncio.subprocess.DEVNULL
        )

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            await self._process.wait()
        self._process = None
