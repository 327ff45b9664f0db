"""KAI Scheduler on a local cluster: its definitions, its queues, and its scheduler, binder and pod grouper.

Started as its chart starts them, but with every listener on loopback that can be told so, and with rates of the API
that never hold it back. Its fractions need a pod of its own on the card that tells the card's index; nothing runs on
fake nodes, so `answer_reservations` says what that pod's program would say.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.kwok.rivals.kai_programs import OBJECTS, RivalError
from berthmaster.local import ports, probes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Component
from berthmaster.local.probes import Probe
from berthmaster.local.supervisor import Supervisor
from fleet.clock import Clock, SystemClock
from fleet.errors import Conflict, NotFound
from fleet.kube.client import Client

NAMES = ("kai-scheduler", "kai-binder", "kai-podgrouper")
SCHEDULER_NAME = "kai-scheduler"
QUEUE_LABEL = {"kai.scheduler/queue": "default-queue"}
_FRACTION = "gpu-fraction"
_SHARED_CONFIG = "runai/shared-gpu-configmap"
RESERVATIONS = "kai-resource-reservation"
_RESERVED_INDEX = "run.ai/reserve_for_gpu_index"
_NAMESPACES = ("kai-scheduler", RESERVATIONS, "kai-scale-adjust")
_RATE = "5000"
_START_S = 120.0
_ESTABLISHED_S = 60.0
_LOOK_EVERY_S = 0.2


def fraction_notes(name: str, ratio: float) -> dict[str, str]:
    """Return the annotations of a pod that asks this part of a card; the second is what KAI's admission adds."""
    return {_FRACTION: f"{ratio:g}", _SHARED_CONFIG: f"{name}-shared-gpu"}


class Kai:
    """KAI's processes beside one cluster.

    Args:
        cluster: It runs already, without any other scheduler at work.
        programs: Folder of the programs (`kai_programs.ensure`).
        kubectl: To apply its objects with.
        environ: What its processes inherit.
        clock: To wait on.
    """

    def __init__(
        self, cluster: Cluster, programs: Path, kubectl: Path, environ: Mapping[str, str], clock: SystemClock
    ) -> None:
        self._cluster = cluster
        self._programs = programs
        self._kubectl = kubectl
        self._environ = {**environ, "KUBECONFIG": str(cluster.kubeconfig)}
        self._supervisor = Supervisor(cluster.layout, self._environ, clock)
        self._clock = clock
        self._is_prepared = False

    def start(self) -> None:
        """Start fresh processes that answer; definitions and queues are there first."""
        self.end()
        self._prepare()
        scheduler, plugins, binder, binder_probe, grouper, grouper_probe = self._ports(6)
        components = (
            self._component(
                NAMES[0],
                "scheduler",
                Probe(port=scheduler, path="/metrics"),
                f"--listen-address=127.0.0.1:{scheduler}",
                f"--plugin-server-port={plugins}",
                f"--qps={_RATE}",
                f"--burst={_RATE}",
            ),
            self._component(
                NAMES[1],
                "binder",
                Probe(port=binder, path="/metrics"),
                f"--kubeconfig={self._cluster.kubeconfig}",
                f"--metrics-bind-address=127.0.0.1:{binder}",
                f"--health-probe-bind-address=127.0.0.1:{binder_probe}",
                f"--qps={_RATE}",
                f"--burst={_RATE}",
                "--runtime-class-name=",
                "--fake-gpu-nodes",
            ),
            self._component(
                NAMES[2],
                "podgrouper",
                Probe(port=grouper, path="/metrics"),
                f"--metrics-bind-address=127.0.0.1:{grouper}",
                f"--health-probe-bind-address=127.0.0.1:{grouper_probe}",
                f"--qps={_RATE}",
                f"--burst={_RATE}",
            ),
        )
        self._supervisor.spawn_missing(components)
        self._supervisor.wait(components, probes.trust(self._cluster.layout.pki), most_s=_START_S)

    def end(self) -> None:
        """End its processes; ones that do not run are no error."""
        for name in NAMES:
            self._supervisor.end(name)

    def _component(self, name: str, program: str, probe: Probe, *arguments: str) -> Component:
        return Component(name=name, argv=(str(self._programs / program), *arguments), probe=probe)

    def _ports(self, count: int) -> list[int]:
        record = self._cluster.record()
        names = [f"kai-{number}" for number in range(count)]
        taken = set(record.ports.values()) if record else set()
        return list(ports.choose(names, promised=taken).values())

    def _prepare(self) -> None:
        if self._is_prepared:
            return
        objects = self._programs / OBJECTS
        self._apply("apply", "--server-side", "-f", str(objects / "definitions"))
        self._until_established()
        for name in _NAMESPACES:
            made = self._call("create", "namespace", name)
            if made.returncode != 0 and "AlreadyExists" not in made.stderr:
                raise RivalError(f"namespace {name} could not be made: {made.stderr[-300:]}")
        made = self._call("create", "serviceaccount", RESERVATIONS, f"--namespace={RESERVATIONS}")
        if made.returncode != 0 and "AlreadyExists" not in made.stderr and "already exists" not in made.stderr:
            raise RivalError(f"service account {RESERVATIONS} could not be made: {made.stderr[-300:]}")
        self._apply("apply", "--server-side", "-f", str(objects / "queues.yaml"))
        self._is_prepared = True

    def _until_established(self) -> None:
        """Wait until every definition is served; kubectl itself gives up on one that has no status yet."""
        deadline_s = self._clock.monotonic_s() + _ESTABLISHED_S
        while True:
            asked = self._call("wait", "--for=condition=Established", "--timeout=5s", "crd", "--all")
            if asked.returncode == 0:
                return
            if self._clock.monotonic_s() > deadline_s:
                raise RivalError(f"KAI's definitions are not served: {asked.stderr[-500:]}")
            self._clock.sleep_blocking(_LOOK_EVERY_S)

    def _apply(self, *arguments: str) -> None:
        done = self._call(*arguments)
        if done.returncode != 0:
            raise RivalError(f"kubectl {' '.join(arguments)} failed: {done.stderr[-500:]}")

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._kubectl), *arguments, f"--cache-dir={self._cluster.layout.root / 'kubectl-cache'}"],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=180.0,
        )


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815


class _Reservation(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Reservations(msgspec.Struct):
    items: list[_Reservation]


async def answer_reservations(client: Client, clock: Clock) -> None:
    """Tell every reservation pod's card until cancelled: cards of a node are numbered as they are reserved."""
    path = f"/api/v1/namespaces/{RESERVATIONS}/pods"
    decode = msgspec.json.Decoder(_Reservations).decode
    given: dict[str, str] = {}
    count: dict[str, int] = {}
    while True:
        for pod in decode(await client.get(path, {"resourceVersion": "0"})).items:
            name, node = pod.metadata.name, pod.spec.nodeName
            if _RESERVED_INDEX in (pod.metadata.annotations or {}) or not node:
                continue
            if name not in given:
                given[name] = str(count.get(node, 0))
                count[node] = count.get(node, 0) + 1
            patch: dict[str, Any] = {"metadata": {"annotations": {_RESERVED_INDEX: given[name]}}}
            with suppress(NotFound, Conflict):
                await client.merge_patch(f"{path}/{name}", msgspec.json.encode(patch))
        await clock.sleep(_LOOK_EVERY_S)
