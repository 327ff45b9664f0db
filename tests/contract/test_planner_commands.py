"""explain, plan, top: what they say of a real cluster, as a person and as a script ask."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from tests.support.quay import Quay, node_of, note

pytestmark = pytest.mark.contract

GPU, MILLI, CLASSIC = labels.GPU, labels.GPU_MILLI, labels.NVIDIA_GPU


def ask(harbour: Cluster, *arguments: str, expected: int = 0) -> str:
    """Run the command as a person does, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "berthmaster", *arguments, f"--kubeconfig={harbour.kubeconfig}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == expected, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout if expected == 0 else done.stderr


def ask_json(harbour: Cluster, *arguments: str) -> Any:
    return json.loads(ask(harbour, *arguments, "--json"))


async def test_explain_says_where_a_pod_is_and_what_else_was_feasible(quay: Quay, harbour: Cluster) -> None:
    quay.pool = "shown"
    await quay.add_pod("placed", {GPU: "1", "cpu": "1"})
    pod = await quay.bound("placed")
    found = ask_json(harbour, "explain", f"{quay.namespace}/placed")
    assert found["pod"] == f"{quay.namespace}/placed"
    assert found["standing"] == "bound"
    assert found["berth"] == {"node": node_of(pod), "devices": [note(pod, labels.DEVICES)], "choices": []}
    assert found["feasible_nodes"] == 2
    assert {option["node"] for option in found["options"]} == {"shown-0000", "shown-0001"}
    assert [option["node"] for option in found["options"] if option["is_taken"]] == [node_of(pod)]
    assert sorted(option["cost"] for option in found["options"]) == [option["cost"] for option in found["options"]]
    others = dict(found["excluded"])
    assert others["node selector"] >= 10
    assert found["needs"] == "1 free device on one node and 1 core"
    text = ask(harbour, "explain", "placed", "-n", quay.namespace)
    for words in ("is bound", node_of(pod), "cost", "node selector"):
        assert words in text


async def test_explain_says_why_a_pod_waits(quay: Quay, harbour: Cluster) -> None:
    quay.pool = "room"
    await quay.add_pod("waits", {GPU: "3"})
    condition = await quay.says("waits", "NoSuchDevice")
    found = ask_json(harbour, "explain", f"{quay.namespace}/waits")
    assert (found["standing"], found["berth"], found["options"], found["feasible_nodes"]) == ("waiting", None, [], 0)
    assert condition.startswith(found["why"])
    assert "lacks free devices" in dict(found["excluded"])


async def test_explain_of_a_malformed_and_of_a_steered_pod(quay: Quay, harbour: Cluster) -> None:
    quay.pool = "steer"
    await quay.add_pod("odd", {MILLI: "1500"})
    await quay.says("odd", "Malformed")
    assert "cannot be read" in ask_json(harbour, "explain", f"{quay.namespace}/odd")["why"]
    text = ask(harbour, "explain", f"{quay.namespace}/odd")
    assert "cannot be read" in text
    await quay.add_pod("marked", {GPU: "1"}, annotations={labels.GPU_MODELS: "=[/bold][red]"})
    assert "[/bold][red]" in await quay.says("marked", "Malformed")
    assert "[/bold][red]" in ask(harbour, "explain", f"{quay.namespace}/marked")
    await quay.add_pod("bare", {MILLI: "500"}, is_owned=False)
    pod = await quay.bound("bare")
    found = ask_json(harbour, "explain", f"{quay.namespace}/bare")
    assert found["berth"]["node"] == node_of(pod)
    assert f"{node_of(pod)}={','.join(found['berth']['devices'])}" in note(pod, labels.CANDIDATES).split(";")


async def test_explain_of_nobody_says_where_there_is_one_of_that_name(quay: Quay, harbour: Cluster) -> None:
    await quay.add_pod("lonely", {"cpu": "1"})
    text = ask(harbour, "explain", "lonely", expected=1)
    assert f"no pod default/lonely; there is one in namespace {quay.namespace}" in text
    assert "no pod default/nobody" in ask(harbour, "explain", "nobody", expected=1)


async def test_plan_prints_what_would_be_done_and_writes_nothing(quay: Quay, harbour: Cluster) -> None:
    harbour.stop("planner")
    try:
        quay.pool = "shown"
        for i in range(5):
            await quay.add_pod(f"gated-{i}", {GPU: "1"})
        await quay.add_pod("odd", {MILLI: "1500"})
        found = ask_json(harbour, "plan", "--dry-run")
        mine = [one for one in found["placements"] if one["pod"].startswith(f"{quay.namespace}/")]
        places = [(one["node"], *one["devices"]) for one in mine]
        assert len(set(places)) == len(places) == 4
        assert {node for node, _ in places} == {"shown-0000", "shown-0001"}
        (left,) = [one for one in found["unplaced"] if one["pod"].startswith(f"{quay.namespace}/")]
        assert left["reason"] == "Insufficient"
        assert "free device" in left["message"]
        text = ask(harbour, "plan", "--dry-run", "--solve-s", "0")
        assert f"{quay.namespace}/gated-0" in text
        assert "plan by the index" in text
        assert all(node_of(pod) == "" and not note(pod, labels.DEVICES) for pod in await quay.pods())
        assert "only --dry-run is offered" in ask(harbour, "plan", expected=2)
    finally:
        harbour.start("planner")
    await quay.all_bound(4)


async def test_top_counts_nodes_devices_and_pods(quay: Quay, harbour: Cluster) -> None:
    before = ask_json(harbour, "top")
    quay.pool = "tight"
    await quay.add_pod("share", {MILLI: "400"})
    await quay.bound("share")
    await quay.add_pod("waits", {MILLI: "900"})
    await quay.says("waits", "Insufficient")
    after = ask_json(harbour, "top")
    assert after["pods"] == before["pods"] + 1
    assert after["waiting"] == before["waiting"] + 1
    (row,) = [row for row in after["models"] if row["model"] == "G2"]
    (old,) = [row for row in before["models"] if row["model"] == "G2"]
    assert row["devices"] == old["devices"]
    assert row["untouched"] == old["untouched"] - 1
    assert row["partly_used"] == old["partly_used"] + 1
    assert row["free_milli_gpu"] == old["free_milli_gpu"] - 400
    text = ask(harbour, "top", "--once")
    assert "G2" in text
    assert "waiting" in text


def test_a_cluster_that_is_not_there_is_told_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "berthmaster", "top", "--once", "--kubeconfig=/nowhere/kubeconfig"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("berthmaster: ")
    assert len(done.stderr.strip().splitlines()) == 1
