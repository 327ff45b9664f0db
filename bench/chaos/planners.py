"""Two planners, and who of them leads: pauses, deaths, and the time in which nobody does."""

from __future__ import annotations

import signal
import subprocess
import sys

import msgspec

from berthmaster.local.cluster import Cluster, environment
from berthmaster.local.components import PLANNER
from berthmaster.local.supervisor import Supervisor
from fleet import labels
from fleet.clock import SystemClock
from fleet.kube import paths
from fleet.kube.client import Client

LEASE = "berthmaster-planner"
_SECOND = "second"


class Planners:
    """The cluster's own planner, and a second one in its account; either may lead.

    Args:
        cluster: Runs.
        clock: To wait on.
    """

    def __init__(self, cluster: Cluster, clock: SystemClock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._second: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start whoever does not run."""
        self._cluster.start(PLANNER)
        if self._second is None or self._second.poll() is not None:
            own = self._cluster.layout.config / f"{PLANNER}.kubeconfig"
            command = [sys.executable, "-P", "-m", "binpack", PLANNER, f"--kubeconfig={own}", "--listen=127.0.0.1:0"]
            with self._cluster.layout.log(f"{PLANNER}-2").open("ab") as log:
                self._second = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env={**environment(), "POD_NAME": _SECOND},
                )

    def end(self) -> None:
        """End the second one; the first is the cluster's."""
        if self._second is not None:
            self._second.kill()
            self._second.wait(20)

    def _pid(self, *, is_second: bool) -> int | None:
        if is_second:
            return self._second.pid if self._second is not None and self._second.poll() is None else None
        first = Supervisor(self._cluster.layout, environment(), self._clock).identity(PLANNER)
        return None if first is None else first.pid

    def pids(self) -> tuple[int, ...]:
        """Return the processes that run."""
        return tuple(pid for pid in (self._pid(is_second=False), self._pid(is_second=True)) if pid is not None)

    async def leader(self, client: Client) -> tuple[str, str, int | None]:
        """Return the lease's holder ("" = nobody), its version, and the holder's process; None = it does not run."""
        lease = msgspec.json.decode(await client.get(f"{paths.leases(labels.NAMESPACE)}/{LEASE}"))
        holder = str(lease["spec"].get("holderIdentity") or "")
        return holder, str(lease["metadata"]["resourceVersion"]), self._pid(is_second=holder.startswith(f"{_SECOND}_"))

    def send(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to one of the two; a killed one is gone on return."""
        if self._second is not None and pid == self._second.pid:
            self._second.send_signal(number)
            if number is signal.SIGKILL:
                self._second.wait(20)
        elif pid in self.pids():
            self._cluster.kill(PLANNER, number)
