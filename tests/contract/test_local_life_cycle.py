"""A local cluster's life: up twice, accidents, healing, two side by side, and nothing left after down."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from berthmaster.local import ports, processes
from berthmaster.local.binaries import Binaries
from berthmaster.local.cluster import Cluster, Health, Outcome, names
from berthmaster.local.layout import state_home
from fleet.errors import LocalClusterError
from tests.support.cluster import BARE, POLICED, StartCluster, kubectl

pytestmark = pytest.mark.contract

COMPONENTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("life")
    yield started
    started.down()


def pids(cluster: Cluster) -> dict[str, int | None]:
    return {status.name: status.pid for status in cluster.status()}


def dead(cluster: Cluster) -> list[str]:
    return [status.name for status in cluster.status() if status.health is Health.DEAD]


def listening() -> dict[int, set[str]]:
    """Local addresses that each process listens on, by pid (proc(5): net/tcp, state 0A)."""
    inodes: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                inodes[fields[9]] = fields[1].partition(":")[0]
    found: dict[int, set[str]] = {}
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            found.setdefault(int(entry.parts[2]), set()).add(inodes[target[8:-1]])
    return found


def test_up_on_a_running_cluster_does_nothing(cluster: Cluster, binaries: Binaries) -> None:
    before = pids(cluster)
    assert cluster.up(BARE, binaries) is Outcome.ALREADY_RUNNING
    assert pids(cluster) == before


def test_other_options_need_a_new_cluster(cluster: Cluster, binaries: Binaries) -> None:
    with pytest.raises(LocalClusterError, match="started with other options"):
        cluster.up(replace(BARE, has_stock_scheduler=True), binaries)
    assert dead(cluster) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_killed_process_is_named_and_healed_alone(cluster: Cluster, binaries: Binaries, component: str) -> None:
    kubectl(cluster, "create", "configmap", f"before-{component}")
    before = pids(cluster)
    cluster.kill(component)
    assert dead(cluster) == [component]
    assert cluster.up(BARE, binaries) is Outcome.HEALED
    after = pids(cluster)
    assert dead(cluster) == []
    assert after.pop(component) != before.pop(component)
    assert after == before
    assert f"before-{component}" in kubectl(cluster, "get", "configmaps", "-o", "name")


def test_several_killed_at_once_are_healed_together(cluster: Cluster, binaries: Binaries) -> None:
    victims = ["etcd", "kube-apiserver", "kube-scheduler"]
    for component in victims:
        cluster.kill(component)
    assert dead(cluster) == victims
    assert cluster.up(BARE, binaries) is Outcome.HEALED
    assert dead(cluster) == []


def test_a_process_that_hangs_is_named_and_replaced(cluster: Cluster, binaries: Binaries) -> None:
    before = pids(cluster)
    cluster.kill("kwok", signal.SIGSTOP)
    found = {status.name: status.health for status in cluster.status()}
    assert found.pop("kwok") is Health.NOT_ANSWERING
    assert set(found.values()) == {Health.RUNNING}
    assert cluster.up(BARE, binaries) is Outcome.HEALED
    assert pids(cluster)["kwok"] != before["kwok"]


def test_only_loopback_is_listened_on(cluster: Cluster) -> None:
    ours = {pid for pid in pids(cluster).values() if pid}
    addresses = {pid: found for pid, found in listening().items() if pid in ours}
    assert set(addresses) == ours
    assert set().union(*addresses.values()) == {"0100007F"}  # 127.0.0.1, little-endian


def test_restart_keeps_port_and_data(cluster: Cluster) -> None:
    url, before = cluster.url("kube-apiserver"), pids(cluster)["kube-apiserver"]
    cluster.restart("kube-apiserver")
    assert cluster.url("kube-apiserver") == url
    assert pids(cluster)["kube-apiserver"] != before
    assert "default" in kubectl(cluster, "get", "namespaces", "-o", "name")


def test_two_clusters_share_nothing_and_down_leaves_nothing(
    cluster: Cluster, start_cluster: StartCluster, binaries: Binaries
) -> None:
    other = start_cluster("other")
    mine, theirs = cluster.record(), other.record()
    assert mine is not None
    assert theirs is not None
    assert not set(mine.ports.values()) & set(theirs.ports.values())
    kubectl(other, "create", "namespace", "only-there")
    assert "only-there" not in kubectl(cluster, "get", "namespaces", "-o", "name")

    before = pids(cluster)
    other.kill("kube-scheduler")  # a cluster with a dead process must go away as cleanly
    assert other.down() is True
    assert processes.marked(str(other.layout.root)) == ()
    assert all(ports.is_free(port) for port in theirs.ports.values())
    assert not other.layout.root.exists()
    assert not other.layout.lock.exists()
    assert other.name not in names()
    assert other.status() == ()
    assert other.down() is False

    assert pids(cluster) == before
    assert dead(cluster) == []


def test_a_start_that_fails_ends_what_it_started_and_names_the_log(binaries: Binaries) -> None:
    broken = replace(binaries, paths={**binaries.paths, "kwok": Path("/bin/false")})
    cluster = Cluster(f"test-broken-{os.getpid()}")
    try:
        with pytest.raises(LocalClusterError, match=r"kwok ended while starting: see .*kwok\.log"):
            cluster.up(BARE, broken)
        assert processes.marked(str(cluster.layout.root)) == ()
        assert cluster.record() is None
        assert cluster.layout.log("etcd").exists()
    finally:
        cluster.down()
    assert not cluster.layout.root.exists()


def test_a_taken_port_is_named_and_its_owner_left_alone(cluster: Cluster, binaries: Binaries) -> None:
    record = cluster.record()
    assert record is not None
    port = record.ports["kwok"]
    cluster.stop("kwok")
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        with pytest.raises(LocalClusterError, match=f"port {port} of kwok is taken"):
            cluster.up(BARE, binaries)
    assert dead(cluster) == ["kwok"]
    assert cluster.up(BARE, binaries) is Outcome.HEALED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_that_is_interrupted_leaves_no_process(number: signal.Signals) -> None:
    cluster = Cluster(f"test-interrupted-{os.getpid()}")
    command = [sys.executable, "-m", "berthmaster", "up", "--name", cluster.name]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
        try:
            while not processes.marked(str(cluster.layout.root)):
                assert up.poll() is None, up.stderr.read()
            up.send_signal(number)
            up.wait(30)
            assert up.returncode != 0
            assert processes.marked(str(cluster.layout.root)) == ()
            assert cluster.record() is None
        finally:
            up.kill()
            cluster.down()


def test_up_that_is_interrupted_while_it_creates_nodes_ends_the_new_cluster() -> None:
    cluster = Cluster(f"test-nodes-{os.getpid()}")
    command = [sys.executable, "-m", "berthmaster", "up", "--name", cluster.name, "--nodes", "20000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
        try:
            said = ""
            while "Creating 20000 nodes" not in said:
                said += up.stderr.read(1)
            up.send_signal(signal.SIGINT)
            up.wait(60)
            assert up.returncode != 0
            assert cluster.record() is None
            assert processes.marked(str(cluster.layout.root)) == ()
        finally:
            up.kill()
            cluster.down()


def test_no_lock_file_lies_around() -> None:
    assert [path.name for path in state_home(os.environ).glob(".*.lock")] == []


def test_policies_are_in_force_when_up_returns(start_cluster: StartCluster) -> None:
    cluster = start_cluster("policies", POLICED)
    try:
        pod = kubectl(
            cluster,
            *("run", "gated", "--image=none", "-o", "jsonpath={.spec.schedulingGates[*].name}"),
            '--overrides={"spec":{"schedulerName":"berthmaster"}}',
        )
        assert pod == "berthmaster.dev/plan"
    finally:
        cluster.down()
