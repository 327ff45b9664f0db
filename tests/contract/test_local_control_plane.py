"""The shared control plane is a real one: it schedules, runs, completes and deletes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster, Health
from tests.support.cluster import BARE, StartCluster, add_nodes, kubectl

pytestmark = pytest.mark.contract

WORK = """
apiVersion: v1
kind: Namespace
metadata: {name: plane}
---
apiVersion: v1
kind: Node
metadata: {name: plane-bare, labels: {plane: "true"}, annotations: {kwok.x-k8s.io/node: fake}}
status: {capacity: {cpu: 8, memory: 32Gi, pods: 20}, allocatable: {cpu: 8, memory: 32Gi, pods: 20}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: model, namespace: plane}
spec:
  replicas: 2
  selector: {matchLabels: {app: model}}
  template:
    metadata: {labels: {app: model}}
    spec:
      nodeSelector: {plane: "true"}
      initContainers:
        - {name: fetch, image: none}
        - {name: side, image: none, restartPolicy: Always}
      containers: [{name: model, image: none, resources: {requests: {cpu: "1"}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: plane}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {plane: "true"}
      containers: [{name: once, image: none}]
"""


def test_every_component_answers(control_plane: Cluster) -> None:
    found = {status.name: status.health for status in control_plane.status()}
    assert found == dict.fromkeys(
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"], Health.RUNNING
    )


def test_pods_run_complete_and_go_on_a_node_that_kwok_made_ready(control_plane: Cluster) -> None:
    kubectl(control_plane, "apply", "-f", "-", text=WORK)
    kubectl(control_plane, "wait", "node/plane-bare", "--for=condition=Ready", "--timeout=30s")
    kubectl(control_plane, "-n", "plane", "wait", "deployment/model", "--for=condition=Available", "--timeout=30s")
    kubectl(control_plane, "-n", "plane", "wait", "job/once", "--for=condition=Complete", "--timeout=30s")
    kubectl(control_plane, "delete", "namespace", "plane", "--timeout=60s")
    kubectl(control_plane, "delete", "node", "plane-bare")


async def test_created_nodes_take_pods_at_once(control_plane: Cluster) -> None:
    nodes = fake_nodes.uniform(20, is_sharing=False, prefix="plane")
    await add_nodes(control_plane, nodes)
    shown = kubectl(
        control_plane, "get", "nodes", "-l", "nvidia.com/gpu.count=8", "-o", "jsonpath={.items[*].status.allocatable}"
    )
    assert shown.count('"nvidia.com/gpu":"8"') >= 20
    kubectl(control_plane, "delete", "node", *(node.name for node in nodes))


def test_a_stock_scheduler_places_gpu_pods(start_cluster: StartCluster) -> None:
    cluster = start_cluster("stock", replace(BARE, has_stock_scheduler=True))
    try:
        node = fake_nodes.manifest(fake_nodes.uniform(1, is_sharing=False)[0], now_s=0.0, kubelet="v1.37.2")
        kubectl(cluster, "apply", "-f", "-", text=json.dumps(node))
        container = {"name": "one", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        overrides = json.dumps({"spec": {"containers": [container]}})
        kubectl(cluster, "run", "one", "--image=none", f"--overrides={overrides}")
        kubectl(cluster, "wait", "pod/one", "--for=condition=Ready", "--timeout=30s")
    finally:
        cluster.down()
