"""The real Karpenter with its kwok provider: found in the cache or built once, and run beside a control plane."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from berthmaster.local import build
from berthmaster.local.cluster import Cluster
from berthmaster.local.layout import cache_home
from berthmaster.local.pins import TOOLS, Binary, read_pins
from berthmaster.local.ports import choose
from berthmaster.local.progress import Report
from fleet.clock import SystemClock
from fleet.labels import NVIDIA_GPU

PROGRAM = Binary(
    name="karpenter",
    folder="karpenter",
    package="sigs.k8s.io/karpenter/kwok",
    module="sigs.k8s.io/karpenter",
    expected_s=200,
)
INSTANCE_TYPE = "g-2x-amd64-linux"
ZONE, CAPACITY_TYPE = "test-zone-a", "on-demand"


def version() -> str:
    """Return the pinned version, from tools/karpenter/go.mod."""
    match = re.search(rf"{re.escape(PROGRAM.module)} (v\S+)", (TOOLS / PROGRAM.folder / "go.mod").read_text())
    assert match is not None
    return match[1]


def cached() -> Path:
    """Return where the program lies, built or not."""
    key = f"karpenter-{version()}-{sys.platform}-{platform.machine()}"
    return cache_home(os.environ) / "bin" / key / PROGRAM.name


def ensure(report: Report) -> Path:
    """Return the program, building it if need be: three to four minutes on two cores."""
    program = cached()
    if not program.exists():
        pins = replace(read_pins(), kubernetes=version())  # the name under which a build tells the version
        build.build_all(
            [PROGRAM],
            pins,
            cache=program.parent,
            home=cache_home(os.environ),
            environ=os.environ,
            report=report,
            clock=SystemClock(),
        )
    return program


@contextlib.contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Run Karpenter as the cluster's administrator; yields its log."""
    types = folder / "instance-types.json"
    types.write_text(json.dumps([_instance_type()]))
    ports = choose(("metrics", "health"), promised=())
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "kube-system",
        "KARPENTER_SERVICE": "karpenter",
        "METRICS_PORT": str(ports["metrics"]),
        "HEALTH_PROBE_PORT": str(ports["health"]),
        "INSTANCE_TYPES_FILE_PATH": str(types),
    }
    log = folder / "karpenter.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(cached())], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _instance_type() -> dict[str, object]:
    offering = {
        "Price": 1.0,
        "Available": True,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [CAPACITY_TYPE]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONE]},
        ],
    }
    return {
        "name": INSTANCE_TYPE,
        "offerings": [offering],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "20Gi", "pods": "110", NVIDIA_GPU: "2"},
    }
