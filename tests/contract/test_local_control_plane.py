"""The shared control plane is a real one."""

from __future__ import annotations

import pytest

from berthmaster.local.cluster import Cluster, Health

pytestmark = pytest.mark.contract


def test_every_component_answers(control_plane: Cluster) -> None:
    found = {status.name: status.health for status in control_plane.status()}
    assert found == dict.fromkeys(
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"], Health.RUNNING
    )
