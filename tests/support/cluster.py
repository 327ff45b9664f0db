"""Real control planes for the contract tests: session-wide, on loopback, gone at the end whatever happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from berthmaster.local.binaries import Binaries, ensure
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.progress import Lines
from fleet.clock import SystemClock

# etcd, API server, controller manager, scheduler and kwok: nothing of ours runs, no policy is in force.
BARE = Options(has_extender=False, has_planner=False, has_policies=False)

StartCluster = Callable[[str, Options], Cluster]


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The programs of the control plane; the first run builds what is missing, and shows it."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return ensure(Lines(lambda text: click.echo(text, nl=False, file=sys.stderr), SystemClock()))


@pytest.fixture(scope="session")
def start_cluster(binaries: Binaries) -> Iterator[StartCluster]:
    """Start a cluster of a test's own: `start_cluster("short-name", Options(...))`; all are ended with the session."""
    started: list[Cluster] = []

    def start(name: str, options: Options = BARE) -> Cluster:
        cluster = Cluster(f"test-{name}-{os.getpid()}")
        started.append(cluster)
        cluster.up(options, binaries=binaries.paths, kubernetes=binaries.kubernetes)
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
