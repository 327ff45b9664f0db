"""A namespace of its own on a real cluster, nodes of its own in it, and short words for what tests do there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from berthmaster.demo.replay import items
from berthmaster.recount import Recount, recount
from fleet import labels
from fleet.errors import NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.patches import JSON_PATCH, MERGE_PATCH
from tests.support.eventually import eventually

POOL = "tests.berthmaster.dev/pool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]


class Quay:
    """One test's corner of a cluster: a managed namespace, and a pool of nodes that its pods select.

    Attributes:
        client: As the administrator.
        namespace: Labelled berthmaster.dev/managed=true.
        pool: Value of the node label that pods select.
    """

    def __init__(self, client: Client, namespace: str, pool: str) -> None:
        self.client = client
        self.namespace = namespace
        self.pool = pool
        self._owner_uid = ""

    async def open(self) -> None:
        """Create the namespace, and the object that stands for a controller."""
        await self.create(
            "/api/v1/namespaces",
            {"metadata": {"name": self.namespace, "labels": {labels.MANAGED_LABEL: "true"}}},
        )
        owner = await self.create(f"/api/v1/namespaces/{self.namespace}/configmaps", {"metadata": {"name": "owner"}})
        self._owner_uid = owner["metadata"]["uid"]
        await eventually(self._may_hold_pods, what="the namespace has its account")

    async def _may_hold_pods(self) -> bool:
        try:
            await self.client.get(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")
        except NotFound:
            return False
        return True

    async def close(self) -> None:
        """Delete whatever makes pods, then the pods, and wait until they are gone: the next test finds room."""
        for kind in (
            ("apps/v1", "deployments"),
            ("apps/v1", "statefulsets"),
            ("apps/v1", "replicasets"),
            ("batch/v1", "jobs"),
        ):
            await self.client.delete(f"/apis/{kind[0]}/namespaces/{self.namespace}/{kind[1]}")
        pods = f"/api/v1/namespaces/{self.namespace}/pods"

        async def left() -> list[Object]:
            found = await self.pods()
            for pod in found:
                if pod["metadata"].get("finalizers"):
                    await self.patch_pod(pod["metadata"]["name"], {"metadata": {"finalizers": None}})
            if found:
                await self.client.delete(pods, timeout_s=60.0)
            return found

        await eventually(left, lambda found: not found, what=f"{self.namespace} is empty")

    async def create(self, path: str, obj: Mapping[str, Any]) -> Object:
        """Create any object."""
        found: Object = msgspec.json.decode(await self.client.create(path, msgspec.json.encode(obj)))
        return found

    def pod_json(
        self,
        name: str,
        requests: Mapping[str, str] | None = None,
        *,
        annotations: Mapping[str, str] | None = None,
        is_owned: bool = True,
        owner_kind: str = "ConfigMap",
        container: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Object:
        """Return a pod that selects the pool; what it requests is its limit too."""
        amounts = dict(requests or {})
        meta: Object = {"name": name, "namespace": self.namespace, "annotations": dict(annotations or {})}
        if is_owned:
            owner = {"apiVersion": "v1", "kind": owner_kind, "name": "owner", "uid": self._owner_uid}
            meta["ownerReferences"] = [{**owner, "controller": True}]
        limits = {key: value for key, value in amounts.items() if "/" in key}
        main = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": limits}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta | dict(metadata or {}),
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {POOL: self.pool},
                "containers": [{**main, **(container or {})}],
                **spec,
            },
        }

    async def add_pod(self, name: str, requests: Mapping[str, str] | None = None, **words: Any) -> Object:
        """Create a pod; see `pod_json`."""
        return await self.create(f"/api/v1/namespaces/{self.namespace}/pods", self.pod_json(name, requests, **words))

    async def pod(self, name: str) -> Object:
        """Return a pod; an empty object if there is none."""
        try:
            found: Object = msgspec.json.decode(await self.client.get(paths.pod(self.namespace, name)))
        except NotFound:
            return {}
        return found

    async def pods(self) -> list[Object]:
        """Return all pods of the namespace."""
        return await items(self.client, f"/api/v1/namespaces/{self.namespace}/pods")

    async def bound(self, name: str, *, within_s: float = 20.0) -> Object:
        """Wait until a pod has a node, and return it."""
        return await eventually(lambda: self.pod(name), node_of, within_s=within_s, what=f"{name} is bound")

    async def all_bound(self, count: int, *, within_s: float = 30.0) -> list[Object]:
        """Wait until so many pods of the namespace have nodes, and return them."""
        return await eventually(
            self.pods, lambda pods: sum(map(bool, map(node_of, pods))) == count, within_s=within_s, what="all are bound"
        )

    async def says(self, name: str, reason: str, *, within_s: float = 20.0) -> str:
        """Wait until a pod's waiting condition holds for this reason, and return its message."""

        async def look() -> Object:
            return condition(await self.pod(name))

        def holds(found: Object) -> bool:
            return found.get("status") == "True" and found.get("reason") == reason

        return str((await eventually(look, holds, within_s=within_s, what=f"{name} says {reason}"))["message"])

    async def events(self, name: str) -> list[Object]:
        """Return the events about a pod, oldest first."""
        found = await items(self.client, paths.events(self.namespace))
        return [event for event in found if event["regarding"]["name"] == name]

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        await self.client.delete(paths.pod(self.namespace, name))

    async def patch(self, path: str, change: Any) -> None:
        """Apply a merge patch, or a JSON patch where `change` is a list."""
        kind = JSON_PATCH if isinstance(change, list) else MERGE_PATCH
        await self.client.request("PATCH", path, body=msgspec.json.encode(change), content_type=kind)

    async def patch_pod(self, name: str, change: Any) -> None:
        """Patch a pod."""
        await self.patch(paths.pod(self.namespace, name), change)

    async def patch_node(self, name: str, change: Any) -> None:
        """Patch a node."""
        await self.patch(paths.node(name), change)

    async def recount(self) -> Recount:
        """Count the whole cluster, by code that shares nothing with the planner."""
        return recount(await items(self.client, paths.NODES), await items(self.client, paths.PODS))


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node a pod is bound to, "" if none."""
    return str(pod.get("spec", {}).get("nodeName", ""))


def gates_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of a pod's scheduling gates."""
    return [gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", [])]


def note(pod: Mapping[str, Any], name: str) -> str:
    """Return one annotation, "" if it is not there."""
    return str(pod["metadata"].get("annotations", {}).get(name, ""))


def terms_of(pod: Mapping[str, Any]) -> list[Object]:
    """Return the terms of a pod's required node affinity."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return list(affinity.get(REQUIRED, {}).get("nodeSelectorTerms", []))


def pins(pod: Mapping[str, Any]) -> list[list[str]]:
    """Return by term the node names that it demands by metadata.name."""
    return [
        [value for field in term.get("matchFields", []) if field["key"] == "metadata.name" for value in field["values"]]
        for term in terms_of(pod)
    ]


def condition(pod: Mapping[str, Any], kind: str = labels.WAITING_CONDITION) -> Object:
    """Return one condition of a pod, an empty object if it is not there."""
    found = pod.get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def held(pods: Iterable[Mapping[str, Any]]) -> Sequence[tuple[str, str]]:
    """Return (node, device) of everything that these pods record."""
    return [(node_of(pod), device) for pod in pods for device in note(pod, labels.DEVICES).split(",") if device]
