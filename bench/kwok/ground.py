"""One local cluster with fake nodes, and the switch that lets exactly one side schedule on it."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib import resources
from pathlib import Path

import msgspec

from bench.kwok import proc
from bench.kwok.rivals.kai_side import Kai
from berthmaster.commands.up import populate
from berthmaster.local import admission, fake_nodes, ports, probes, processes
from berthmaster.local.binaries import Binaries
from berthmaster.local.cluster import Cluster, environment
from berthmaster.local.components import EXTENDER, PLANNER, Component, Options
from berthmaster.local.probes import Probe
from berthmaster.local.progress import Report
from berthmaster.local.supervisor import Supervisor
from berthmaster.options import run
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError
from fleet.kube.client import Client
from fleet.kube.credentials import Connection, connection
from fleet.node import Node

SCHEDULER = "kube-scheduler"
STOCK_SCHEDULER = "kube-scheduler-stock"
GPUS_PER_NODE = 8
_START_S = 120.0
_POLICIES_S = 60.0
_POLL_S = 0.2
_BINDINGS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
)
_OURS = {"labelSelector": "app.kubernetes.io/part-of=berthmaster"}


class Side(Enum):
    """Who schedules."""

    STOCK = "stock"  # kube-scheduler as it comes; no policy of ours is bound, none of our processes runs
    OURS = "berthmaster"  # policies, planner, extender, kube-scheduler with our profile
    KAI = "kai"  # KAI Scheduler's own programs alone

    @property
    def namespace(self) -> str:
        """Return the namespace of its pods; ours is managed."""
        return f"bench-{self.value}"


class Ground:
    """A cluster of equal classic nodes of eight devices.

    Args:
        nodes: How many.
        binaries: Programs of the control plane.
        clock: To wait on.
        report: Where steps are shown.
        kai: Folder of KAI's programs; None = that side does not play.
        machines: Other nodes than equal ones, as many as `nodes`.
    """

    def __init__(
        self,
        nodes: int,
        binaries: Binaries,
        clock: SystemClock,
        report: Report,
        *,
        kai: Path | None = None,
        machines: Sequence[Node] = (),
    ) -> None:
        self.nodes = nodes
        self._binaries = binaries
        self._clock = clock
        self._report = report
        self._environ = environment()
        self.cluster = Cluster(f"bench-kwok-{nodes}", clock=clock)
        self._supervisor = Supervisor(self.cluster.layout, self._environ, clock)
        self._fleet = tuple(machines) or fake_nodes.uniform(nodes, is_sharing=False, gpus=GPUS_PER_NODE)
        self._has_policies = True
        self._kai = None if kai is None else Kai(self.cluster, kai, binaries.paths["kubectl"], self._environ, clock)

    @contextmanager
    def standing(self) -> Iterator[Ground]:
        """Bring the cluster up with all nodes Ready and nobody scheduling; take it down at the end, whatever happens.

        Raises:
            LocalClusterError: There is such a cluster already, or it does not come up.
        """
        if self.cluster.record() is not None:
            raise LocalClusterError(
                f"a cluster {self.cluster.name} exists already: berthmaster down --name {self.cluster.name}"
            )
        try:
            self.cluster.up(Options(has_scaler=False, has_warmpool=False), self._binaries, report=self._report)
            self.silence()
            populate(self.cluster, self._fleet, self._binaries.kubernetes, self._report, self._clock)
            # Kubelets have machines of their own in a real cluster; kwok would take its time from the side measured.
            self.cluster.stop("kwok")
            yield self
        finally:
            self.cluster.down(report=self._report)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names of all nodes."""
        return tuple(node.name for node in self._fleet)

    @property
    def access(self) -> Connection:
        """Return the administrator's connection."""
        return connection(str(self.cluster.kubeconfig), clock=self._clock)

    def silence(self) -> None:
        """Stop every side."""
        for name in (SCHEDULER, STOCK_SCHEDULER, PLANNER, EXTENDER):
            self._supervisor.end(name)
        if self._kai is not None:
            self._kai.end()

    def start(self, side: Side) -> None:
        """Let only this side schedule; its processes are fresh and answer."""
        self.silence()
        self._set_policies(wanted=side is Side.OURS)
        if side is Side.OURS:
            self.start_ours()
            self.cluster.start(SCHEDULER)
        elif side is Side.KAI:
            if self._kai is None:
                raise LocalClusterError("KAI's programs are not here")
            self._kai.start()
        else:
            self._run(self._stock_scheduler())

    def start_ours(self) -> None:
        """Start extender and planner; without kube-scheduler pods are pinned and never bound."""
        self._set_policies(wanted=True)
        self.cluster.start(EXTENDER)
        self.cluster.start(PLANNER)

    def serve(self, name: str, argv: Sequence[str], path: str) -> int:
        """Start another program, with --port=N added, wait until it answers at `path`, and return its port."""
        port = self._port(name)
        self._run(Component(name=name, argv=(*argv, f"--port={port}"), probe=Probe(port=port, path=path)))
        return port

    def end(self, name: str) -> None:
        """End a program that `serve` started."""
        self._supervisor.end(name)

    def families(self) -> dict[str, tuple[int, ...]]:
        """Return the pids of every component that runs: its process first, then whatever it started."""
        pids = [process.pid for process in processes.marked(str(self.cluster.layout.root))]
        folder = self.cluster.layout.process("any").parent
        found: dict[str, tuple[int, ...]] = {}
        for name in sorted(path.stem for path in folder.glob("*.json")):
            leader = self._supervisor.identity(name)
            if leader is not None:
                own = [pid for pid in pids if processes.session_of(pid) == leader.pid]
                others = [pid for pid in pids if pid not in own and proc.parent(pid) in own]
                found[name] = (leader.pid, *(pid for pid in own if pid != leader.pid), *others)
        return found

    def _run(self, component: Component) -> None:
        self._supervisor.spawn_missing([component])
        self._supervisor.wait([component], probes.trust(self.cluster.layout.pki), most_s=_START_S)

    def _port(self, name: str) -> int:
        record = self.cluster.record()
        return ports.choose([name], promised=set(record.ports.values()) if record else set())[name]

    def _stock_scheduler(self) -> Component:
        layout, port = self.cluster.layout, self._port(STOCK_SCHEDULER)
        template = resources.files("berthmaster.local").joinpath("templates", "scheduler-stock.yaml").read_text()
        access = layout.config / f"{SCHEDULER}.kubeconfig"
        config = layout.config / "scheduler-stock.yaml"
        config.write_text(string.Template(template).substitute(kubeconfig=access))
        return Component(
            name=STOCK_SCHEDULER,
            argv=(
                str(self._binaries.paths[SCHEDULER]),
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={layout.pki / 'server.crt'}",
                f"--tls-private-key-file={layout.pki / 'server.key'}",
                f"--client-ca-file={layout.pki / 'ca.crt'}",
                f"--authentication-kubeconfig={access}",
                f"--authorization-kubeconfig={access}",
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
                f"--config={config}",
            ),
            probe=Probe(port=port, path="/readyz", is_tls=True),
        )

    def _set_policies(self, *, wanted: bool) -> None:
        """Bind our admission policies, or unbind them: the stock side is to pay for nothing of ours."""
        if wanted == self._has_policies:
            return
        if wanted:
            layout = self.cluster.layout
            admission.apply_manifests(
                str(self._binaries.paths["kubectl"]),
                self.cluster.kubeconfig,
                log=layout.log("manifests"),
                environ=self._environ,
                clock=self._clock,
            )
            record = self.cluster.record()
            if record is None:
                raise LocalClusterError(f"cluster {self.cluster.name} is gone")
            admission.wait_for_pods(
                record.ports["kube-apiserver"],
                probes.trust(layout.pki),
                has_policies=True,
                clock=self._clock,
                most_s=_POLICIES_S,
            )
        else:
            run(self._unbind())
        self._has_policies = wanted

    async def _unbind(self) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "bench-", "namespace": "default"},
            "spec": {
                "schedulerName": labels.SCHEDULER_NAME,
                "automountServiceAccountToken": False,
                "containers": [{"name": "none", "image": "none"}],
            },
        }
        async with Client(self.access, self._clock, user_agent="bench-kwok") as client:
            for path in _BINDINGS:
                await client.request("DELETE", path, params=_OURS)
            deadline_s = self._clock.monotonic_s() + _POLICIES_S
            body = msgspec.json.encode(pod)
            while labels.PLAN_GATE.encode() in await client.request(
                "POST", "/api/v1/namespaces/default/pods", params={"dryRun": "All"}, body=body
            ):
                if self._clock.monotonic_s() > deadline_s:
                    raise LocalClusterError(f"our policies are still in force {_POLICIES_S:.0f} s after they went")
                await self._clock.sleep(_POLL_S)
