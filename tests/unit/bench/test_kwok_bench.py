"""The benchmark's own parts: what it creates, counts and shows. The cluster it needs is tested elsewhere."""

import asyncio
import os
from typing import Any

import msgspec
import pytest
from rich.console import Console

from bench.kwok import filter_cost, load, proc, speed
from bench.kwok.table import table
from berthmaster.recount import recount
from binpack.controller.triage import Handling, handling
from binpack.server import Listen, Reply, Server, application
from fleet import labels
from fleet.device import AskKind
from fleet.errors import BerthmasterError
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject


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
    one = {
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
