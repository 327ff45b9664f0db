"""Planner and extender run under their own accounts, and in all that other tests made them do nothing was denied."""

from __future__ import annotations

import json

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.kube import paths
from fleet.kube.patches import APPLY_PATCH
from tests.support.cluster import kubectl
from tests.support.quay import Quay

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("process", ["planner", "extender"])
async def test_each_acts_as_its_own_account_and_was_never_denied(quay: Quay, harbour: Cluster, process: str) -> None:
    await quay.add_pod("placed", {"cpu": "1"})
    await quay.bound("placed")
    record = harbour.record()
    assert record is not None
    own = harbour.layout.config / f"{process}.kubeconfig"
    who = json.loads(kubectl(harbour, "auth", "whoami", "-o=json", f"--kubeconfig={own}"))["status"]["userInfo"]
    assert who["username"] == f"system:serviceaccount:{labels.NAMESPACE}:berthmaster-{process}"
    assert "system:masters" not in who["groups"]
    lines = [json.loads(line) for line in harbour.log(process).splitlines() if line.startswith("{")]
    assert lines
    for line in lines:
        text = json.dumps(line)
        assert "403" not in line["message"], line
        assert "orbidden" not in text, line
        assert line["level"] not in ("error", "critical"), line
        assert "trace" not in line, line
    assert [line for line in harbour.log(process).splitlines() if not line.startswith("{")] == []


async def test_the_planner_wrote_as_itself(quay: Quay) -> None:
    """Of a pod that somebody applied the API server keeps who wrote what; of others the pin ends that record."""
    pod = quay.pod_json("placed", {labels.GPU_MILLI: "10"})
    path = paths.pod(quay.namespace, "placed")
    somebody = {"fieldManager": "somebody"}
    await quay.client.request("PATCH", path, params=somebody, body=json.dumps(pod).encode(), content_type=APPLY_PATCH)
    found = await quay.bound("placed")
    managers = {
        field["manager"]
        for field in found["metadata"]["managedFields"]
        if f"f:{labels.DEVICES}" in json.dumps(field["fieldsV1"])
    }
    assert managers == {labels.FIELD_MANAGER}
    await quay.add_pod("made", {labels.GPU_MILLI: "10"})
    assert "managedFields" not in (await quay.bound("made"))["metadata"]
