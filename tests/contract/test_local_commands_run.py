"""berthmaster up, status and down as a person runs them, with our own processes in the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from berthmaster.local import processes
from berthmaster.local.binaries import Binaries
from berthmaster.local.cluster import Cluster
from tests.support.cluster import kubectl

pytestmark = pytest.mark.contract

EVERYTHING = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "extender",
    "planner",
    "scaler",
    "warmpool",
]
POD = """
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  schedulerName: berthmaster
  containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: "2"}}}]
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "berthmaster", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def cluster(binaries: Binaries) -> Iterator[Cluster]:
    local = Cluster(f"test-commands-{os.getpid()}")
    done = run("up", "--name", local.name, "--nodes", "3", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["outcome"], shown["nodes_created"]) == ("started", 3)
    yield local
    done = run("down", "--name", local.name)
    assert done.returncode == 0, done.stderr
    assert processes.marked(str(local.layout.root)) == ()


def test_status_shows_all_components(cluster: Cluster) -> None:
    done = run("status", "--name", cluster.name, "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert shown["state"] == "running"
    assert [component["name"] for component in shown["components"]] == EVERYTHING
    assert shown["kubectl"].endswith("kubectl")


def test_a_pod_of_ours_runs_at_once(cluster: Cluster) -> None:
    kubectl(cluster, "apply", "-f", "-", text=POD)
    kubectl(cluster, "wait", "pod/first", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")


def test_up_again_does_nothing_and_its_output_sets_kubeconfig(cluster: Cluster) -> None:
    done = run("up", "--name", cluster.name, "--nodes", "3")
    assert done.returncode == 0, done.stderr
    assert "already running: nothing to do" in done.stderr
    assert done.stdout == f"export KUBECONFIG={cluster.kubeconfig}\n"


@pytest.mark.parametrize("component", ["extender", "planner"])
def test_our_own_killed_processes_are_named_and_healed(cluster: Cluster, component: str) -> None:
    cluster.kill(component)
    found = run("status", "--name", cluster.name)
    assert found.returncode == 1
    assert f"Broken: {component}." in found.stdout
    healed = run("up", "--name", cluster.name, "--json")
    assert json.loads(healed.stdout)["outcome"] == "healed"
    assert run("status", "--name", cluster.name).returncode == 0
    # No child of the killed one lives on beside its successor.
    leaders = {status.pid for status in cluster.status()}
    ours = processes.marked(str(cluster.layout.root))
    assert {processes.session_of(process.pid) for process in ours} == leaders
