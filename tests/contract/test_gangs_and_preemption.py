"""Gangs, seats and preemption on the real control plane: all or none, no budget broken, nothing lost with a leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from binpack.controller.writer import Outcome, PodWriter
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError
from fleet.kube import paths
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from tests.support.cluster import StartCluster, add_nodes, client_of
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, condition, node_of, note
from tests.support.rights import is_allowed

pytestmark = [pytest.mark.contract, pytest.mark.slow]

CLOCK = SystemClock()
ONE = {labels.GPU: "1", "cpu": "1"}
URGENT = "urgent"
FINALIZER = "tests.berthmaster.dev/lingers"
# pool: (nodes, GPUs of each)
POOLS = {"quad": (4, 1), "group": (4, 1), "pair": (2, 1), "held": (1, 1), "threes": (2, 3), "torn": (3, 1)}
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    started = start_cluster("gangs", Options(has_scaler=False, has_warmpool=False, has_pod_groups=True))
    nodes = [
        replace(node, labels={POOL: pool})
        for pool, (many, gpus) in POOLS.items()
        for node in fake_nodes.uniform(many, is_sharing=True, prefix=pool, gpus=gpus, model="G2", milli_cpu=16_000)
    ]

    async def prepare() -> None:
        await add_nodes(started, nodes)
        async with client_of(started) as client:
            body = {"metadata": {"name": URGENT}, "value": 1000}
            await client.create("/apis/scheduling.k8s.io/v1/priorityclasses", json.dumps(body).encode())

    asyncio.run(prepare())
    yield started
    started.down()


@pytest.fixture
async def quays(cluster: Cluster) -> AsyncIterator[Any]:
    """Open a namespace with pods for the nodes of a pool."""
    opened: list[Quay] = []
    async with client_of(cluster) as client:

        async def open_quay(pool: str) -> Quay:
            quay = Quay(client, f"gangs-{next(_NUMBERS)}", pool)
            await quay.open()
            opened.append(quay)
            return quay

        yield open_quay
        for quay in opened:
            await quay.close()


async def add_member(quay: Quay, name: str, gang: str, size: int, **words: Any) -> None:
    marks = {labels.GANG: gang, labels.GANG_SIZE: str(size), "app": name}
    meta = quay.pod_json(name, metadata={"labels": marks})["metadata"]
    await quay.add_pod(name, words.pop("requests", ONE), metadata=meta, **words)


async def add_marked(quay: Quay, name: str, **words: Any) -> None:
    meta = quay.pod_json(name, metadata={"labels": {"app": name}, **words.pop("meta", {})})["metadata"]
    await quay.add_pod(name, ONE, metadata=meta, **words)


def bound(pods: list[dict[str, Any]], letter: str) -> int:
    return sum(bool(node_of(pod)) for pod in pods if pod["metadata"]["name"].startswith(letter))


async def sound(quay: Quay) -> None:
    assert (await quay.recount()).faults == ()


async def test_a_gang_waits_for_its_last_member_and_is_bound_as_a_whole(quays: Any) -> None:
    quay = await quays("quad")
    for i in range(3):
        await add_member(quay, f"p{i}", "train", 4)
    for i in range(3):
        await quay.says(f"p{i}", "GangIncomplete")
    assert await said_again(quay, "p0", "3 so far") == "gang train needs 4 members at once; there are 3 so far"
    await add_member(quay, "p3", "train", 4)
    await quay.all_bound(4)
    await sound(quay)


async def test_two_gangs_never_share_the_cluster_half_and_half(quays: Any) -> None:
    quay = await quays("quad")
    for i in range(4):
        await add_member(quay, f"a{i}", "a", 4)
        await add_member(quay, f"b{i}", "b", 4)

    async def counts() -> tuple[int, int]:
        pods = await quay.pods()
        return bound(pods, "a"), bound(pods, "b")

    found = await eventually(counts, lambda both: max(both) == 4, within_s=30.0, what="one gang stands")
    assert min(found) == 0
    first, other = ("a", "b") if found[0] else ("b", "a")
    text = await quay.says(f"{other}0", "GangDoesNotFit")
    assert "fits nowhere" in text or "members fit at once" in text
    assert all(
        labels.SEAT not in pod["metadata"].get("annotations", {}) for pod in await quay.pods() if not node_of(pod)
    )
    for i in range(4):
        await quay.delete_pod(f"{first}{i}")
    await eventually(counts, lambda both: both[other == "b"] == 4, within_s=30.0, what="the other gang follows")
    await sound(quay)


async def test_a_gang_that_fits_by_sum_only_is_told_so_and_lets_others_pass(quays: Any) -> None:
    quay = await quays("threes")
    for i in range(3):
        await add_member(quay, f"p{i}", "wide", 3, requests={labels.GPU: "2", "cpu": "1"})
    text = await quay.says("p0", "GangDoesNotFit")
    assert "2 of 3 members fit at once: 6 GPUs" in text
    await quay.add_pod("small", {labels.GPU: "3", "cpu": "1"})
    await quay.bound("small")


async def test_a_pod_group_of_kubernetes_is_a_gang(quays: Any) -> None:
    quay = await quays("group")
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    path = f"/apis/{labels.POD_GROUP_API}/namespaces/{quay.namespace}/{labels.POD_GROUP_PLURAL}"
    for i in range(3):
        await quay.add_pod(f"p{i}", ONE, schedulingGroup={"podGroupName": "train"})
    assert "PodGroup train is not there" in await quay.says("p0", "GangIncomplete")
    await quay.create(path, {"metadata": {"name": "train"}, "spec": spec})
    assert "needs 4 members at once; there are 3 so far" in await said_again(quay, "p0", "there are 3 so far")
    await quay.add_pod("p3", ONE, schedulingGroup={"podGroupName": "train"})
    await quay.all_bound(4)
    await sound(quay)


async def said_again(quay: Quay, name: str, words: str) -> str:
    async def text() -> str:
        return str(condition(await quay.pod(name)).get("message", ""))

    return await eventually(text, lambda found: words in found, within_s=45.0, what=f"{name} says {words}")


async def test_an_urgent_pod_takes_the_place_that_no_budget_protects(quays: Any) -> None:
    quay = await quays("pair")
    for name in ("guarded", "free"):
        await add_marked(quay, name)
    await quay.all_bound(2)
    places = {name: node_of(await quay.pod(name)) for name in ("guarded", "free")}
    await guard(quay, "guarded")
    await add_marked(quay, URGENT, priorityClassName=URGENT)
    pod = await quay.bound(URGENT, within_s=40.0)
    assert node_of(pod) == places["free"]
    assert note(pod, labels.SEAT).startswith(f"{places['free']}=")
    assert node_of(await quay.pod("guarded")) == places["guarded"]
    assert await quay.pod("free") == {}
    reasons = {event["reason"] for event in await quay.events("free")}
    assert "Preempted" in reasons
    await sound(quay)


async def test_a_gang_loses_its_surplus_and_then_goes_as_a_whole(quays: Any) -> None:
    quay = await quays("torn")
    for i in range(3):
        await add_member(quay, f"p{i}", "train", 2)
    await quay.all_bound(3)
    await add_marked(quay, "first", priorityClassName=URGENT)
    await quay.bound("first", within_s=40.0)
    left = [pod["metadata"]["name"] for pod in await quay.pods() if pod["metadata"]["name"].startswith("p")]
    assert len(left) == 2
    await guard(quay, left[0])
    await add_marked(quay, "second", priorityClassName=URGENT)
    await quay.says("second", "Insufficient")
    await CLOCK.sleep(3.0)  # several looks
    assert bound(await quay.pods(), "p") == 2
    await quay.client.delete(f"/apis/policy/v1/namespaces/{quay.namespace}/poddisruptionbudgets/{left[0]}")
    await quay.bound("second", within_s=60.0)
    await eventually(quay.pods, lambda pods: not bound(pods, "p"), within_s=30.0, what="the gang is gone")
    told = [event["note"] for name in left for event in await quay.events(name) if event["reason"] == "Preempted"]
    assert len(told) == 2
    assert sum(note.startswith("goes with others of its gang") for note in told) == 1
    await sound(quay)


async def guard(quay: Quay, app: str) -> None:
    """Let nobody evict the pod with this label."""
    path = f"/apis/policy/v1/namespaces/{quay.namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": app}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}}
    await quay.create(path, body)

    async def status() -> dict[str, Any]:
        return dict(json.loads(await quay.client.get(f"{path}/{app}")).get("status", {}))

    await eventually(
        status, lambda found: found.get("currentHealthy") == 1 and found.get("disruptionsAllowed") == 0, within_s=30.0
    )


async def test_nobody_is_evicted_where_every_place_is_protected(quays: Any) -> None:
    quay = await quays("pair")
    for name in ("one", "two"):
        await add_marked(quay, name)
    await quay.all_bound(2)
    for name in ("one", "two"):
        await guard(quay, name)
    await add_marked(quay, URGENT, priorityClassName=URGENT)
    await quay.says(URGENT, "Insufficient")
    await CLOCK.sleep(3.0)  # several looks
    assert {node_of(await quay.pod(name)) for name in ("one", "two")} == {
        node_of(pod) for pod in await quay.pods() if node_of(pod)
    }
    assert note(await quay.pod(URGENT), labels.SEAT) == ""


async def test_a_seat_outlives_the_planner_and_is_given_to_nobody_else(cluster: Cluster, quays: Any) -> None:
    quay = await quays("held")
    await add_marked(quay, "slow", meta={"finalizers": [FINALIZER]})
    place = node_of(await quay.bound("slow"))
    await add_marked(quay, URGENT, priorityClassName=URGENT)
    await quay.says(URGENT, "SeatAwaited", within_s=40.0)
    await eventually(
        lambda: quay.pod("slow"), lambda pod: "deletionTimestamp" in pod["metadata"], within_s=30.0, what="it leaves"
    )
    cluster.kill("planner")
    await add_marked(quay, "rival", priorityClassName=URGENT)
    await quay.patch_pod("slow", {"metadata": {"finalizers": None}})
    await eventually(lambda: quay.pod("slow"), lambda pod: not pod, within_s=30.0, what="it is gone")
    cluster.start("planner")
    assert node_of(await quay.bound(URGENT, within_s=60.0)) == place
    await quay.says("rival", "Insufficient", within_s=40.0)
    await sound(quay)


async def test_a_leader_killed_while_a_gang_is_seated_leaves_no_torn_gang(cluster: Cluster, quays: Any) -> None:
    quay = await quays("quad")
    for round_number in range(2):
        gang = f"g{round_number}"
        for i in range(4):
            await add_member(quay, f"{gang}-{i}", gang, 4)
        await eventually(quay.pods, some_seat, within_s=30.0, every_s=0.01, what="a seat or a pin is written")
        cluster.kill("planner")
        cluster.start("planner")
        await quay.all_bound(4, within_s=60.0)
        await sound(quay)
        for i in range(4):
            await quay.delete_pod(f"{gang}-{i}")
        await eventually(quay.pods, lambda pods: not pods, within_s=30.0, what="the gang is gone")


def some_seat(pods: list[dict[str, Any]]) -> bool:
    return any(note(pod, labels.SEAT) or node_of(pod) for pod in pods)


async def test_only_the_planner_writes_seats(quays: Any) -> None:
    quay = await quays("group")
    await quay.add_pod("mine", {labels.GPU: "8"})
    await quay.says("mine", "NoSuchDevice")
    with pytest.raises(ApiError) as denied:
        await quay.patch_pod("mine", {"metadata": {"annotations": {labels.SEAT: "group-0=0"}}})
    assert denied.value.status in (403, 422)
    assert labels.SEAT in str(denied.value)


async def test_the_planner_may_evict_and_list_and_no_more(quays: Any) -> None:
    quay = await quays("group")
    planner = f"system:serviceaccount:{labels.NAMESPACE}:berthmaster-planner"

    async def may(verb: str, group: str, kind: str) -> bool:
        return await is_allowed(quay.client, planner, verb, group, kind, "x", quay.namespace)

    assert await may("create", "", "pods/eviction")
    assert await may("watch", "scheduling.k8s.io", "podgroups")
    assert await may("list", "", "namespaces")
    assert await may("list", "policy", "poddisruptionbudgets")
    for verb, group, kind in (
        ("patch", "", "namespaces"),
        ("patch", "scheduling.k8s.io", "podgroups"),
        ("patch", "policy", "poddisruptionbudgets"),
        ("create", "", "pods"),
        ("get", "", "secrets"),
    ):
        assert not await may(verb, group, kind), (verb, kind)


async def test_past_a_budget_a_pod_says_that_it_is_disrupted_before_it_goes(cluster: Cluster, quays: Any) -> None:
    """As the planner does where its operator allows it, under its own account."""
    quay = await quays("held")
    await add_marked(quay, "guarded", meta={"finalizers": [FINALIZER]})
    await quay.bound("guarded")
    await guard(quay, "guarded")
    async with client_of(cluster, "planner") as client:
        writer = PodWriter(client)
        now = datetime.fromtimestamp(CLOCK.now_s(), UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )  # the API takes back one that is two minutes old
        victim = pod_from(msgspec.json.decode(await client.get(paths.pod(quay.namespace, "guarded")), type=PodObject))
        assert (await writer.evict(victim))[0] is Outcome.REFUSED
        outcome = await writer.disrupt(victim, message="makes room for x", at=now)
        assert outcome == (Outcome.DONE, "")
    pod = await quay.pod("guarded")
    assert "deletionTimestamp" in pod["metadata"]
    told = condition(pod, "DisruptionTarget")
    assert (told["status"], told["reason"], told["message"]) == ("True", "PreemptionByScheduler", "makes room for x")
