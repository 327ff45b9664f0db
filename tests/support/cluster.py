"""Real control planes for the contract tests: session-wide, on loopback, gone at the end whatever happens."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import click
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.binaries import Binaries, ensure
from berthmaster.local.cluster import Cluster, names
from berthmaster.local.components import Options
from berthmaster.local.progress import Lines, Silent
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError
from fleet.kube.client import Client
from fleet.kube.credentials import Connection, connection
from fleet.node import Node

# etcd, API server, controller manager, scheduler and kwok: nothing of ours runs, no policy is in force.
BARE = Options(has_extender=False, has_planner=False, has_scaler=False, has_warmpool=False, has_policies=False)

# The same with our definitions, rights and policies in force.
POLICED = Options(has_extender=False, has_planner=False, has_scaler=False, has_warmpool=False)

StartCluster = Callable[..., Cluster]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test: a quarter of an hour belongs to no test and no test's time-out."""
    needed = any("binaries" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        try:
            with capture.global_and_fixture_disabled():
                ensure(Lines(lambda text: click.echo(text, nl=False, file=sys.stderr), SystemClock()))
        except LocalClusterError as error:
            pytest.exit(f"the control plane for the tests cannot be built: {error}", returncode=1)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of the control plane; all are there when the first test runs."""
    return ensure(Silent())


@pytest.fixture(scope="session")
def start_cluster(binaries: Binaries) -> Iterator[StartCluster]:
    """Start a cluster of a test's own: `start_cluster("short-name", Options(...))`; all end with the session at last.

    End it yourself with `.down()` when the test is over: each costs half a gigabyte of memory.
    """
    _end_abandoned()
    started: list[Cluster] = []

    def start(name: str, options: Options = BARE) -> Cluster:
        cluster = Cluster(f"test-{name}-{os.getpid()}")
        started.append(cluster)
        cluster.up(options, binaries)
        return cluster

    try:
        yield start
    finally:
        for cluster in started:
            cluster.down()


@pytest.fixture(scope="session")
def control_plane(start_cluster: StartCluster) -> Cluster:
    """One bare control plane that all contract tests share: use a namespace and node names of your own."""
    return start_cluster("shared", BARE)


def access(cluster: Cluster, client: str = "admin") -> Connection:
    """Return a connection as the administrator, or as `planner` or `extender` (their ServiceAccounts)."""
    own = cluster.layout.config / f"{client}.kubeconfig"
    return connection(str(cluster.kubeconfig if client == "admin" else own))


@contextlib.asynccontextmanager
async def client_of(cluster: Cluster, client: str = "admin") -> AsyncIterator[Client]:
    """Open an API client of the cluster."""
    async with Client(access(cluster, client), SystemClock()) as opened:
        yield opened


async def add_nodes(cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Create fake nodes (`fake_nodes.uniform`, `a_node`) and wait until pods may be placed on them."""
    clock, link = SystemClock(), access(cluster)
    record = cluster.record()
    assert record is not None
    await fake_nodes.create(link, nodes, clock=clock, kubelet=record.kubernetes, tell=lambda ratio, words: None)
    await fake_nodes.wait_ready(
        link, [node.name for node in nodes], clock=clock, most_s=120.0, tell=lambda ratio, words: None
    )


def kubectl(cluster: Cluster, *arguments: str, text: str | None = None) -> str:
    """Run kubectl as the administrator and return what it prints; `text` is its standard input."""
    record = cluster.record()
    assert record is not None
    program = Path(record.binaries["kubectl"])
    cache = cluster.layout.root / "kubectl-cache"
    done = subprocess.run(
        [str(program), f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={cache}", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def with_kubectl(cluster: Cluster, script: str, *, folder: Path) -> None:
    """Run a shell script in a folder, whose `kubectl` is the administrator's."""
    record = cluster.record()
    assert record is not None
    programs = folder / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(record.binaries["kubectl"])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _end_abandoned() -> None:
    """End what a killed test run left behind: its clusters carry its pid in their names."""
    for name in names():
        run = name.rpartition("-")[2]
        if name.startswith("test-") and run.isdigit() and not Path("/proc", run).exists():
            Cluster(name).down()
