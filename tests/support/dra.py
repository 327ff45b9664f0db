"""Devices, classes and claims of Dynamic Resource Allocation on a real cluster, in short words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec

from berthmaster.demo.replay import items
from berthmaster.local.cluster import Cluster
from fleet.errors import NotFound
from fleet.kube import paths
from fleet.node import Node
from tests.support.cluster import add_nodes, client_of
from tests.support.eventually import eventually
from tests.support.quay import POOL, Object, Quay

DRIVER = "dev.example.com"
GROUP = "resource.k8s.io/v1"
FINALIZER = "resource.kubernetes.io/delete-protection"


def device(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    **more: Any,
) -> Object:
    """Return a device; attributes and capacities without a domain are the driver's."""
    kinds = {bool: "bool", int: "int", str: "string"}
    found: Object = {"name": name, **more}
    if attributes:
        found["attributes"] = {key: {kinds[type(value)]: value} for key, value in attributes.items()}
    if capacity:
        found["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value} for key, value in capacity.items()
        }
    return found


def request(name: str, device_class: str, **more: Any) -> Object:
    """Return a request for devices of a class."""
    selectors = more.pop("selectors", ())
    exactly: Object = {"deviceClassName": device_class, **more}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": exactly}


class Pier:
    """One test's devices: slices of its nodes, a class and claims in its namespace."""

    def __init__(self, quay: Quay) -> None:
        self.quay = quay
        self.device_class = quay.namespace
        self._slices: list[str] = []
        self._classes: list[str] = []

    async def open(self) -> None:
        """Create the class of all devices of the driver."""
        await self.add_class(self.device_class, [f'device.driver == "{DRIVER}"'])

    async def close(self) -> None:
        """Delete classes, slices and claims."""
        await self.quay.client.delete(paths.custom(GROUP, "resourceclaims", namespace=self.quay.namespace))
        for name in self._slices:
            await self._delete(paths.custom(GROUP, "resourceslices", name=name))
        for name in self._classes:
            await self._delete(paths.custom(GROUP, "deviceclasses", name=name))

    async def _delete(self, path: str) -> None:
        try:
            await self.quay.client.delete(path)
        except NotFound:
            return

    async def add_class(self, name: str, selectors: Sequence[str], **more: Any) -> None:
        """Create a device class."""
        self._classes.append(name)
        spec = {"selectors": [{"cel": {"expression": text}} for text in selectors], **more}
        body = {"apiVersion": GROUP, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        await self.quay.create(paths.custom(GROUP, "deviceclasses"), body)

    async def publish(
        self,
        node: str,
        devices: Iterable[Object] = (),
        *,
        driver: str = DRIVER,
        counters: Sequence[Object] = (),
        name: str = "",
        generation: int = 1,
        count: int = 1,
    ) -> None:
        """Create a slice of a node's pool."""
        name = name or f"{node}-{driver}"
        self._slices.append(name)
        spec: Object = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
        }
        if counters:
            spec["sharedCounters"] = list(counters)
        else:
            spec["devices"] = list(devices)
        body = {"apiVersion": GROUP, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        await self.quay.create(paths.custom(GROUP, "resourceslices"), body)

    async def add_claim(self, name: str, requests: Sequence[Object], **more: Any) -> Object:
        """Create a claim."""
        body = {
            "apiVersion": GROUP,
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": list(requests), **more}},
        }
        return await self.quay.create(paths.custom(GROUP, "resourceclaims", namespace=self.quay.namespace), body)

    async def add_template(self, name: str, requests: Sequence[Object], **more: Any) -> None:
        """Create a claim template."""
        body = {
            "apiVersion": GROUP,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": list(requests), **more}}},
        }
        await self.quay.create(paths.custom(GROUP, "resourceclaimtemplates", namespace=self.quay.namespace), body)

    async def add_pod(self, name: str, *, claim: str = "", template: str = "", cpu: str = "1", **words: Any) -> Object:
        """Create a pod with one claim."""
        entry = {"name": "dev"}
        entry |= {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        words.setdefault("container", {})
        words["container"] = {
            "resources": {"requests": {"cpu": cpu}, "claims": [{"name": "dev"}]},
            **words["container"],
        }
        return await self.quay.add_pod(name, {"cpu": cpu}, resourceClaims=[entry], **words)

    async def claim(self, name: str) -> Object:
        """Return a claim; an empty object if there is none."""
        try:
            found: Object = msgspec.json.decode(
                await self.quay.client.get(paths.resource_claim(self.quay.namespace, name))
            )
        except NotFound:
            return {}
        return found

    async def claims(self) -> list[Object]:
        """Return all claims of the namespace."""
        return await items(self.quay.client, paths.custom(GROUP, "resourceclaims", namespace=self.quay.namespace))

    async def allocated(self, name: str, *, within_s: float = 30.0) -> list[str]:
        """Wait until a claim is allocated and return its devices."""
        found = await eventually(
            lambda: self.claim(name), lambda one: bool(devices_of(one)), within_s=within_s, what=f"{name} is allocated"
        )
        return devices_of(found)


def allocation_of(claim: Mapping[str, Any]) -> Object:
    """Return a claim's allocation, an empty object if it has none."""
    return dict(claim.get("status", {}).get("allocation", {}))


def devices_of(claim: Mapping[str, Any]) -> list[str]:
    """Return the names of a claim's devices."""
    return [result["device"] for result in allocation_of(claim).get("devices", {}).get("results", [])]


def reservers_of(claim: Mapping[str, Any]) -> list[str]:
    """Return the names of the pods that may use a claim."""
    return [one["name"] for one in claim.get("status", {}).get("reservedFor", [])]


def nodes_of(pier: Pier) -> tuple[str, str]:
    """Return the names of a test's two nodes."""
    return f"{pier.quay.namespace}-0000", f"{pier.quay.namespace}-0001"


async def publish_alike(pier: Pier, count: int) -> None:
    """Publish as many equal devices on each of a test's nodes."""
    for node in nodes_of(pier):
        await pier.publish(node, [device(f"d{i}", {"index": i}) for i in range(count)])


@asynccontextmanager
async def pier_of(cluster: Cluster, name: str, nodes: Sequence[Node]) -> AsyncIterator[Pier]:
    """A namespace of this name with these nodes, which pods of it alone select; all of it goes at the end."""
    await add_nodes(cluster, [replace(node, labels={**node.labels, POOL: name}) for node in nodes])
    async with client_of(cluster) as client:
        quay = Quay(client, name, name)
        await quay.open()
        opened = Pier(quay)
        await opened.open()
        yield opened
        await quay.close()
        await opened.close()
        for node in nodes:
            await client.delete(f"/api/v1/nodes/{node.name}")
