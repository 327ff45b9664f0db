"""The processes of one cluster: started, waited for, looked at and ended, by their recorded identities."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

import msgspec

from berthmaster.local import ports, probes, processes, records
from berthmaster.local.components import API, STORE, Component
from berthmaster.local.layout import Layout
from berthmaster.local.processes import Identity
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

_PORT_S = 5.0
_GRACE_S = 5.0
_POLL_S = 0.05
_SHOWN_CHARACTERS = 500


class Supervisor:
    """Keeps no state of its own: identities lie in the cluster's folder, and /proc says which of them still run.

    Args:
        layout: The cluster's files; its folder's path marks the processes.
        environ: What the processes inherit.
        clock: To wait on.
    """

    def __init__(self, layout: Layout, environ: Mapping[str, str], clock: SystemClock) -> None:
        self._layout = layout
        self._environ = environ
        self._clock = clock

    def identity(self, component: str) -> Identity | None:
        """Return the component's process if it runs."""
        recorded = self._recorded(component)
        return recorded if recorded is not None and processes.is_alive(recorded) else None

    def spawn_missing(self, wanted: Sequence[Component]) -> None:
        """Start those that do not run.

        Raises:
            LocalClusterError: A port is taken, or a program cannot be started.
        """
        for component in wanted:
            if self.identity(component.name) is None:
                self.end(component.name)  # its children may have outlived it
                self._spawn(component)

    def wait(self, wanted: Sequence[Component], trust: ssl.SSLContext, *, most_s: float) -> None:
        """Wait until all answer.

        Raises:
            LocalClusterError: One ended, or did not answer in time; the message names its log.
        """
        silent = self.silent(wanted, trust, most_s=most_s)
        if silent:
            names = ", ".join(component.name for component in silent)
            logs = ", ".join(str(self._layout.log(component.name)) for component in silent)
            raise LocalClusterError(f"{names} did not answer within {most_s:.0f} s: see {logs}")

    def silent(self, wanted: Sequence[Component], trust: ssl.SSLContext, *, most_s: float) -> list[Component]:
        """Wait until all answer, and return those that do not in time.

        Raises:
            LocalClusterError: One ended; the message names its log.
        """
        deadline_s = self._clock.monotonic_s() + most_s
        left = list(wanted)
        while True:
            left = [component for component in left if not probes.answers(component.probe, trust)]
            for component in left:
                if self.identity(component.name) is None:
                    raise LocalClusterError(f"{component.name} ended while starting: {self._last_words(component)}")
            if not left or self._clock.monotonic_s() > deadline_s:
                return left
            self._clock.sleep_blocking(_POLL_S)

    def end(self, component: str) -> None:
        """End the component's process and whatever it started (the planner's solver, say)."""
        recorded = self._recorded(component)
        if recorded is not None:
            family = [process for process in self._ours() if processes.session_of(process.pid) == recorded.pid]
            processes.end(family, self._clock, grace_s=_GRACE_S)

    def end_all(self) -> None:
        """End everything: the API server after its clients and before its store, because it waits for both."""
        late = {self._recorded(name) for name in (STORE, API)}
        first = [process for process in self._ours() if process not in late]
        processes.end(first, self._clock, grace_s=_GRACE_S)
        for name in (API, STORE):
            self.end(name)
        processes.end(self._ours(), self._clock, grace_s=_GRACE_S)

    def _spawn(self, component: Component) -> None:
        deadline_s = self._clock.monotonic_s() + _PORT_S
        while not ports.is_free(component.probe.port):
            if self._clock.monotonic_s() > deadline_s:
                raise LocalClusterError(
                    f"port {component.probe.port} of {component.name} is taken by a program that is not this cluster's"
                )
            self._clock.sleep_blocking(_POLL_S)
        identity = processes.start(
            component.argv, log=self._layout.log(component.name), mark=self._mark, environ=self._environ
        )
        path = self._layout.process(component.name)
        path.parent.mkdir(exist_ok=True)
        records.write(path, identity)

    def _recorded(self, component: str) -> Identity | None:
        try:
            return msgspec.json.decode(self._layout.process(component).read_bytes(), type=Identity)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _ours(self) -> tuple[Identity, ...]:
        return processes.marked(self._mark)

    @property
    def _mark(self) -> str:
        return str(self._layout.root)

    def _last_words(self, component: Component) -> str:
        log = self._layout.log(component.name)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return f"see {log}" + (f"\n  {lines[-1][:_SHOWN_CHARACTERS]}" if lines else "")
