"""Who works in the cluster beside the planner: controllers, kube-scheduler, kubelets, and those who break things."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from fleet import labels
from fleet.kube import paths
from fleet.kube.decode import pod_from
from fleet.pod import Pod
from tests.support.builders import pod_object
from tests.support.clock import ManualClock
from tests.support.storm.api import CLAIMS, DEPLOYMENTS, REPLICA_SETS, Key, Object, StormApi, key_of

ZONE = "topology.kubernetes.io/zone"
DRIVER = "dev.example.com"
DEVICE_CLASS = "any"


def decoded(obj: Object) -> Pod:
    """Return the pod as the planner reads it."""
    return pod_from(pod_object(obj))


class Cluster:
    """Controllers and kubelets, one beat at a time; nothing happens by itself."""

    def __init__(self, api: StormApi, clock: ManualClock, rng: Random) -> None:
        self.api = api
        self.rng = rng
        self.clock = clock
        self._numbers = count(1)

    @property
    def pods(self) -> dict[Key, Object]:
        """Return all pods."""
        return self.api.objects[paths.PODS]

    # -- what people make ----------------------------------------------------------------------------------------

    def add_node(self, obj: Object) -> None:
        """Create or change a node."""
        self.api.put(paths.NODES, obj)

    def add_service(self, name: str, template: Object, replicas: int, namespace: str = "default") -> None:
        """Create a Deployment with its ReplicaSet."""
        meta = {"name": name, "namespace": namespace, "uid": f"uid-d-{name}", "generation": 1}
        notes = {"annotations": {"deployment.kubernetes.io/revision": "1"}}
        spec = {"replicas": replicas, "template": template}
        self.api.put(DEPLOYMENTS, {"metadata": meta | notes, "spec": spec, "status": {}})
        owner = {"kind": "Deployment", "name": name, "uid": f"uid-d-{name}", "controller": True}
        own = {"name": f"{name}-rs", "namespace": namespace, "uid": f"uid-rs-{name}", "ownerReferences": [owner]}
        self.api.put(REPLICA_SETS, {"metadata": own | notes, "spec": {}})

    def add_pod(self, template: Object, owner: Object | None, namespace: str = "default", name: str = "") -> Key:
        """Create a gated pod of a template."""
        number = next(self._numbers)
        name = name or f"{template['metadata']['labels'].get('app', 'pod')}-{number}"
        pod = copy.deepcopy(template)
        at = datetime.fromtimestamp(self.clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pod["metadata"] |= {"name": name, "namespace": namespace, "uid": f"u{number}-{name}", "creationTimestamp": at}
        if owner is not None:
            pod["metadata"]["ownerReferences"] = [owner]
        pod["status"] = {"phase": "Pending"}
        self.api.put(paths.PODS, pod)
        return namespace, name

    # -- what controllers do -------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Let everybody work once."""
        self._keep_counts()
        self._make_claims()
        self._free_claims()
        self._bind()
        self._run()
        self._count_budgets()

    def _owned(self, uid: str) -> list[Object]:
        return [
            pod
            for pod in self.pods.values()
            if any(one["uid"] == uid for one in pod["metadata"].get("ownerReferences", ()))
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] not in ("Failed", "Succeeded")
        ]

    def _keep_counts(self) -> None:
        for key, deployment in list(self.api.objects[DEPLOYMENTS].items()):
            name = deployment["metadata"]["name"]
            owner = {"kind": "ReplicaSet", "name": f"{name}-rs", "uid": f"uid-rs-{name}", "controller": True}
            pods = self._owned(owner["uid"])
            wanted = deployment["spec"]["replicas"]
            for _ in range(wanted - len(pods)):
                self.add_pod(deployment["spec"]["template"], owner, key[0])
            for pod in sorted(pods, key=_goes_first)[: max(0, len(pods) - wanted)]:
                self.api.end(paths.PODS, key_of(pod))
            pods = self._owned(owner["uid"])
            ready = sum(decoded(pod).is_ready for pod in pods)
            status = {"observedGeneration": 1, "updatedReplicas": len(pods), "readyReplicas": ready}
            if deployment["status"] != status:
                self.api.change(DEPLOYMENTS, key, lambda obj, status=status: obj.update(status=status))

    def _make_claims(self) -> None:
        for key, pod in list(self.pods.items()):
            made = pod["status"].get("resourceClaimStatuses", [])
            for one in pod["spec"].get("resourceClaims", ()):
                if "resourceClaimTemplateName" not in one or made:
                    continue
                name = f"{key[1]}-{one['name']}"
                owner = {"kind": "Pod", "name": key[1], "uid": pod["metadata"]["uid"]}
                self.add_claim(name, key[0], owner, int(one["resourceClaimTemplateName"].rpartition("-")[2]))
                status = [{"name": one["name"], "resourceClaimName": name}]
                self.api.change(paths.PODS, key, lambda p, s=status: p["status"].update(resourceClaimStatuses=s))

    def add_claim(self, name: str, namespace: str, owner: Object | None, devices: int) -> None:
        """Create a claim on so many devices."""
        exactly = {"deviceClassName": DEVICE_CLASS, "count": devices}
        meta: Object = {"name": name, "namespace": namespace, "uid": f"uid-c{next(self._numbers)}-{name}"}
        if owner is not None:
            meta["ownerReferences"] = [owner]
        spec = {"devices": {"requests": [{"name": "dev", "exactly": exactly}]}}
        self.api.put(CLAIMS, {"metadata": meta, "spec": spec, "status": {}})

    def _free_claims(self) -> None:
        live = {pod["metadata"]["uid"] for pod in self.pods.values() if pod["status"]["phase"] not in _ENDED}
        for key, claim in list(self.api.objects[CLAIMS].items()):
            left = [one for one in claim["status"].get("reservedFor", ()) if one["uid"] in live]
            if len(left) < len(claim["status"].get("reservedFor", ())):
                status = {**claim["status"], "reservedFor": left} if left else {}
                self.api.change(CLAIMS, key, lambda obj, status=status: obj.update(status=status))
            owners = claim["metadata"].get("ownerReferences", ())
            if owners and owners[0]["uid"] not in {pod["metadata"]["uid"] for pod in self.pods.values()}:
                self.api.remove(CLAIMS, key)

    def _bind(self) -> None:
        """Bind what is un-gated, where it still fits: pinned pods to their node, others to the first candidate."""
        for key, obj in list(self.pods.items()):
            pod = decoded(obj)
            if pod.gates or pod.node_name or pod.is_terminating or not pod.is_live:
                continue
            names = [pod.pinned_node] if pod.pinned_node else [berth.node for berth in pod.candidates]
            place = next((name for name in names if self._takes(name, pod)), None)
            if place is not None:
                self.api.change(paths.PODS, key, lambda o, place=place: o["spec"].update(nodeName=place))
            elif not pod.is_unschedulable:
                self.api.change(paths.PODS, key, _refuse)

    def _takes(self, name: str, pod: Pod) -> bool:
        """Judge as kube-scheduler's filters and our extender do, by what is bound."""
        node = self.api.objects[paths.NODES].get(("", name))
        if node is None or node["spec"].get("unschedulable"):
            return False
        wanted = set(devices_at(pod, name))
        for obj in self.pods.values():
            other = decoded(obj)
            if other.node_name == name and other.is_live and other.uid != pod.uid and wanted:
                kinds = {one.ask.kind.value for one in (pod, other) if one.ask is not None}
                if wanted & set(devices_at(other, name)) and "chosen" in kinds:
                    return False
        return self._has_room(node, pod)

    def _has_room(self, node: Object, pod: Pod) -> bool:
        free = float(node["status"]["allocatable"]["cpu"]) * 1000 - pod.requests.milli_cpu
        for obj in self.pods.values():
            other = decoded(obj)
            if other.node_name == node["metadata"]["name"] and other.is_live:
                free -= other.requests.milli_cpu
        return free >= 0

    def _run(self) -> None:
        """Let bound pods start, and those that leave go."""
        for key, obj in list(self.pods.items()):
            if not obj["spec"].get("nodeName"):
                continue
            node = obj["spec"]["nodeName"]
            is_lost = ("", node) not in self.api.objects[paths.NODES]
            if is_lost or ("deletionTimestamp" in obj["metadata"] and self.rng.random() < 0.7):
                self.api.remove(paths.PODS, key)
            elif obj["status"]["phase"] == "Pending" and self.rng.random() < 0.7:
                ready = {"type": "Ready", "status": "True"}
                status = {"phase": "Running", "conditions": [*obj["status"].get("conditions", ()), ready]}
                self.api.change(paths.PODS, key, lambda o, status=status: o["status"].update(status))

    def _count_budgets(self) -> None:
        for key, budget in list(self.api.objects[paths.BUDGETS].items()):
            wanted = budget["spec"]["selector"]["matchLabels"]
            pods = [
                decoded(pod)
                for pod in self.pods.values()
                if all(pod["metadata"]["labels"].get(name) == value for name, value in wanted.items())
            ]
            healthy = sum(pod.is_ready and not pod.is_terminating for pod in pods)
            least = max(0, len(pods) - budget["spec"]["maxUnavailable"])
            status = {
                "observedGeneration": 1,
                "disruptionsAllowed": max(0, healthy - least),
                "expectedPods": len(pods),
                "desiredHealthy": least,
            }
            if budget["status"] != status:
                self.api.change(paths.BUDGETS, key, lambda obj, status=status: obj.update(status=status))


def _refuse(obj: Object) -> None:
    no = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    obj["status"].setdefault("conditions", []).append(no)


_ENDED = ("Failed", "Succeeded")


def devices_at(pod: Pod, node: str) -> Sequence[str]:
    """Return the devices that a pod has recorded on a node."""
    if pod.devices is not None:
        return pod.devices
    return next((one.devices for one in pod.candidates if one.node == node), ())


def _goes_first(obj: Object) -> tuple[Any, ...]:
    """Order as the ReplicaSet controller does: unbound, not Ready, cheapest to delete, youngest."""
    pod = decoded(obj)
    cost = int(pod.deletion_cost) if pod.deletion_cost.lstrip("-").isdigit() else 0
    return bool(pod.node_name), pod.is_ready, cost, -pod.created_at_s, pod.name


def gated(requests: Object, *, app: str, annotations: Object | None = None, **spec: Any) -> Object:
    """Return a pod template behind our gate."""
    main = {"name": "m", "resources": {"requests": requests}, "ports": spec.pop("ports", [])}
    meta: Object = {"labels": {"app": app, **spec.pop("labels", {})}}
    if annotations:
        meta["annotations"] = dict(annotations)
    gates = [{"name": labels.PLAN_GATE}]
    body = {"schedulerName": labels.SCHEDULER_NAME, "schedulingGates": gates, "containers": [main], **spec}
    return {"metadata": meta, "spec": body}
