"""One local cluster, from nothing to running, healed, looked at and gone."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import msgspec

from berthmaster.local import locks, pki, ports, probes, processes
from berthmaster.local.components import API, PORTS, STORE, Component, Options, components, write_configuration
from berthmaster.local.layout import DEFAULT_NAME, Layout, check_name, state_home
from berthmaster.local.processes import Identity
from berthmaster.local.progress import Report, Silent
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

_START_S = 60.0
_SICK_S = 10.0
_GRACE_S = 10.0
_POLL_S = 0.05


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What was started; written before the first process, completed when all answer and the policies stand."""

    ports: dict[str, int]
    options: Options
    binaries: dict[str, str]
    kubernetes: str
    is_complete: bool = False


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
        self._environ = {key: value for key, value in environ.items() if key != "KUBECONFIG"}
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig; it exists once the cluster was started."""
        return self.layout.kubeconfig

    def record(self) -> Record | None:
        """Return what was started, None if there is no such cluster.

        Raises:
            LocalClusterError: The record cannot be read.
        """
        try:
            content = self.layout.record.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=Record)
        except msgspec.DecodeError as error:
            raise LocalClusterError(f"{self.layout.record} cannot be read ({error}): run berthmaster down") from error

    def url(self, component: str, path: str = "") -> str:
        """Return the address of a component's port, for its metrics, say."""
        record = self._recorded()
        scheme = "https" if component.startswith("kube-") else "http"
        return f"{scheme}://127.0.0.1:{record.ports[component]}{path}"

    def status(self) -> tuple[ComponentStatus, ...]:
        """Return every component as found, in starting order; empty if there is no such cluster."""
        record = self.record()
        if record is None:
            return ()
        trust = self._trust()
        return tuple(self._look(component, record, trust) for component in self._components(record))

    def up(
        self,
        options: Options,
        *,
        binaries: Mapping[str, Path],
        kubernetes: str,
        report: Report | None = None,
    ) -> Outcome:
        """Start the cluster, or what of it has died; return when every component answers.

        Args:
            options: What a new cluster is made of; an existing one must have been started with the same.
            binaries: Path by program name.
            kubernetes: Version that fake nodes show as their kubelet's.
            report: Where the steps are shown.

        Raises:
            LocalClusterError: A component ended or did not answer in time (the message names its log), or the
                cluster runs with other options.
        """
        processes.check_platform()
        shown = report or Silent()
        with self._locked(shown):
            record = self.record()
            if record is None:
                self._start_new(options, binaries, kubernetes, shown)
                return Outcome.STARTED
            if record.options != options:
                raise LocalClusterError(
                    f"cluster {self.name!r} was started with other options: berthmaster down --name {self.name} first"
                )
            return self._heal(record, shown)

    def down(self, *, report: Report | None = None) -> bool:
        """End exactly this cluster's processes, wait for each, and remove its folder; False if there was none."""
        shown = report or Silent()
        if not self.layout.root.exists():
            return False
        with self._locked(shown), shown.step(f"Stopping cluster {self.name}", expected_s=2):
            self._end_all()
            shutil.rmtree(self.layout.root)
        return True

    def start(self, component: str) -> None:
        """Start one component that does not run, and wait until it answers."""
        record = self._recorded()
        found = self._component(component, record)
        self._spawn(found)
        self._await([found], _START_S)

    def stop(self, component: str) -> None:
        """End one component in an orderly way and wait until it is gone."""
        self._end_one(component)

    def restart(self, component: str) -> None:
        """Stop and start one component; same port, same data."""
        self.stop(component)
        self.start(component)

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one component's process, as an accident would; waits until it is gone if that ends it."""
        identity = self._identity(component)
        if identity is None:
            raise LocalClusterError(f"{component} of cluster {self.name!r} does not run")
        processes.send(identity, number)
        if number is signal.SIGKILL:
            processes.end([identity], self._clock, grace_s=_GRACE_S)

    def log(self, component: str) -> str:
        """Return all that a component has written so far."""
        path = self.layout.log(component)
        return path.read_text(errors="replace") if path.exists() else ""

    def _start_new(self, options: Options, binaries: Mapping[str, Path], kubernetes: str, report: Report) -> None:
        if self.layout.root.exists():  # logs of a start that failed
            self._end_all()
            shutil.rmtree(self.layout.root)
        for folder in (self.layout.root, self.layout.config, self.layout.record.parent / "logs"):
            folder.mkdir(parents=True, mode=0o700)
        pki.write_all(self.layout.pki, now_s=self._clock.now_s())
        with locks.hold(self.layout.home / ".ports.lock", self._clock):
            record = Record(
                ports=ports.choose(PORTS, promised=promised(self.layout.home)),
                options=options,
                binaries={name: str(path) for name, path in binaries.items()},
                kubernetes=kubernetes,
            )
            self._write(record)
        write_configuration(self.layout, record.ports, options, kubernetes=kubernetes)
        try:
            self._start_missing(self._components(record), report)
            self._finish(record, report)
        except BaseException:
            # Nothing half-started stays behind, whatever the reason; the logs do, for whoever asks why.
            self._end_all()
            self.layout.record.unlink()
            raise

    def _heal(self, record: Record, report: Report) -> Outcome:
        trust = self._trust()
        everything = self._components(record)
        looks = {component.name: self._look(component, record, trust) for component in everything}
        broken = [component for component in everything if looks[component.name].health is not Health.RUNNING]
        if not broken and record.is_complete:
            return Outcome.ALREADY_RUNNING
        silent = [c for c in broken if looks[c.name].health is Health.NOT_ANSWERING]
        for component in self._unanswered(silent, _SICK_S):
            report.note(f"{component.name} runs but does not answer: restarting it")
            self._end_one(component.name)
        self._start_missing(broken, report)
        self._finish(record, report)
        return Outcome.HEALED

    def _start_missing(self, wanted: Sequence[Component], report: Report) -> None:
        """Start what does not run: etcd and the API server first, the rest together once these answer."""
        first = [component for component in wanted if component.name in (STORE, API)]
        rest = [component for component in wanted if component.name not in (STORE, API)]
        for group in (first, rest):
            if not group:
                continue
            with report.step("Starting " + ", ".join(c.name for c in group), expected_s=5):
                for component in group:
                    if self._identity(component.name) is None:
                        self._end_one(component.name)  # its children may have outlived it
                        self._spawn(component)
                self._await(group, _START_S)

    def _finish(self, record: Record, report: Report) -> None:
        self._write(replace(record, is_complete=True))

    def _spawn(self, component: Component) -> None:
        record = self._recorded()
        port = record.ports[component.name]
        deadline_s = self._clock.monotonic_s() + _SICK_S
        while not ports.is_free(port):
            if self._clock.monotonic_s() > deadline_s:
                raise LocalClusterError(f"port {port} of {component.name} is taken by another program")
            self._clock.sleep_blocking(_POLL_S)
        identity = processes.start(
            component.argv, log=self.layout.log(component.name), mark=str(self.layout.root), environ=self._environ
        )
        path = self.layout.process(component.name)
        path.parent.mkdir(exist_ok=True)
        _write_whole(path, msgspec.json.encode(identity))

    def _await(self, wanted: Sequence[Component], most_s: float) -> None:
        left = self._unanswered(wanted, most_s)
        if left:
            names = ", ".join(component.name for component in left)
            logs = ", ".join(str(self.layout.log(component.name)) for component in left)
            raise LocalClusterError(f"{names} did not answer within {most_s:.0f} s: see {logs}")

    def _unanswered(self, wanted: Sequence[Component], most_s: float) -> list[Component]:
        """Wait until all answer; return those that do not in time.

        Raises:
            LocalClusterError: One of them ended.
        """
        trust = self._trust()
        deadline_s = self._clock.monotonic_s() + most_s
        left = list(wanted)
        while left:
            left = [component for component in left if not probes.answers(component.probe, trust)]
            for component in left:
                if self._identity(component.name) is None:
                    raise LocalClusterError(
                        f"{component.name} ended while starting: see {self.layout.log(component.name)}"
                        f"{_last_line(self.log(component.name))}"
                    )
            if not left or self._clock.monotonic_s() > deadline_s:
                break
            self._clock.sleep_blocking(_POLL_S)
        return left

    def _look(self, component: Component, record: Record, trust: ssl.SSLContext) -> ComponentStatus:
        identity = self._identity(component.name)
        if identity is None:
            health = Health.DEAD
        else:
            health = Health.RUNNING if probes.answers(component.probe, trust) else Health.NOT_ANSWERING
        return ComponentStatus(
            name=component.name,
            health=health,
            pid=identity.pid if identity else None,
            port=record.ports[component.name],
            log=self.layout.log(component.name),
        )

    def _recorded_identity(self, component: str) -> Identity | None:
        try:
            return msgspec.json.decode(self.layout.process(component).read_bytes(), type=Identity)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _identity(self, component: str) -> Identity | None:
        """Return the recorded process if it still runs."""
        identity = self._recorded_identity(component)
        return identity if identity is not None and processes.is_alive(identity) else None

    def _end_one(self, component: str) -> None:
        """End the component's process and whatever it started (the planner's solver, say)."""
        recorded = self._recorded_identity(component)
        if recorded is None:
            return
        ours = processes.marked(str(self.layout.root))
        family = [process for process in ours if processes.session_of(process.pid) == recorded.pid]
        processes.end(family, self._clock, grace_s=_GRACE_S)

    def _end_all(self) -> None:
        """End everything: the API server after its clients and before its store, because it waits for both."""
        late = {self._recorded_identity(name) for name in (STORE, API)}
        ours = processes.marked(str(self.layout.root))
        processes.end([process for process in ours if process not in late], self._clock, grace_s=_GRACE_S)
        for name in (API, STORE):
            self._end_one(name)
        processes.end(processes.marked(str(self.layout.root)), self._clock, grace_s=_GRACE_S)

    def _components(self, record: Record) -> tuple[Component, ...]:
        return components(self.layout, record.ports, record.options, record.binaries)

    def _component(self, name: str, record: Record) -> Component:
        for component in self._components(record):
            if component.name == name:
                return component
        raise LocalClusterError(f"cluster {self.name!r} has no component {name!r}")

    def _recorded(self) -> Record:
        record = self.record()
        if record is None:
            raise LocalClusterError(f"there is no cluster {self.name!r}: berthmaster up --name {self.name}")
        return record

    def _trust(self) -> ssl.SSLContext:
        return probes.trust(self.layout.pki)

    def _write(self, record: Record) -> None:
        _write_whole(self.layout.record, msgspec.json.encode(record))

    @contextmanager
    def _locked(self, report: Report) -> Iterator[None]:
        busy = f"Another command is at work on cluster {self.name}: waiting for it"
        with locks.hold(self.layout.lock, self._clock, waiting=lambda: report.note(busy)):
            yield


def promised(home: Path) -> set[int]:
    """Return the ports that the records of all clusters under `home` name."""
    found: set[int] = set()
    for path in home.glob("*/cluster.json"):
        try:
            found.update(msgspec.json.decode(path.read_bytes(), type=Record).ports.values())
        except (OSError, msgspec.DecodeError):
            continue  # being removed, or broken: `down` of that cluster says so
    return found


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return f"\n  {lines[-1][:500]}" if lines else ""
