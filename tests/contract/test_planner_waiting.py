"""Pods without room on a real control plane: what they say, how soon they are placed, and who is handed over."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from berthmaster.demo.replay import items
from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.clock import SystemClock
from fleet.kube import paths
from tests.contract.conftest import HAND_OVER_S
from tests.support.cluster import kubectl
from tests.support.eventually import eventually, never
from tests.support.quay import POOL, Quay, condition, gates_of, node_of, pins

pytestmark = pytest.mark.contract

GPU, MILLI, CLASSIC = labels.GPU, labels.GPU_MILLI, labels.NVIDIA_GPU
CLOCK = SystemClock()
# The promise is 1 s. What is measured is two events, a batch and a patch; the rest of the allowance is for a machine
# that runs a whole control plane beside it. Without its own mechanism the planner looks again every 30 s only.
AT_ONCE_S = 3.0


async def seconds_until_pinned(quay: Quay, name: str, cause: Callable[[], Awaitable[None]]) -> float:
    await cause()
    since_s = CLOCK.monotonic_s()
    await eventually(lambda: quay.pod(name), lambda pod: not gates_of(pod), every_s=0.01, what=f"{name} is let go")
    return CLOCK.monotonic_s() - since_s


def metric(harbour: Cluster, name: str, **found: str) -> float:
    with urllib.request.urlopen(harbour.url("planner") + "/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and found.items() <= sample.labels.items()
    )


async def fill(quay: Quay) -> None:
    """Take the only GPU and most of the cores of the pool `room`."""
    quay.pool = "room"
    await quay.add_pod("first", {GPU: "1", "cpu": "6"})
    await quay.bound("first")


async def test_a_waiting_pod_says_why_with_the_numbers_in_condition_event_and_metric(
    quay: Quay, harbour: Cluster
) -> None:
    await fill(quay)
    before = metric(harbour, "berthmaster_pods_waiting", reason="Insufficient")
    await quay.add_pod("waits", {GPU: "1", "cpu": "5", "memory": "2Gi"})
    text = await quay.says("waits", "Insufficient")
    assert text.startswith("needs 1 free device on one node, 5 cores and 2 GiB: best node room-0000 lacks ")
    assert "3 cores" in text
    assert "1 free device" in text
    assert "cannot be handed over" in text
    (event,) = await eventually(lambda: quay.events("waits"), what="an event")
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Insufficient", text)
    assert metric(harbour, "berthmaster_pods_waiting", reason="Insufficient") == before + 1
    assert gates_of(await quay.pod("waits")) == [labels.PLAN_GATE]
    shown = kubectl(harbour, "-n", quay.namespace, "describe", "pod", "waits")
    assert "best node room-0000 lacks" in shown


@pytest.mark.parametrize(
    ("pool", "request_", "reason", "words"),
    [
        pytest.param("nowhere", {GPU: "1"}, "NoNodeAllowed", "selector", id="no node allowed"),
        pytest.param("room", {GPU: "2"}, "NoSuchDevice", "none of 1 allowed nodes has 2", id="no such device"),
        pytest.param("plain", {MILLI: "10"}, "NoSuchDevice", "none of 2 allowed nodes", id="no devices at all"),
        pytest.param("room", {GPU: "1", "cpu": "9"}, "Insufficient", "lacks 1 core", id="too few cores"),
    ],
)
async def test_the_reason_is_the_right_one(
    quay: Quay, pool: str, request_: dict[str, str], reason: str, words: str
) -> None:
    quay.pool = pool
    await quay.add_pod("waits", request_)
    assert words in await quay.says("waits", reason)


async def test_a_pod_is_placed_at_once_when_another_leaves(quay: Quay) -> None:
    await fill(quay)
    await quay.add_pod("waits", {GPU: "1"})
    await quay.says("waits", "Insufficient")
    took_s = await seconds_until_pinned(quay, "waits", lambda: quay.delete_pod("first"))
    assert took_s < AT_ONCE_S, f"pinned {took_s:.3f} s after the deletion was answered"
    await eventually(
        lambda: quay.pod("waits"),
        lambda pod: condition(pod).get("status") == "False",
        what="the condition is taken back",
    )


async def test_a_pod_is_placed_at_once_when_a_node_opens_or_grows(quay: Quay) -> None:
    quay.pool = "room"
    await quay.patch_node("room-0000", {"spec": {"unschedulable": True}})
    await quay.add_pod("waits", {GPU: "1"})
    await quay.says("waits", "NoNodeAllowed")
    took_s = await seconds_until_pinned(
        quay, "waits", lambda: quay.patch_node("room-0000", {"spec": {"unschedulable": None}})
    )
    assert took_s < AT_ONCE_S, f"pinned {took_s:.3f} s after the node was opened"


async def test_a_pod_is_placed_at_once_when_a_node_joins(quay: Quay, harbour: Cluster) -> None:
    """The node carries the not-ready taint until the node controller has seen it; only then it has room."""
    quay.pool = "joins"
    await quay.add_pod("waits", {GPU: "1"})
    await quay.says("waits", "NoNodeAllowed")
    record = harbour.record()
    assert record is not None
    (node,) = fake_nodes.uniform(1, is_sharing=True, prefix="joins", gpus=1)
    manifest = fake_nodes.manifest(node, now_s=CLOCK.now_s(), kubelet=record.kubernetes)
    manifest["metadata"]["labels"][POOL] = "joins"  # type: ignore[index]
    await quay.create(paths.NODES, manifest)

    async def open_since() -> bool:
        found = await quay.client.get(paths.node("joins-0000"))
        return b"not-ready" not in found

    took_s = await seconds_until_pinned(quay, "waits", lambda: eventually(open_since, every_s=0.01, what="no taint"))
    assert took_s < AT_ONCE_S, f"pinned {took_s:.3f} s after the node was free of taints"
    await quay.bound("waits")
    await quay.delete_pod("waits")
    await quay.client.delete(paths.node("joins-0000"))


async def test_a_wish_that_is_changed_is_heard_at_once(quay: Quay) -> None:
    quay.pool = "room"
    await quay.add_pod("picky", {GPU: "1"}, annotations={labels.GPU_MODELS: "B200"})
    await quay.says("picky", "NoSuchDevice")
    took_s = await seconds_until_pinned(
        quay, "picky", lambda: quay.patch_pod("picky", {"metadata": {"annotations": {labels.GPU_MODELS: "B200,G2"}}})
    )
    assert took_s < AT_ONCE_S, f"pinned {took_s:.3f} s after the models were changed"


async def test_many_that_wait_are_placed_as_room_appears_and_none_beyond_it(quay: Quay) -> None:
    await fill(quay)
    for i in range(12):
        await quay.add_pod(f"share-{i:02d}", {MILLI: "200"})
    await eventually(
        quay.pods, lambda pods: sum(condition(pod).get("status") == "True" for pod in pods) == 12, what="all say so"
    )
    await quay.delete_pod("first")
    await quay.all_bound(5, within_s=AT_ONCE_S + 2.0)
    await never(
        quay.pods, lambda pods: sum(map(bool, map(node_of, pods))) > 5, for_s=0.5, what="more than the card has"
    )
    assert (await quay.recount()).faults == ()


async def test_a_node_whose_devices_may_not_be_given_says_so(quay: Quay) -> None:
    quay.pool = "room"
    await quay.patch_node("room-0000", {"metadata": {"annotations": {labels.UNHEALTHY_DEVICES: ","}}})
    try:

        async def told() -> list[dict[str, object]]:
            events = await items(quay.client, paths.events("default"))
            ours = [event for event in events if event.get("reportingController") == f"{labels.DOMAIN}/planner"]
            return [event for event in ours if event["regarding"]["name"] == "room-0000"]

        (event,) = await eventually(told, what="an event on the node")
        assert event["reason"] == "DevicesClosed"
        assert "is not a list of devices" in str(event["note"])
        await quay.add_pod("waits", {GPU: "1"})
        assert "healthy" in await quay.says("waits", "NoSuchDevice")
    finally:
        await quay.patch_node("room-0000", {"metadata": {"annotations": {labels.UNHEALTHY_DEVICES: None}}})
    await quay.bound("waits", within_s=AT_ONCE_S)


# -- hand-over -------------------------------------------------------------------------------------------------


async def test_a_whole_gpu_pod_is_handed_over_after_the_setting(quay: Quay) -> None:
    quay.pool = "full"
    await quay.add_pod("whole", {CLASSIC: "3"})
    created_s = CLOCK.monotonic_s()
    text = await quay.says("whole", "HandedOver", within_s=HAND_OVER_S + 10.0)
    assert CLOCK.monotonic_s() - created_s >= HAND_OVER_S - 0.5
    assert "node autoscaler" in text
    pod = await quay.pod("whole")
    assert gates_of(pod) == []
    assert pins(pod) == []
    assert labels.CANDIDATES not in pod["metadata"].get("annotations", {})
    # What a node autoscaler looks for: kube-scheduler's own word that there is no room.
    await eventually(
        lambda: quay.pod("whole"),
        lambda pod: condition(pod, "PodScheduled").get("reason") == "Unschedulable",
        what="kube-scheduler says so",
    )
    await eventually(
        lambda: quay.events("whole"),
        lambda events: "HandedOver" in [event["reason"] for event in events],
        what="the event is recorded",
    )


async def test_a_cpu_pod_is_handed_over_too_and_runs_when_kube_scheduler_finds_room(quay: Quay) -> None:
    quay.pool = "room"
    await quay.patch_node("room-0000", {"spec": {"unschedulable": True}})
    try:
        await quay.add_pod("cpu", {"cpu": "1"})
        await quay.says("cpu", "HandedOver", within_s=HAND_OVER_S + 10.0)
    finally:
        await quay.patch_node("room-0000", {"spec": {"unschedulable": None}})
    await quay.bound("cpu")
    await eventually(
        lambda: quay.pod("cpu"), lambda pod: condition(pod).get("status") == "False", what="the condition is taken back"
    )


async def test_shares_and_chosen_devices_are_not_handed_over_and_say_why(quay: Quay) -> None:
    quay.pool = "nowhere"
    await asyncio.gather(quay.add_pod("share", {MILLI: "300"}), quay.add_pod("chosen", {GPU: "1"}))
    for name in ("share", "chosen"):
        assert "cannot be handed over to a node autoscaler" in await quay.says(name, "NoNodeAllowed")

    async def both() -> list[str]:
        return [gate for pod in await quay.pods() for gate in gates_of(pod)]

    await never(both, lambda gates: len(gates) < 2, for_s=HAND_OVER_S + 2.0, what="a share was let go")


# -- the process -----------------------------------------------------------------------------------------------


async def test_a_planner_that_stood_still_goes_on_where_it_was(quay: Quay, harbour: Cluster) -> None:
    """Stopped for a moment, shorter than its lease: what came meanwhile is placed, and nobody else led."""
    quay.pool = "shown"
    epoch = kubectl(harbour, "-n", labels.NAMESPACE, "get", "lease", "berthmaster-planner", "-o=jsonpath={.spec}")
    harbour.kill("planner", signal.SIGSTOP)
    try:
        for i in range(4):
            await quay.add_pod(f"late-{i}", {GPU: "1"})
    finally:
        harbour.kill("planner", signal.SIGCONT)
    await quay.all_bound(4)
    assert (await quay.recount()).faults == ()
    after = kubectl(harbour, "-n", labels.NAMESPACE, "get", "lease", "berthmaster-planner", "-o=jsonpath={.spec}")
    assert holder(after) == holder(epoch)


def holder(spec: str) -> str:
    return spec.partition('"holderIdentity":"')[2].partition('"')[0]


async def test_nobody_spins_while_pods_wait(quay: Quay, harbour: Cluster) -> None:
    await fill(quay)
    for i in range(20):
        await quay.add_pod(f"waits-{i}", {GPU: "1"})
    await eventually(
        quay.pods, lambda pods: sum(condition(pod).get("status") == "True" for pod in pods) == 20, what="all say so"
    )
    plans = metric(harbour, "berthmaster_plans_total")
    seconds = cpu_seconds(harbour)
    versions = {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await quay.pods()}
    await CLOCK.sleep(3.0)
    assert metric(harbour, "berthmaster_plans_total") == plans
    assert {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await quay.pods()} == versions
    spent = cpu_seconds(harbour) - seconds
    assert spent < 0.5, f"{spent:.2f} s of CPU in 3 s of waiting"


def cpu_seconds(harbour: Cluster) -> float:
    """CPU time of the planner so far, proc(5): fields 14 and 15."""
    (pid,) = [status.pid for status in harbour.status() if status.name == "planner"]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
