"""`explain` of a bound pod whose devices are a resource claim's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from berthmaster.local.cluster import Cluster
from tests.support.dra import Pier, devices_of, nodes_of, publish_alike, request
from tests.support.quay import node_of

pytestmark = pytest.mark.contract


def explained(cluster: Cluster, pod: str) -> Any:
    command = [sys.executable, "-m", "berthmaster", "explain", pod, "--json", f"--kubeconfig={cluster.kubeconfig}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_it_has_the_devices_of_its_claim_and_other_places(pier: Pier, claims_cluster: Cluster) -> None:
    await publish_alike(pier, 2)
    await pier.add_template("each", [request("gpu", pier.device_class)])
    await pier.add_pod("user", template="each")
    pod = await pier.quay.bound("user")
    found = explained(claims_cluster, f"{pier.quay.namespace}/user")
    (claim,) = await pier.claims()
    assert (found["standing"], found["feasible_nodes"]) == ("bound", 2)
    assert (found["berth"]["node"], found["berth"]["devices"]) == (node_of(pod), devices_of(claim))
    assert {option["node"] for option in found["options"]} == set(nodes_of(pier))
    assert all(len(option["devices"]) == 1 for option in found["options"])
    assert [option["node"] for option in found["options"] if option["is_taken"]] == [node_of(pod)]
