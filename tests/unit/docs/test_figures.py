"""The README's figures on packing are those of the results files in the repository."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SEEDS = range(42, 52)


def result(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def cells(start: str) -> str:
    """Return the one row of the README that begins so, without its first cell."""
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {start}")]
    return row.split("|", 2)[2]


def says(start: str, value: float, digits: int) -> bool:
    """Whether a number of the row is this one, rounded to so many digits."""
    told = re.findall(rf"(?<![\d.])\d+\.\d{{{digits}}}(?!\d)" if digits else r"(?<![\d.])\d+(?![\d.]*\d)", cells(start))
    return any(abs(float(one) - value) <= 0.5 * 10**-digits + 1e-9 for one in told)


def learnt(trace: str) -> list[float]:
    found = result("openb")["cells"]
    return [found[f"{trace}/learnt/{seed}"]["unallocated_percent"] for seed in SEEDS]


def test_packing_on_the_default_trace() -> None:
    row = "GPUs unallocated at 100 % demand, openb default"
    assert says(row, statistics.mean(learnt("default")), 2)
    assert says(row, max(learnt("default")), 2)


@pytest.mark.parametrize("trace", ["gpuspec33", "gpuspec25", "gpushare100", "multigpu50", "cpu250"])
def test_packing_on_the_traces_with_a_target(trace: str) -> None:
    assert says("gpuspec33 / gpuspec25 / gpushare100", statistics.mean(learnt(trace)), 2)


def test_speed_of_decisions_and_batches() -> None:
    found = result("scale")
    (at_5000,) = [one["cpu"] for one in found["decisions"] if one["nodes"] == 5000]
    row = "one decision at 5,000 nodes"
    assert says(row, at_5000["p50"], 2)
    assert says(row, at_5000["p99"], 1)
    assert says(row, found["growth"]["exponent"], 2)
    for batch in found["batches"]:
        assert says("500 mixed pods at 5,000 nodes", batch["medians"]["cpu_s"], 1)


def test_gangs_with_claims() -> None:
    rows = result("gang_claims")["rows"]
    start = "gangs with resource claims"
    for cluster in ("whole", "partitions"):
        found = [row for row in rows if row["cluster"] == cluster]
        placed, asked = (sum(row[name] for row in found) for name in ("placed", "gangs"))
        assert f"{placed} of {asked}" in cells(start)
        if cluster == "whole":
            assert says(start, max(row["worst_cpu_s"] for row in found), 2)


def test_gangs() -> None:
    rows = result("gangs")["rows"]
    placed, asked = (sum(row[name] for row in rows) for name in ("placed", "gangs"))
    assert f"{placed} of {asked} placed" in cells("gangs of 8 to 64")
    assert says("gangs of 8 to 64", max(row["worst_s"] for row in rows), 2)


def test_pods_that_leave() -> None:
    found = {
        (one["days"], one["load_ratio"], one["policy"]): one
        for one in result("lifetimes")["summary"]
        if one["trace"] == "default"
    }
    for name in ("pending_gpu_hours_total_of_fgd", "stranded_gpu_hours_of_fgd"):
        assert says("pods that leave, 30 days", 100 * found[30.0, 1.0, "berthmaster"][name], 0), name
        for load in (0.9, 1.0):
            assert says("pods that leave, with moves", 100 * found[30.0, load, "ours+moves"][name], 0), (name, load)


def test_replicas_apart() -> None:
    for row in result("replicas")["rows"]:
        if row["trace"] == "default" and row["replicas"] == 4:
            assert says("replicas of one service", 100 * row["on_one_node_ratio"], 1)


def test_chaos() -> None:
    found = result("chaos")
    assert f"with {len(found['timeline'])} accidents" in README
    assert says("20 minutes of churn", max(found["longest_wait_with_room_s"].values()), 1)
    assert not any(found["found"].values())


@pytest.mark.parametrize(
    ("start", "nodes", "full"),
    [
        ("created to bound beside the stock scheduler, 5,000 nodes", 5000, 4000),
        ("the same, 1,000 nodes, 800 of them full", 1000, 800),
        ("the same, every node empty", 1000, 0),
        ("the same, every node empty", 5000, 0),
    ],
)
def test_created_to_bound(start: str, nodes: int, full: int) -> None:
    (found,) = [one for one in result("kwok")["speed"] if (one["nodes"], one["full_nodes"]) == (nodes, full)]
    assert says(start, found["ratio_pods_per_s"]["median"], 2)
    for side in ("stock", "berthmaster"):
        assert says(start, found["medians"][side]["p99_s"], 1)


def test_kai() -> None:
    found = result("kwok_kai")
    shares = "KAI Scheduler v0.12.0 itself"
    rate = {one["side"]: one["pods_per_s"] for one in found["packing"]}
    for one in found["packing"]:
        assert says(shares, 100 * one["allocated_ratio"], 1)
    assert says(shares, rate["berthmaster"] / rate["kai"], 1)
    (speed,) = found["speed"]
    assert says("the same, pods of one whole GPU", speed["ratio_pods_per_s"]["median"], 1)


def test_filter_and_memory() -> None:
    found = result("kwok")
    for name in ("p50", "p99"):
        assert says("Filter for a pinned pod", found["filter"]["handler_ms"][name], 2)
    assert says("planner + extender", found["memory"]["together"]["rss_mb"], 0)
