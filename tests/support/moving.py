"""Replicas that lie thinly on nodes of two devices, pods that need both devices of one, and what is seen of moves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError
from fleet.kube import paths
from fleet.kube.client import Client
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay

Object = dict[str, Any]
CLOCK = SystemClock()
_MARKS = (labels.MOVING_TO, labels.MOVING_BY)
_LONG_S = 120.0  # on a busy machine whose cluster has just begun


def notes(obj: Object) -> Object:
    found: Object = obj["metadata"].get("annotations") or {}
    return found


def is_ready(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", ())
    )


class Pier(Quay):
    """A corner of the cluster whose nodes have two devices each."""

    def __init__(self, client: Client, namespace: str, pool: str) -> None:
        super().__init__(client, namespace, pool)
        self._kind = "deployments"

    def _path(self, plural: str = "", name: str = "", subresource: str = "", version: str = "apps/v1") -> str:
        return paths.custom(version, plural or self._kind, namespace=self.namespace, name=name, subresource=subresource)

    def _workload(self, name: str, replicas: int, gpus: int, *, cpu: str = "1") -> Object:
        tags = {"app": name}
        devices = {labels.GPU: str(gpus)}
        resources = {"requests": devices | {"cpu": cpu}, "limits": devices}
        container = {"name": "main", "image": "none", "resources": resources}
        spec = {
            "nodeSelector": {POOL: self.pool},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        return {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": tags},
                "template": {"metadata": {"labels": tags}, "spec": spec},
            },
        }

    async def lie_thinly(self, count: int, *, kind: str = "Deployment") -> None:
        """Have so many replicas of one device each, every one on a node of its own."""
        self._kind = {"Deployment": "deployments", "StatefulSet": "statefulsets"}[kind]
        # Half of each node is taken meanwhile. To make twice as many and drop every second one would depend on how far
        # the controller's own watch has come: it drops others while it does not see yet which are the cheapest.
        await self.create(self._path("deployments"), self._workload("filler", count, 1, cpu="20"))
        await eventually(
            lambda: self.of_app("filler"),
            lambda pods: len(pods) == count and all(map(is_ready, pods)),
            within_s=_LONG_S,
            what="half of each node is taken",
        )
        body = self._workload("llm", count, 1)
        if kind == "StatefulSet":
            body["spec"] |= {"serviceName": "llm", "podManagementPolicy": "Parallel"}
        await self.create(self._path(), body)
        pods = await self._until_ready(count)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == count
        await self.client.delete(self._path("deployments", "filler"))
        await eventually(lambda: self.of_app("filler"), lambda pods: not pods, within_s=_LONG_S, what="room is there")

    async def _until_ready(self, count: int) -> list[Object]:
        return await eventually(
            self.replicas,
            lambda pods: len(pods) == count and all(map(is_ready, pods)),
            within_s=_LONG_S,
            what=f"{count} replicas serve",
        )

    async def want_pairs(self, count: int) -> None:
        """Ask for pods of two devices each."""
        await self.create(self._path("deployments"), self._workload("pair", count, 2))

    async def scale(self, count: int) -> None:
        body = msgspec.json.encode({"spec": {"replicas": count}})
        await self.client.merge_patch(self._path(name="llm", subresource="scale"), body)

    async def roll_out(self) -> None:
        template = {"metadata": {"annotations": {"tests.example.com/version": "2"}}}
        body = msgspec.json.encode({"spec": {"template": template}})
        await self.client.merge_patch(self._path(name="llm"), body)

    async def budget(self, most_missing: int) -> None:
        body = {
            "metadata": {"name": "llm"},
            "spec": {"maxUnavailable": most_missing, "selector": {"matchLabels": {"app": "llm"}}},
        }
        path = self._path("poddisruptionbudgets", version="policy/v1")
        await self.create(path, body)

        async def allowed() -> int:
            found = msgspec.json.decode(await self.client.get(f"{path}/llm"))
            return int(found.get("status", {}).get("disruptionsAllowed", 0))

        await eventually(allowed, lambda count: count == most_missing, within_s=30.0, what="the budget is counted")

    async def rival(self) -> None:
        """Have a HorizontalPodAutoscaler name the workload; it has no metrics, so it changes nothing."""
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
            "minReplicas": 2,
            "maxReplicas": 2,
        }
        path = self._path("horizontalpodautoscalers", version="autoscaling/v2")
        await self.create(path, {"metadata": {"name": "rival"}, "spec": spec})

    async def autoscaler(self) -> None:
        """Have an autoscaler of ours name the workload."""
        spec = {
            "targetRef": {"kind": "Deployment", "name": "llm"},
            "maxReplicas": 4,
            "mode": "act",
            "targetConcurrency": {"initial": 5},
            "signals": {"balancer": {"name": "main", "backend": "llm"}},
        }
        kind = {"apiVersion": f"{labels.DOMAIN}/{labels.AUTOSCALER_VERSION}", "kind": labels.AUTOSCALER_KIND}
        await self.create(paths.autoscalers(self.namespace), kind | {"metadata": {"name": "llm"}, "spec": spec})

    async def surge(self) -> str:
        found = msgspec.json.decode(await self.client.get(paths.autoscalers(self.namespace, "llm")))
        return str(notes(found).get(labels.SURGE, ""))

    async def follow_surge(self, base: int) -> None:
        """Set the count as the scaler would."""
        while True:
            wanted = base + len(labels.surge_tokens(await self.surge()))
            if await self.count() != wanted:
                await self.scale(wanted)
            await CLOCK.sleep(0.1)

    async def refuses_more(self, planner: Client) -> None:
        """See to it that the planner's account can change nothing else of an autoscaler."""
        body = msgspec.json.encode({"spec": {"maxReplicas": 9}})
        with pytest.raises(ApiError, match="nothing of an autoscaler but"):
            await planner.merge_patch(paths.autoscalers(self.namespace, "llm"), body)

    async def is_forbidden(self, name: str, mark: str, text: str) -> None:
        """See to it that nobody but the planner may set a mark."""
        with pytest.raises(ApiError, match=mark):
            await self.patch_pod(name, {"metadata": {"annotations": {mark: text}}})

    # -- what is seen --------------------------------------------------------------------------------------------

    async def of_app(self, app: str) -> list[Object]:
        return [pod for pod in await self.pods() if pod["metadata"].get("labels", {}).get("app") == app]

    async def replicas(self) -> list[Object]:
        return await self.of_app("llm")

    async def ready(self) -> int:
        return sum(map(is_ready, await self.replicas()))

    async def count(self) -> int:
        found = msgspec.json.decode(await self.client.get(self._path(name="llm", subresource="scale")))
        return int(found["spec"].get("replicas", 0))

    async def marked(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in await self.pods() if labels.MOVING_TO in notes(pod)]

    async def moved(self) -> int:
        return sum(labels.MOVED_FROM in notes(pod) for pod in await self.replicas())

    async def events(self, reason: str) -> list[str]:
        items = msgspec.json.decode(await self.client.get(paths.events(self.namespace)))["items"]
        return [item.get("note", "") for item in items if item.get("reason") == reason]

    async def until_placed(self, *, pairs: int, within_s: float) -> None:
        await eventually(
            lambda: self.of_app("pair"),
            lambda pods: sum(bool(pod["spec"].get("nodeName")) for pod in pods) == pairs,
            within_s=within_s,
            what=f"{pairs} pods of two devices are bound",
        )

    async def until_at_rest(self, *, within_s: float) -> None:
        """Wait until nothing is left of any move: no mark, no surge."""

        async def left() -> list[str]:
            pods = await self.pods()
            found = [pod["metadata"]["name"] for pod in pods if any(mark in notes(pod) for mark in _MARKS)]
            costs = [
                pod["metadata"]["name"]
                for pod in pods
                if notes(pod).get(labels.POD_DELETION_COST) == labels.LEAVES_FIRST
            ]
            return found + costs + [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]

        await eventually(left, lambda names: not names, within_s=within_s, what="no mark is left")

    async def watch(self, replicas: int) -> None:
        """Look for ever: as many serve as are wanted, and no device of any node is held twice."""
        while True:
            pods = await self.pods()
            held: dict[tuple[str, str], str] = {}
            for pod in pods:
                node = pod["spec"].get("nodeName", "")
                for device in filter(None, notes(pod).get(labels.DEVICES, "").split(",")):
                    other = held.setdefault((node, device), pod["metadata"]["name"])
                    assert not node or other == pod["metadata"]["name"], f"{node}/{device} is given twice"
            serving = sum(is_ready(pod) for pod in pods if pod["metadata"].get("labels", {}).get("app") == "llm")
            assert serving >= replicas, f"{serving} of {replicas} replicas serve"
            await CLOCK.sleep(0.05)


def _is_touched(pod: Object) -> bool:
    is_marked = any(mark in notes(pod) for mark in _MARKS)
    is_first = notes(pod).get(labels.POD_DELETION_COST) == labels.LEAVES_FIRST
    return is_marked or is_first or "deletionTimestamp" in pod["metadata"]
