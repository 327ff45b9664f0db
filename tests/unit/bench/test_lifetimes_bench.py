"""What the bench of lifetimes reads and sums up: replicas of services from a CSV, and rows beside FGD's own seeds."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from bench.lifetimes import MOVING, instances, setting_of, summary, verdict_on
from fleet.device import AskKind

CSV = """instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,scheduled_time,deletion_time
i_0,HN,a,12,1,120.5,100,110,4000
i_1,CN,a,64,0,320,100,110,4000
i_2,HN,a,12,1,120,,110,4000
i_3,HN,b,12,1,120,100,110,
i_4,HN,b,6.5,2,60,500,,400
"""


@pytest.mark.parametrize("packed", [False, True])
def test_instances_that_ask_a_gpu_and_whose_times_are_known_are_read(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "instances.csv"
    path.write_bytes(gzip.compress(CSV.encode()) if packed else CSV.encode())
    first, second = instances(path)
    assert (first.pod.name, first.life_s) == ("i_0", 3900.0)
    assert first.pod.requests.milli_cpu == 12_000
    assert first.pod.requests.memory_bytes == round(120.5 * 2**30)
    assert first.pod.ask is not None
    assert (first.pod.ask.kind, first.pod.ask.count, first.pod.ask.milli_gpu) == (AskKind.CHOSEN, 1, 1000)
    assert second.pod.ask is not None
    assert (second.pod.name, second.pod.requests.milli_cpu, second.pod.ask.count) == ("i_4", 6500, 2)
    assert second.life_s == 0.0, "deleted before it was created: the clocks differ"


def a_run(policy: str, seed: int, pending: float, stranded: float, moves: int = 0) -> dict[str, Any]:
    return {
        "trace": "default",
        "every": 12,
        "days": 1.0,
        "load_ratio": 1.0,
        "policy": policy,
        "seed": seed,
        "pending_gpu_hours_total": pending,
        "pending_gpu_hours": {"8gpu": pending, "cpu": 0.0},
        "stranded_gpu_hours": stranded,
        "unallocated_gpu_ratio": 0.05,
        "offered_ratio": 1.0,
        "moves": moves,
    }


def test_rows_compare_with_fgd_on_the_seeds_that_both_have() -> None:
    runs = [a_run("fgd", 1, 100.0, 10.0), a_run("fgd", 2, 300.0, 30.0), a_run(MOVING, 2, 150.0, 12.0, moves=48)]
    fgd, ours = sorted(summary(runs), key=lambda row: row["policy"])
    assert (fgd["pending_gpu_hours_total"], fgd["pending_gpu_hours_total_of_fgd"]) == (200.0, 1.0)
    assert (ours["pending_gpu_hours_total_of_fgd"], ours["stranded_gpu_hours_of_fgd"]) == (0.5, 0.4)
    assert ours["moves_per_hour"] == 2.0
    assert (fgd["pending_gpu_hours"]["8gpu"], fgd["pending_gpu_hours"]["1gpu"]) == (200.0, 0.0)
    assert verdict_on(MOVING, 0.5, 0.4).startswith("met")
    assert verdict_on(MOVING, 0.5, 0.6).startswith("MISSED")
    assert verdict_on("berthmaster", 0.81, 0.4).startswith("MISSED")
    assert verdict_on("fgd", 1.0, 1.0) == ""


def test_ours_with_moves_is_our_policy_with_a_budget_below_one_percent() -> None:
    setting = setting_of(MOVING, 3, 1.0, 2.0)
    assert setting.policy == "berthmaster"
    assert 0 < setting.moves_ratio < 0.01
    assert setting.problems() == []
    assert setting_of("fgd", 3, 1.0, 2.0).moves_ratio == 0
    by_arrival = setting_of("ours+moves,arrival", 3, 1.0, 2.0)
    assert (by_arrival.moves_ratio, by_arrival.is_in_turn) == (setting.moves_ratio, False)


def test_order_and_policy_can_be_told_apart() -> None:
    settings = {name: setting_of(name, 3, 1.0, 2.0) for name in ("berthmaster", "ours,arrival", "fgd", "fgd,in-turn")}
    assert {name: (one.policy, one.is_in_turn) for name, one in settings.items()} == {
        "berthmaster": ("berthmaster", True),
        "ours,arrival": ("berthmaster", False),
        "fgd": ("fgd", False),
        "fgd,in-turn": ("fgd", True),
    }
