"""Accidents: every process dies in turn under load, watches are lost, and the planner stays away for good."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from binpack.controller.release import GATE_POLICIES, RECORD_POLICIES
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError, Conflict
from tests.support.cluster import StartCluster, add_nodes, client_of, kubectl
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, condition, gates_of, held, node_of

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
GPU, MILLI, MIB, CLASSIC = labels.GPU, labels.GPU_MILLI, labels.GPU_MEMORY_MIB, labels.NVIDIA_GPU
SHARING_GPUS, CLASSIC_GPUS = 40, 8
PODS = 400
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("accidents", Options())
    nodes = [
        *fake_nodes.uniform(SHARING_GPUS // 4, is_sharing=True, prefix="share", gpus=4, milli_cpu=64_000),
        *fake_nodes.uniform(CLASSIC_GPUS // 4, is_sharing=False, prefix="whole", gpus=4, milli_cpu=64_000),
    ]
    asyncio.run(add_nodes(started, [replace(node, labels={POOL: "all"}) for node in nodes]))
    yield started
    started.down()


@pytest.fixture
async def quay(cluster: Cluster) -> AsyncIterator[Quay]:
    async with client_of(cluster) as client:
        opened = Quay(client, f"accident-{next(_NUMBERS)}", "all")
        await opened.open()
        yield opened
        await opened.close()
    await CLOCK.sleep(0.25)  # TLS connections that broke off end in their own time


@contextlib.contextmanager
def standby(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """A second replica of the planner, in the same account; its log goes beside the others."""
    command = [sys.executable, "-m", "binpack", "planner", "--listen=127.0.0.1:0"]
    own = cluster.layout.config / "planner.kubeconfig"
    with cluster.layout.log("standby").open("ab") as log:
        replica = subprocess.Popen([*command, f"--kubeconfig={own}"], stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield replica
        finally:
            replica.terminate()
            replica.wait(20)


def leader(cluster: Cluster) -> str:
    lease = kubectl(cluster, "-n", labels.NAMESPACE, "get", "lease", "berthmaster-planner", "-o", "json")
    return str(json.loads(lease)["spec"].get("holderIdentity", ""))


def ask(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "berthmaster", *arguments, f"--kubeconfig={cluster.kubeconfig}"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def wishes(count: int) -> list[dict[str, str]]:
    """Return what a mixed day asks for: more than there is, so that some must wait."""
    draw = random.Random(7)
    kinds = [
        {MILLI: "100", "cpu": "200m"},
        {MILLI: "250", MIB: "8000", "cpu": "500m"},
        {MILLI: "500", "cpu": "1"},
        {"cpu": "1"},
        {GPU: "1", "cpu": "2"},
        {CLASSIC: "1", "cpu": "1"},
        {GPU: "4", "cpu": "2"},
    ]
    return draw.choices(kinds, weights=[30, 20, 15, 20, 8, 3, 1], k=count)


async def create_all(quay: Quay, pods: list[dict[str, str]], rate_s: float) -> None:
    """Create pods one after another, through whatever accidents, each exactly once."""
    for number, requests in enumerate(pods):
        is_owned = number % 5 > 0
        while True:
            try:
                await quay.add_pod(f"p{number:04d}", requests, is_owned=is_owned)
            except Conflict:
                break  # it was created, and the answer was lost
            except ApiError:
                await CLOCK.sleep(0.3)
                continue
            break
        await CLOCK.sleep(rate_s)


async def settled(quay: Quay, count: int) -> dict[str, int]:
    """Wait until each pod is bound, or says why it waits; return how many of each."""

    async def stand() -> dict[str, int]:
        found = {"bound": 0, "waiting": 0, "lost": 0}
        for pod in await quay.pods():
            told = condition(pod)
            waits = told.get("status") == "True" and (gates_of(pod) or told["reason"] == "HandedOver")
            found["bound" if node_of(pod) else "waiting" if waits else "lost"] += 1
        return found

    return await eventually(
        stand,
        lambda found: found["lost"] == 0 and sum(found.values()) == count,
        within_s=45.0,
        every_s=0.3,
        what="every pod is bound or says why not",
    )


async def sound(quay: Quay) -> None:
    count = await quay.recount()
    assert count.faults == ()


async def again_sound(quay: Quay) -> None:
    """As soon as the API answers, nothing may be held twice."""

    async def look() -> tuple[str, ...] | None:
        try:
            return (await quay.recount()).faults
        except ApiError:
            return None

    faults = await eventually(look, lambda faults: faults is not None, within_s=30.0, what="the API answers")
    assert faults == ()


async def test_every_process_dies_in_turn_while_pods_come_and_none_is_lost(cluster: Cluster, quay: Quay) -> None:
    with standby(cluster) as replica:
        creating = asyncio.create_task(create_all(quay, wishes(PODS), rate_s=0.02))
        try:
            for victim in (
                "kube-scheduler",
                "extender",
                "kwok",
                "kube-controller-manager",
                "kube-apiserver",
                "etcd",
                "planner",
            ):
                await CLOCK.sleep(1.0)
                await asyncio.to_thread(cluster.kill, victim)
                await asyncio.to_thread(cluster.start, victim)
                await again_sound(quay)
            await creating
        finally:
            creating.cancel()
        found = await settled(quay, PODS)
        await sound(quay)
        assert replica.poll() is None
    assert found["bound"] > PODS / 2
    assert found["waiting"] > 0, "the load is beyond the cluster"
    # Nobody waits who could be placed, and who is waiting is still being looked after.
    plan = json.loads((await asyncio.to_thread(ask, cluster, "plan", "--dry-run", "--solve-s=0", "--json")).stdout)
    assert plan["placements"] == []
    assert len(plan["unplaced"]) <= found["waiting"]
    whole = next(pod for pod in await quay.pods() if node_of(pod) and held([pod]))
    await quay.delete_pod(whole["metadata"]["name"])
    await quay.all_bound(found["bound"], within_s=10.0)
    await settled(quay, PODS - 1)
    await sound(quay)
    for name in ("planner", "standby", "extender"):
        faults = [line for line in cluster.log(name).splitlines() if '"level":"error"' in line or "Traceback" in line]
        assert faults == [], name


async def test_a_watch_that_fell_behind_a_new_api_server_is_caught_up(cluster: Cluster, quay: Quay) -> None:
    """Planner and extender sleep while pods come and the API server starts anew: their versions are too old (410)."""
    for process in ("planner", "extender"):
        cluster.kill(process, signal.SIGSTOP)
    try:
        for i in range(10):
            await quay.add_pod(f"unseen-{i}", {MILLI: "100"})
        await quay.delete_pod("unseen-0")
        await asyncio.to_thread(cluster.kill, "kube-apiserver")
        await asyncio.to_thread(cluster.start, "kube-apiserver")
    finally:
        for process in ("planner", "extender"):
            cluster.kill(process, signal.SIGCONT)
    pods = await quay.all_bound(9, within_s=45.0)
    assert "unseen-0" not in [pod["metadata"]["name"] for pod in pods]
    await sound(quay)


async def test_a_planner_that_ends_in_order_hands_over_at_once(cluster: Cluster, quay: Quay) -> None:
    with standby(cluster):
        before = leader(cluster)
        cluster.stop("planner")
        try:
            await quay.add_pod("after", {MILLI: "100"})
            await quay.bound("after", within_s=10.0)  # far less than the lease of 15 s
            assert leader(cluster) not in ("", before)
        finally:
            cluster.start("planner")


# -- a planner that stays away -----------------------------------------------------------------------------------


async def test_pods_can_be_released_while_the_planner_is_away(cluster: Cluster, quay: Quay) -> None:
    cluster.stop("planner")
    await quay.add_pod("queued", {"cpu": "100m"})
    await quay.add_pod("shared", {MILLI: "100"})
    await quay.add_pod("held", {"cpu": "100m"}, schedulingGates=[{"name": "example.com/later"}])
    elsewhere = Quay(quay.client, f"{quay.namespace}-too", "all")
    await elsewhere.open()
    await elsewhere.add_pod("queued", {"cpu": "100m"})
    try:
        one = ask(cluster, "release", "--namespace", elsewhere.namespace, "--json")
        assert json.loads(one.stdout) == {"released": 1, "failed": {}, "others": {}}
        assert gates_of(await quay.pod("queued")) == [labels.PLAN_GATE]
        await elsewhere.bound("queued")
        everywhere = ask(cluster, "release", "--all")
        assert everywhere.returncode == 0
        assert "3 pods released" in everywhere.stdout
        assert [gates_of(pod) for pod in await quay.pods()] == [["example.com/later"], [], []]
        await quay.bound("queued")
        # Nobody gave it devices, so the extender lets it go nowhere.
        await eventually(
            lambda: quay.pod("shared"),
            lambda pod: condition(pod, "PodScheduled").get("reason") == "Unschedulable",
            what="a share that was never planned is not placed",
        )
        await quay.add_pod("later", {"cpu": "100m"})
        assert gates_of(await quay.pod("later")) == [labels.PLAN_GATE]
        assert ask(cluster, "release").returncode == 2
    finally:
        await elsewhere.close()


async def test_a_cluster_whose_planner_died_can_be_left_by_uninstall(cluster: Cluster, quay: Quay) -> None:
    """The planner is killed and stays dead, ten minutes or a week: nothing here depends on how long.

    Pods are created without pause while it goes on: an API server learns of the policy's end a moment late, and what it
    gates until then must be let go too.
    """
    with contextlib.suppress(Exception):
        cluster.kill("planner")
    stopped = False

    async def create_for_ever() -> int:
        for number in itertools.count():
            if stopped:
                return number
            await quay.add_pod(f"meanwhile-{number:04d}", {"cpu": "10m"})
            await CLOCK.sleep(0.02)
        return 0

    for i in range(40):
        await quay.add_pod(f"queued-{i:02d}", {"cpu": "10m"} if i % 2 else {MILLI: "10"})
    assert all(gates_of(pod) == [labels.PLAN_GATE] for pod in await quay.pods())
    creating = asyncio.create_task(create_for_ever())
    try:
        done = await asyncio.to_thread(ask, cluster, "uninstall", "--yes")
    finally:
        stopped = True
        created = await creating
    assert done.returncode == 0, done.stderr
    assert created > 10
    assert [gates_of(pod) for pod in await quay.pods() if gates_of(pod)] == []
    left = kubectl(
        cluster,
        "get",
        "mutatingadmissionpolicies,mutatingadmissionpolicybindings,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings",
        "-o=name",
    )
    # What holds one controller of ours to its task goes with the rest; what stands in others' way goes now.
    assert not {line.rpartition("/")[2] for line in left.split()} & {*GATE_POLICIES, *RECORD_POLICIES}
    fresh = await quay.add_pod("fresh", {"cpu": "10m"})
    assert gates_of(fresh) == []
    assert fresh["spec"]["schedulerName"] == "default-scheduler"
    await quay.bound("fresh")
    await quay.bound("queued-01")
    again = ask(cluster, "uninstall", "--yes", "--json")
    assert json.loads(again.stdout) == {"released": 0, "failed": {}, "others": {}}
    assert os.environ.get("KUBECONFIG") is None or "accidents" not in os.environ["KUBECONFIG"]
