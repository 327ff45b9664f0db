"""One local cluster, from nothing to running, healed, looked at and gone."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from berthmaster.local import admission, locks, pki, ports, probes, processes, records
from berthmaster.local.binaries import Binaries
from berthmaster.local.children import interruptible
from berthmaster.local.components import (
    API,
    EXTENDER,
    PLANNER,
    PORTS,
    SCALER,
    STORE,
    WARMPOOL,
    Component,
    Options,
    components,
    write_configuration,
)
from berthmaster.local.layout import DEFAULT_NAME, Layout, check_name, state_home
from berthmaster.local.progress import Report, Silent
from berthmaster.local.records import Record
from berthmaster.local.supervisor import Supervisor
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

_START_S = 60.0
_SICK_S = 10.0
_GONE_S = 10.0
_GOGC = "300"


class Health(Enum):
    """How a component is found."""

    RUNNING = "running"
    NOT_ANSWERING = "not answering"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStatus:
    """One component as found; pid is None where no process of ours runs."""

    name: str
    health: Health
    pid: int | None
    port: int
    log: Path


class Outcome(Enum):
    """What `up` had to do."""

    STARTED = "started"
    HEALED = "healed"
    ALREADY_RUNNING = "already running"


class Cluster:
    """A cluster by name. The object holds no state: everything is read from the cluster's folder and from /proc.

    Args:
        name: The cluster's name; one folder of state per name.
        environ: Where XDG_STATE_HOME is looked up, and what the processes inherit.
        clock: To wait on.
    """

    def __init__(
        self, name: str = DEFAULT_NAME, *, environ: Mapping[str, str] = os.environ, clock: SystemClock | None = None
    ) -> None:
        self.layout = Layout(home=state_home(environ), name=check_name(name))
        self._environ = environment(environ)
        self._clock = clock or SystemClock()
        self._supervisor = Supervisor(self.layout, self._environ, self._clock)

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig; it exists once the cluster was started."""
        return self.layout.kubeconfig

    def record(self) -> Record | None:
        """Return what was started, None if there is no such cluster."""
        return records.read(self.layout.record)

    def status(self) -> tuple[ComponentStatus, ...]:
        """Return every component as found, in starting order; empty if there is no such cluster."""
        record = self.record()
        if record is None:
            return ()
        trust = self._trust()
        return tuple(self._look(component, trust) for component in self._components(record))

    def up(self, options: Options, binaries: Binaries, *, report: Report | None = None) -> Outcome:
        """Start the cluster, or what of it has died; return when every component answers and pods are admitted.

        Args:
            options: What a new cluster is made of; an existing one must have been started with the same.
            binaries: The programs of a new cluster; an existing one keeps its own.
            report: Where the steps are shown.

        Raises:
            LocalClusterError: A component ended or did not answer in time (the message names its log), or the
                cluster runs with other options.
        """
        processes.check_platform()
        shown = report or Silent()
        with interruptible(), self._locked(shown):
            record = self.record()
            if record is None:
                self._start_new(options, binaries, shown)
                return Outcome.STARTED
            if record.options != options:
                raise LocalClusterError(
                    f"cluster {self.name} was started with other options: berthmaster down --name {self.name} first"
                )
            return self._heal(record, shown)

    def down(self, *, report: Report | None = None) -> bool:
        """End exactly this cluster's processes, wait for each, and remove its folder; False if there was none."""
        shown = report or Silent()
        if not self.layout.root.exists():
            return False
        with self._locked(shown), shown.step(f"Stopping cluster {self.name}", expected_s=2):
            self._clear()
        return True

    def start(self, component: str) -> None:
        """Start one component unless it runs, and wait until it answers."""
        found = self._component(component)
        self._supervisor.spawn_missing([found])
        self._supervisor.wait([found], self._trust(), most_s=_START_S)

    def stop(self, component: str) -> None:
        """End one component in an orderly way and wait until it is gone."""
        self._supervisor.end(self._component(component).name)

    def restart(self, component: str) -> None:
        """Stop and start one component; same port, same data."""
        self.stop(component)
        self.start(component)

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one component's process, as an accident would; a killed one is gone on return."""
        identity = self._supervisor.identity(self._component(component).name)
        if identity is None:
            raise LocalClusterError(f"{component} of cluster {self.name} does not run")
        processes.send(identity, number)
        if number is signal.SIGKILL:
            processes.end([identity], self._clock, grace_s=_GONE_S)

    def log(self, component: str) -> str:
        """Return all that a component has written so far."""
        path = self.layout.log(component)
        return path.read_text(errors="replace") if path.exists() else ""

    def url(self, component: str) -> str:
        """Return the address that a component serves at, without a path."""
        probe = self._component(component).probe
        return f"{'https' if probe.is_tls else 'http'}://127.0.0.1:{probe.port}"

    def _start_new(self, options: Options, binaries: Binaries, report: Report) -> None:
        self._clear()  # the logs of a start that failed
        for folder in (self.layout.root, self.layout.config, self.layout.log("any").parent):
            folder.mkdir(parents=True, mode=0o700)
        pki.write_all(self.layout.pki, now_s=self._clock.now_s())
        with locks.hold(self.layout.home / ".ports.lock", self._clock):
            record = Record(
                ports=ports.choose(PORTS, promised=records.promised_ports(self.layout.home)),
                options=options,
                binaries={name: str(path) for name, path in binaries.paths.items()},
                kubernetes=binaries.kubernetes,
            )
            records.write(self.layout.record, record)
        try:
            write_configuration(self.layout, record.ports, options, kubernetes=record.kubernetes)
            self._start(self._components(record), record, report)
        except BaseException:
            # Nothing half-started stays behind, whatever the reason; the logs do, for whoever asks why.
            self._supervisor.end_all()
            self.layout.record.unlink()
            raise

    def _heal(self, record: Record, report: Report) -> Outcome:
        trust = self._trust()
        found = {component: self._look(component, trust).health for component in self._components(record)}
        broken = [component for component, health in found.items() if health is not Health.RUNNING]
        if not broken and record.is_complete:
            return Outcome.ALREADY_RUNNING
        # The dead first: a process that does not answer may only wait for one of them.
        self._start([component for component in broken if found[component] is Health.DEAD], record, report)
        stuck = [component for component in broken if found[component] is Health.NOT_ANSWERING]
        silent = self._supervisor.silent(stuck, trust, most_s=_SICK_S)
        for component in silent:
            report.note(f"{component.name} runs but does not answer: restarting it")
            self._supervisor.end(component.name)
        if silent:
            self._start(silent, replace(record, is_complete=True), report)
            self._supervisor.wait(broken, trust, most_s=_START_S)
        return Outcome.HEALED

    def _start(self, wanted: Sequence[Component], record: Record, report: Report) -> None:
        """Start what does not run, what others need first; then wait until pods may come.

        kube-scheduler and its companions start beside the application of our manifests, our own processes after it:
        it gives them their rights.
        """
        trust = self._trust()
        ground = [component for component in wanted if component.name in (STORE, API)]
        ours = [component for component in wanted if component.name in (EXTENDER, PLANNER, SCALER, WARMPOOL)]
        rest = [component for component in wanted if component not in ground and component not in ours]
        if ground:
            with report.step(f"Starting {_names(ground)}", expected_s=4):
                self._supervisor.spawn_missing(ground)
                self._supervisor.wait(ground, trust, most_s=_START_S)
        if rest or not record.is_complete:
            with report.step(f"Starting {_names(rest)}" if rest else "Applying the manifests", expected_s=3):
                self._supervisor.spawn_missing(rest)
                if not record.is_complete and record.options.has_policies:
                    self._apply_manifests(record)
                self._supervisor.wait(rest, trust, most_s=_START_S)
                if not record.is_complete:
                    admission.wait_for_pods(
                        record.ports[API],
                        trust,
                        has_policies=record.options.has_policies,
                        clock=self._clock,
                        most_s=_START_S,
                    )
        if ours:
            with report.step(f"Starting {_names(ours)}", expected_s=3):
                self._supervisor.spawn_missing(ours)
                self._supervisor.wait(ours, trust, most_s=_START_S)
        if not record.is_complete:
            records.write(self.layout.record, replace(record, is_complete=True))

    def _apply_manifests(self, record: Record) -> None:
        admission.apply_manifests(
            record.binaries["kubectl"],
            self.kubeconfig,
            log=self.layout.log("manifests"),
            environ=self._environ,
            clock=self._clock,
        )

    def _clear(self) -> None:
        self._supervisor.end_all()
        if self.layout.root.exists():
            shutil.rmtree(self.layout.root)

    def _look(self, component: Component, trust: ssl.SSLContext) -> ComponentStatus:
        identity = self._supervisor.identity(component.name)
        if identity is None:
            health = Health.DEAD
        else:
            health = Health.RUNNING if probes.answers(component.probe, trust) else Health.NOT_ANSWERING
        return ComponentStatus(
            name=component.name,
            health=health,
            pid=identity.pid if identity else None,
            port=component.probe.port,
            log=self.layout.log(component.name),
        )

    def _components(self, record: Record) -> tuple[Component, ...]:
        return components(self.layout, record.ports, record.options, record.binaries)

    def _component(self, name: str) -> Component:
        record = self.record()
        if record is None:
            raise LocalClusterError(f"there is no cluster {self.name}: berthmaster up --name {self.name}")
        for component in self._components(record):
            if component.name == name:
                return component
        raise LocalClusterError(f"cluster {self.name} has no component {name!r}")

    def _trust(self) -> ssl.SSLContext:
        return probes.trust(self.layout.pki)

    def _locked(self, report: Report) -> AbstractContextManager[None]:
        busy = f"Another command is at work on cluster {self.name}: waiting for it"
        return locks.hold(self.layout.lock, self._clock, waiting=lambda: report.note(busy))


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what a cluster's processes inherit of an environment.

    KUBECONFIG is left out: no process may follow the caller's to another cluster. Go's garbage collector runs a third
    as often as by default, unless GOGC says otherwise: it took a fifth of the API server's time.
    """
    return {"GOGC": _GOGC, **{key: value for key, value in environ.items() if key != "KUBECONFIG"}}


def names(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of all clusters of this user, sorted."""
    return tuple(sorted(path.parent.name for path in state_home(environ).glob("*/cluster.json")))


def _names(wanted: Sequence[Component]) -> str:
    return ", ".join(component.name for component in wanted)
