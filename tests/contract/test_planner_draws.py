"""Warm nodes on a real cluster: claimed, pinned, bound; missed and owned; and no node drawn twice whoever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from fleet import labels
from fleet.claim import Claim, format_claim, parse_claim
from fleet.clock import SystemClock
from fleet.constraints import Taint
from fleet.draw import parse_draw
from fleet.errors import ApiError
from fleet.kube import paths
from tests.support.cluster import StartCluster, add_nodes, client_of, kubectl
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, gates_of, node_of, note

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
IMAGE = "reg.example/llm:1"
GPU = {labels.NVIDIA_GPU: "1"}
RUNS_LLM = {"image": IMAGE}


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("draws", Options(has_scaler=False, has_warmpool=False))
    asyncio.run(add_nodes(started, fake_nodes.uniform(1, is_sharing=False, prefix="plain", gpus=0)))
    yield started
    started.down()


@pytest.fixture
async def quay(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Quay]:
    name = request.node.name.replace("_", "-")[5:40].strip("-")
    async with client_of(cluster) as client:
        opened = Quay(client, name, name)
        await opened.open()
        yield opened
        await opened.close()
    await CLOCK.sleep(0.25)  # TLS connections that broke off end in their own time


async def warm(cluster: Cluster, quay: Quay, count: int, *, gpus: int = 1) -> list[str]:
    """Make nodes of a pool as its controller does: born closed, then proven warm."""
    of_pool = Taint(key=labels.POOL, value=quay.pool)
    taints = (of_pool, Taint(key=f"{labels.READINESS_PREFIX}{quay.pool}"))
    nodes = [
        replace(node, labels={POOL: quay.pool, labels.POOL: quay.pool}, taints=taints)
        for node in fake_nodes.uniform(count, is_sharing=False, prefix=quay.pool, gpus=gpus, milli_cpu=64_000)
    ]
    await add_nodes(cluster, nodes)
    left = [{"key": of_pool.key, "value": of_pool.value, "effect": of_pool.effect}]
    for node in nodes:
        await quay.patch_node(node.name, {"metadata": {"annotations": {labels.WARM: IMAGE}}, "spec": {"taints": left}})
    return [node.name for node in nodes]


async def node_json(quay: Quay, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await quay.client.get(paths.node(name)))
    return found


async def test_replicas_share_a_claimed_node(cluster: Cluster, quay: Quay) -> None:
    (name,) = await warm(cluster, quay, 1, gpus=2)
    for pod in ("a", "b"):
        await quay.add_pod(pod, GPU, container=RUNS_LLM)
    pods = await quay.all_bound(2)
    assert {node_of(pod) for pod in pods} == {name}
    claim = parse_claim(note(await node_json(quay, name), labels.CLAIM))
    assert claim.is_firm
    assert set(claim.pods) == {pod["metadata"]["uid"] for pod in pods}
    for pod in pods:
        assert any(one.get("key") == labels.POOL for one in pod["spec"]["tolerations"])
        draw = parse_draw(note(pod, labels.DRAW))
        assert (draw.pool, draw.is_hit, draw.why) == (quay.pool, True, name)


async def test_a_pool_owns_the_miss_until_a_node_is_warm(cluster: Cluster, quay: Quay) -> None:
    pool = {
        "apiVersion": f"{labels.DOMAIN}/{labels.POOL_VERSION}",
        "kind": labels.POOL_KIND,
        "metadata": {"name": quay.pool},
        "spec": {
            "shape": {"devices": {"count": 1}},
            "images": [{"reference": IMAGE}],
            "size": {"max": 2},
            "provider": {"kind": "adopt"},
            "mode": "act",
        },
    }
    kubectl(cluster, "apply", "-f", "-", text=json.dumps(pool))
    try:
        await CLOCK.sleep(1.0)
        await quay.add_pod("early", GPU, container=RUNS_LLM)
        assert f"no warm node in pool {quay.pool}" in await quay.says("early", "NoWarmNode")
        draw = parse_draw(note(await quay.pod("early"), labels.DRAW))
        assert (draw.pool, draw.is_hit) == (quay.pool, False)
        await quay.add_pod("other", GPU)
        await quay.says("other", "NoNodeAllowed")  # none of its images lies there: not the pool's to wait for
        (name,) = await warm(cluster, quay, 1)
        early = await quay.bound("early")
        assert node_of(early) == name
        assert not parse_draw(note(early, labels.DRAW)).is_hit, "the first answer counts"
        await what_a_person_asks(cluster, quay, name)
    finally:
        kubectl(cluster, "delete", "warmpool", quay.pool, "--wait=false")


async def ask(cluster: Cluster, *arguments: str) -> str:
    """Run the command as a person does, and return what it prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "berthmaster", *arguments, f"--kubeconfig={cluster.kubeconfig}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


async def what_a_person_asks(cluster: Cluster, quay: Quay, node: str) -> None:
    text = await ask(cluster, "explain", "pool", quay.pool)
    assert "goal: 99 % of draws find a warm node" in text
    assert f"{node}: nothing is told of it yet; firm claim for 1 pods" in text
    found = json.loads(await ask(cluster, "explain", "pool", quay.pool, "--json"))
    assert [(one["name"], one["open"]) for one in found["nodes"]] == [(node, False)]
    (row,) = json.loads(await ask(cluster, "top", "--json"))["warmpools"]
    assert (row["pool"], row["mode"], row["is_well"]) == (quay.pool, "act", False)
    assert "warm pool" in await ask(cluster, "top", "--once")
    start = json.loads(await ask(cluster, "explain", "start", f"{quay.namespace}/early", "--json"))
    assert start["draw"] == {"pool": quay.pool, "outcome": "miss", "why": "NoNodes"}
    assert start["partsSeconds"]["wait"] is not None
    advice = json.loads(await ask(cluster, "pools", "advise", "--json"))
    assert [pool["serves"] for pool in advice["today"]] == [[quay.pool]]
    assert any("hours were watched" in told for told in advice["notes"])


async def test_the_planner_may_change_nothing_of_a_node_but_the_claim(cluster: Cluster, quay: Quay) -> None:
    (name,) = await warm(cluster, quay, 1)
    claim = format_claim(Claim(set_id="s", pods=("u",), token="t"))
    async with client_of(cluster, "planner") as planner:
        for change in (
            {"spec": {"taints": []}},
            {"spec": {"unschedulable": True}},
            {"metadata": {"labels": {"x": "y"}}},
            {"metadata": {"annotations": {labels.WARM: None}}},
            {"metadata": {"annotations": {"x": "y", labels.CLAIM: claim}}},
        ):
            with pytest.raises(ApiError) as refused:
                await planner.merge_patch(paths.node(name), json.dumps(change).encode())
            assert refused.value.status == 403, change
        for text in (claim, None):
            body = json.dumps({"metadata": {"annotations": {labels.CLAIM: text}}}).encode()
            await planner.merge_patch(paths.node(name), body)


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


async def test_no_node_is_drawn_twice_and_none_is_lost_whoever_is_killed(cluster: Cluster, quay: Quay) -> None:
    count, draw = 24, random.Random(5)
    names = await warm(cluster, quay, count)

    async def come() -> None:
        for number in range(count + 6):
            await quay.add_pod(f"p{number:02d}", GPU, container=RUNS_LLM)
            await CLOCK.sleep(0.05)

    with standby(cluster) as replica:
        for _ in range(3):
            coming = asyncio.create_task(come()) if _ == 0 else None
            await CLOCK.sleep(draw.uniform(0.1, 0.6))
            await asyncio.to_thread(cluster.kill, "planner")
            await asyncio.to_thread(cluster.start, "planner")
            if coming is not None:
                await coming
        pods = await quay.all_bound(count, within_s=90.0)
        assert replica.poll() is None
    bound = [pod for pod in pods if node_of(pod)]
    assert sorted(map(node_of, bound)) == sorted(names), "one pod on each node"
    for pod in bound:
        claim = parse_claim(note(await node_json(quay, node_of(pod)), labels.CLAIM))
        assert claim.is_firm
        assert pod["metadata"]["uid"] in claim.pods

    async def rest() -> list[dict[str, Any]]:
        return [pod for pod in await quay.pods() if not node_of(pod)]

    waiting = await eventually(rest, lambda found: len(found) == 6, what="the others wait")
    assert all(gates_of(pod) for pod in waiting)
    assert (await quay.recount()).faults == ()
