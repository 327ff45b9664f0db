"""Applies our manifests to a fresh control plane, and tells when pods may come."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from berthmaster.local import probes
from berthmaster.local.children import ended, wait_for
from berthmaster.local.pins import TOOLS
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

MANIFESTS = TOOLS.parent / "manifests" / "overlays" / "kwok"
_APPLY_S = 60.0
_POLL_S = 0.1
_DRY_RUN = "/api/v1/namespaces/default/pods?dryRun=All"


def apply_manifests(
    kubectl: str, kubeconfig: Path, *, log: Path, environ: Mapping[str, str], clock: SystemClock
) -> None:
    """Apply manifests/overlays/kwok: accounts, rights and admission policies.

    Raises:
        LocalClusterError: The folder is not there, or kubectl failed; the message names its log.
    """
    if not (MANIFESTS / "kustomization.yaml").is_file():
        raise LocalClusterError(f"the manifests are not at {MANIFESTS}: the checkout is incomplete")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                kubectl,
                "apply",
                "--server-side",
                f"--field-manager={labels.FIELD_MANAGER}-up",
                f"--kubeconfig={kubeconfig}",
                f"--cache-dir={log.parent.parent / 'kubectl-cache'}",
                f"--kustomize={MANIFESTS}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            start_new_session=True,
        )
        with ended(process):
            wait_for(process, clock, most_s=_APPLY_S)
    if process.returncode != 0:
        raise LocalClusterError(f"applying {MANIFESTS} failed: see {log}\n{log.read_text(errors='replace')[-500:]}")


def wait_for_pods(port: int, trust: ssl.SSLContext, *, has_policies: bool, clock: SystemClock, most_s: float) -> None:
    """Wait until the API server admits pods, and with policies until these are in force.

    A policy works a moment after its object exists, so it is tried with pods that are never stored (dry run): ours must
    come back gated, and a device record that is not the planner's must be refused.

    Raises:
        LocalClusterError: That did not happen in time; the message holds the last answer.
    """
    deadline_s = clock.monotonic_s() + most_s
    while True:
        status, answer = _try_pod(port, trust, {})
        is_ready = status == http.client.CREATED
        if is_ready and has_policies:
            is_ready = labels.PLAN_GATE.encode() in answer
            if is_ready:
                status, answer = _try_pod(port, trust, {labels.DEVICES: "0"})
                is_ready = status == http.client.FORBIDDEN
        if is_ready:
            return
        if clock.monotonic_s() > deadline_s:
            said = answer.decode(errors="replace")[:300]
            raise LocalClusterError(f"pods are not admitted as they should be after {most_s:.0f} s: {status} {said}")
        clock.sleep_blocking(_POLL_S)


def _try_pod(port: int, trust: ssl.SSLContext, annotations: Mapping[str, str]) -> tuple[int, bytes]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "berthmaster-up-", "annotations": dict(annotations)},
        "spec": {
            "schedulerName": labels.SCHEDULER_NAME,
            "automountServiceAccountToken": False,
            "containers": [{"name": "none", "image": "none"}],
        },
    }
    return probes.post(port, _DRY_RUN, msgspec.json.encode(pod), trust)
