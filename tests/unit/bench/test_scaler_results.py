"""What the bench keeps, prints and judges."""

from __future__ import annotations

import json

import pytest

from bench.scaler.cells import POLICIES, SEED, Cell, checks, plan, run, sources
from bench.scaler.store import Store
from bench.scaler.table import as_markdown, percent, rows, thousands
from bench.scaler.targets import verdicts
from bench.scaler.workloads import WORKLOADS


def result(trace, policy, start_s, *, late=0.0, cost=100_000.0, reversals=0.0, **more):
    cell = Cell(trace=trace, policy=policy, start_s=start_s)
    return cell.key, {
        "trace": trace,
        "policy": policy,
        "start_s": start_s,
        "seed": SEED,
        "jitter_ratio": 0.0,
        "violation_ratio": late,
        "replica_s": cost,
        "ideal_replica_s": 50_000.0,
        "reversals_per_hour": reversals,
        **more,
    }


def only(*results):
    judged = verdicts(dict(results))
    assert len(judged) == 1, judged
    return judged[0]


@pytest.mark.parametrize(
    ("ours", "rival", "is_reached"),
    [
        ({"late": 0.075, "cost": 12_000}, {"late": 0.070, "cost": 100_000}, True),
        ({"late": 0.076, "cost": 12_000}, {"late": 0.070, "cost": 100_000}, False),
        ({"late": 0.010, "cost": 12_100}, {"late": 0.070, "cost": 100_000}, False),
    ],
)
def test_the_step_is_judged_by_late_requests_and_cost(ours, rival, is_reached):
    verdict = only(result("step", "steady", 60, **ours), result("step", "spec", 60, **rival))
    assert verdict.is_reached is is_reached


@pytest.mark.parametrize(
    ("ours", "is_reached"),
    [
        ({"late": 0.002, "cost": 108_000, "reversals": 1.6}, True),
        ({"late": 0.00205, "cost": 108_000, "reversals": 1.6}, False),  # the calmer of the two rivals had 0.1 %
        ({"late": 0.002, "cost": 108_100, "reversals": 1.6}, False),
        ({"late": 0.002, "cost": 108_000, "reversals": 1.7}, False),
    ],
)
def test_a_long_trace_is_judged_against_the_better_of_both_rivals(ours, is_reached):
    verdict = only(
        result("conv", "steady", 60, **ours),
        result("conv", "Knative", 60, late=0.02, cost=90_000),
        result("conv", "HPA", 60, late=0.001, cost=120_000),
    )
    assert verdict.is_reached is is_reached


def test_nothing_is_judged_whose_cells_are_missing():
    assert verdicts({}) == []
    assert verdicts(dict([result("conv", "steady", 60), result("conv", "HPA", 60)])) == []


@pytest.mark.parametrize(("served_s", "is_reached"), [(60.0, True), (65.0, False), (None, False)])
def test_a_surge_must_be_served_within_a_minute(served_s, is_reached):
    verdict = only(result("surge", "steady", 30, served_s=served_s, in_time_s=None))
    assert verdict.is_reached is is_reached
    assert "not within the run" in verdict.measured


def test_the_table_has_a_line_for_each_load_and_start_time_and_a_dash_for_what_was_not_run():
    cells = dict(
        [
            result("nasa", "HPA", 180, late=0.021, cost=907_400, reversals=5.25),
            result("step", "steady", 5, late=0.0093),
            result("step", "HPA", 5, late=0.5),
        ]
    )
    columns, lines = rows(cells.values())
    assert columns == ("load", "start s", "steady", "HPA")
    assert lines == [
        ("step 10 to 100 rps (50)", "5", "0.93/100/0.0", "50.0/100/0.0"),
        ("NASA 13 July (50)", "180", "-", "2.1/907/5.2"),
    ]
    assert as_markdown(columns, lines).splitlines()[1] == "|---|---|---|---|"


@pytest.mark.parametrize(
    ("ratio", "text"), [(0, "0"), (0.00004, "0"), (0.00005, "0.01"), (0.0093, "0.93"), (0.5, "50.0")]
)
def test_shares_are_shown_with_the_digits_that_matter(ratio, text):
    assert percent(ratio) == text


def test_the_picture_is_the_same_for_the_same_figures_and_lacks_nothing(tmp_path):
    draw = pytest.importorskip("bench.scaler.chart").draw
    cells = dict(
        result(trace, policy, start_s, late=0.01 * place, cost=60_000.0 + 10_000 * place)
        for trace in WORKLOADS
        for place, policy in enumerate(POLICIES)
        for start_s in (5, 60, 180)
    )
    for name in ("first.svg", "second.svg"):
        draw(cells, tmp_path / name)
    first = (tmp_path / "first.svg").read_text("utf-8")
    assert first == (tmp_path / "second.svg").read_text("utf-8")
    for text in ("Berthmaster steady", "Knative", "AIBrix", "NASA 13 July", "World Cup 10 June"):
        assert text in first


def test_thousands_are_whole():
    assert thousands(1_234_567) == "1,235"


def test_every_policy_meets_every_load_and_short_loads_come_first():
    cells = plan(["nasa", "step"], POLICIES, [5, 60], [1])
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * len(POLICIES)
    assert [cell.trace for cell in cells[: 2 * len(POLICIES)]] == ["step"] * 2 * len(POLICIES)
    keys = {cell.key for cell in checks(POLICIES)}
    assert {cell.trace for cell in checks(["steady"])} >= {trace for trace, work in WORKLOADS.items() if work.is_check}
    assert not keys & {cell.key for cell in cells}


def test_a_cell_is_run_again_only_when_what_it_depends_on_has_changed(tmp_path):
    cell = Cell(trace="spike", policy="steady", start_s=5)
    store = Store(tmp_path / "scaler.json")
    assert not store.has(cell)
    store.add(cell, run(cell))
    store.write("command", "knative", [])
    again = Store(tmp_path / "scaler.json")
    assert again.has(cell)
    assert again.current() == again.cells
    again.cells[cell.key]["sources"] = "older"
    assert not again.has(cell)
    assert again.current() == {}
    document = json.loads((tmp_path / "scaler.json").read_text("utf-8"))
    assert {"command", "commit", "machine", "cells"} <= set(document)
    assert document["cells"][cell.key]["violation_ratio"] < 0.1
    assert sources("steady") != sources("HPA")
