"""Ends one process after the other, at random, as an accident would, and starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from berthmaster.local.cluster import Cluster
from fleet.clock import Clock

CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
_COMPONENTS = ("planner", "warmpool", "extender", SCHEDULER, CONTROLLER_MANAGER)
_STANDBYS = {
    "planner": ("binpack", "planner"),
    "warmpool": ("warmpool", "controller", "--kwok"),
}
_LONGEST_DEATH_S = 2.0
_LEASE_S = 20.0
_RESTART_S = 6.0


class Standby:
    """A second replica, in the first one's account: who of the two leads is theirs to settle."""

    def __init__(self, cluster: Cluster, component: str) -> None:
        self.name = f"second {component}"
        module, *words = _STANDBYS[component]
        own = cluster.layout.config / f"{component}.kubeconfig"
        self._command = [sys.executable, "-m", module, *words, f"--kubeconfig={own}", "--listen=127.0.0.1:0"]
        self._log = cluster.layout.log(f"{component}-2")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=dict(os.environ)
                )

    def kill(self) -> None:
        """End it at once; it is gone on return."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)


@dataclass(slots=True)
class Kills:
    """Who was ended when, on the observer's clock."""

    cluster: Cluster
    clock: Clock
    draw: random.Random
    done: list[tuple[float, str]] = field(default_factory=list)
    standbys: dict[str, Standby] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def second_replicas(self) -> AsyncIterator[None]:
        """Have a second planner and a second controller of pools while the block runs."""
        self.standbys = {one.name: one for one in (Standby(self.cluster, name) for name in _STANDBYS)}
        try:
            for standby in self.standbys.values():
                standby.start()
            yield
        finally:
            for standby in self.standbys.values():
                standby.kill()

    async def run(self, every_s: float, most: int | None = None) -> None:
        """Kill and restart until cancelled, or so many times; every process once before any a second time."""
        names: list[str] = []
        while most is None or len(self.done) < most:
            await self.clock.sleep(every_s * self.draw.uniform(0.75, 1.25))
            if not names:
                names = [*_COMPONENTS, *self.standbys]
                self.draw.shuffle(names)
            await self.one(names.pop())

    async def one(self, name: str) -> None:
        """Kill one process, and start it again a moment later."""
        standby = self.standbys.get(name)
        self.done.append((self.clock.monotonic_s(), name))
        try:
            await asyncio.to_thread(standby.kill if standby else lambda: self.cluster.kill(name))
            await self.clock.sleep(self.draw.uniform(0.0, _LONGEST_DEATH_S))
        finally:
            await asyncio.shield(asyncio.to_thread(standby.start if standby else lambda: self.cluster.start(name)))

    def heal(self) -> None:
        """Start whatever does not run."""
        for name in _COMPONENTS:
            self.cluster.start(name)
        for standby in self.standbys.values():
            standby.start()

    def is_calm(self, since_s: float, until_s: float) -> bool:
        """Return whether nobody had been killed shortly before or during a time."""
        return not any(since_s - _felt_s(name) <= at_s <= until_s for at_s, name in self.done)


def _felt_s(name: str) -> float:
    """Return how long a kill is felt: whoever leads is followed after a lease, the others start again at once."""
    return _LEASE_S if any(name.endswith(component) for component in _STANDBYS) else _RESTART_S
