"""The benchmark's own parts: what it creates, counts and shows. The cluster it needs is tested elsewhere."""

import asyncio
import io
import itertools
import os
from typing import Any

import msgspec
import pytest
from rich.console import Console

from bench.kwok import filter_cost, load, packing, proc, speed, writes
from bench.kwok.ground import Side
from bench.kwok.table import table
from berthmaster.recount import recount
from binpack.controller.triage import Handling, handling
from binpack.server import Listen, Reply, Server, application
from fleet import labels
from fleet.device import AskKind
from fleet.errors import BerthmasterError
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from tests.support.clock import ManualClock


def test_its_pods_may_be_pinned_and_ask_for_one_classic_device():
    obj = load.pod_object("model-1", "bench", "uid-of-owner")
    obj["metadata"]["uid"] = "u1"
    obj["spec"]["schedulingGates"] = [{"name": labels.PLAN_GATE}]
    pod = pod_from(msgspec.convert(obj, PodObject))
    assert handling(pod) is Handling.PIN
    assert pod.ask is not None
    assert (pod.ask.kind, pod.ask.count) == (AskKind.CLASSIC, 1)


def test_a_pod_too_many_on_a_node_is_a_fault():
    amounts = {"cpu": "96", "memory": "512Gi", "pods": "250", labels.NVIDIA_GPU: "8"}
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": amounts, "capacity": amounts}}
    pods = [load.pod_object(f"p{i}", "bench", "u", node="n1") for i in range(9)]
    assert recount([node], pods[:8]).faults == ()
    assert recount([node], pods).faults == ("node n1 is given 9 of 8 nvidia.com/gpu",)


def test_own_memory_and_parent_are_read():
    memory = proc.memory_mb(os.getpid())
    assert 5 < memory["pss_mb"] <= memory["rss_mb"] <= memory["peak_rss_mb"] < 10_000
    assert proc.parent(os.getpid()) == os.getppid()
    assert proc.cpu_s(os.getpid()) > 0


def test_a_process_that_is_gone_counts_nothing():
    gone = 2**22 + 1  # above the largest pid there can be
    assert (proc.cpu_s(gone), proc.parent(gone), proc.memory_mb(gone)) == (0.0, None, {})


def test_the_cost_of_a_write_is_shared_among_its_pods_and_shown_by_process():
    spent: writes.Spent = {}
    with writes._counted(spent, "pin", {"kube-apiserver": os.getpid(), "etcd": 2**22 + 1}, pods=10):
        until_s = proc.cpu_s(os.getpid()) + 0.05
        while proc.cpu_s(os.getpid()) < until_s:
            pass
    (parts,) = spent["pin"]
    assert 4.0 < parts["kube-apiserver"] < 50.0
    assert parts["etcd"] == 0.0
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(writes._table({"pin": [{"kube-apiserver": 1.0, "etcd": 0.25}, {"kube-apiserver": 3.0, "etcd": 0.5}]}))
    shown = console.export_text()
    assert all(number in shown for number in ("2.00", "1.00", "0.38", "0.25"))


def a_run(side: str, rate: float, **cpu: float) -> dict[str, Any]:
    return {"side": side, "pods_per_s": rate, "p50_s": 1.0, "p99_s": 2.0, "cpu_ms_per_pod": cpu, "faults": []}


def test_processor_time_is_split_between_the_scheduling_side_and_the_rest():
    runs = [
        a_run("berthmaster", rate, **{"kube-scheduler": 1.0, "planner": 0.5, "extender": 0.25, "etcd": 3.0})
        for rate in (90.0, 110.0, 100.0)
    ]
    medians = speed._medians(runs)
    assert medians["pods_per_s"] == 100.0
    assert medians["scheduling_cpu_ms_per_pod"] == 1.75
    assert medians["other_cpu_ms_per_pod"] == 3.0


def shown(found: dict[str, Any]) -> str:
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(table(found))
        return console.export_text()


def test_the_table_says_what_was_reached_and_names_every_fault():
    stock, ours = a_run("stock", 100.0), a_run("berthmaster", 75.0)
    ours |= {"filter_p50_ms": 0.1, "filter_p99_ms": 0.3, "faults": ["device n1/0 is given twice"]}
    calm = a_run("berthmaster", 37.0) | {"created_per_s": 37.5, "target_p99_s": 3.0, "is_reached": True}
    calm["faults"] = ["pod p is lost"]
    one = {
        "rival": "stock",
        "at_half_the_rate": calm,
        "nodes": 1000,
        "full_nodes": 0,
        "ratio_pods_per_s": {"pairs": [0.75], "median": 0.75},
        "target_ratio": 0.8,
        "is_reached": False,
        "medians": {"stock": speed._medians([stock]), "berthmaster": speed._medians([ours])},
        "runs": [stock, ours],
    }
    text = shown({"speed": [one]})
    assert "0.75x" in text
    assert ">= 0.8x" in text
    assert "no" in text.split(">= 0.8x")[1].splitlines()[0]
    assert "FAULT 1000 nodes, berthmaster: device n1/0 is given twice" in text
    assert "FAULT 1000 nodes, at half the rate: pod p is lost" in text
    assert "at 38 pods/s" in text


def test_both_schedulers_are_given_the_same_openb_pods_in_their_own_words():
    machines = packing.nodes()
    wanted = packing.pods(machines)
    capacity = sum(len(node.devices) for node in machines)
    assert len(machines) == 152
    asked = sum(pod.ask.total_milli_gpu for pod in wanted if pod.ask) / (1000 * capacity)
    assert 1.05 < asked <= 1.1
    share = next(pod for pod in wanted if pod.ask and not pod.ask.is_whole)
    whole = next(pod for pod in wanted if pod.ask and pod.ask.is_whole)
    fraction = packing._object(share, Side.KAI, "u")
    assert float(fraction["metadata"]["annotations"]["gpu-fraction"]) == share.ask.milli_gpu / 1000
    assert labels.NVIDIA_GPU not in fraction["spec"]["containers"][0]["resources"]["limits"]
    for pod in (share, whole):
        mine, theirs = (packing._object(pod, side, "u") for side in (Side.OURS, Side.KAI))
        requests = [one["spec"]["containers"][0]["resources"]["requests"] for one in (mine, theirs)]
        assert [one["cpu"] for one in requests] == [requests[0]["cpu"]] * 2
        assert theirs["spec"]["schedulerName"] == "kai-scheduler"
    assert packing._object(whole, Side.KAI, "u")["spec"]["containers"][0]["resources"]["limits"] == {
        labels.NVIDIA_GPU: str(whole.ask.count)
    }


async def test_a_pace_lets_pods_through_one_by_one_and_never_in_a_burst():
    clock = ManualClock(monotonic_s=0.0)
    pace = load.Pace(clock, 10.0)
    through_s: list[float] = []

    async def create(count: int) -> None:
        for _ in range(count):
            await pace.wait()
            through_s.append(clock.monotonic_s())

    first = asyncio.create_task(create(3))
    await clock.advance(5.0)  # then nobody asks for a while
    await first
    then = [asyncio.create_task(create(1)) for _ in range(4)]
    await clock.advance(5.0)
    assert all(task.done() for task in then)
    gaps = [after - before for before, after in itertools.pairwise(through_s)]
    assert through_s[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert gaps[3:] == pytest.approx([0.1] * 3), "what was missed is not caught up"


async def test_the_bare_client_reads_a_whole_answer_and_refuses_an_error():
    body = b"x" * 200_000

    async def answer(asked: bytes) -> Reply:
        return Reply(body=asked + body, status=200 if asked == b"{}" else 500)

    async with Server(application({"/filter": answer}), Listen(host="127.0.0.1", port=0)) as server:
        assert await asyncio.to_thread(filter_cost._ask_once, server.port, b"{}") == b"{}" + body
        with pytest.raises(BerthmasterError, match="answered"):
            await asyncio.to_thread(filter_cost._ask_once, server.port, b"no")
        ours_s, null_s = await asyncio.to_thread(filter_cost._alternate, server.port, server.port, b"{}", 5)
    assert len(ours_s) == len(null_s) == 5
    assert min(*ours_s, *null_s) > 0
