"""The bench of packing: what is run again, what is judged, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.openb import cells as openb_cells
from bench.openb.cells import COLUMNS, FGD, GIVEN, LEARNT, MIXED, MOVED, OTHER_SEEDS, SEEDS, Cell, plan, run
from bench.openb.chart import draw
from bench.openb.published import at_100
from bench.openb.store import FILE, Store
from bench.openb.summary import Figures, Row, rows
from bench.openb.table import CLASS_HEADINGS, HEADINGS, as_markdown, class_lines, lines
from bench.openb.targets import verdicts
from binpack.trace import traces


def a_result(trace: str, column: str, seed: int, percent: float, **failed: int) -> dict[str, Any]:
    return {
        "trace": trace,
        "column": column,
        "seed": seed,
        "unallocated_percent": percent,
        "arrived": {"1gpu": 100, "8gpu": 10},
        "failed": {name.removeprefix("n_"): n for name, n in failed.items()},
        "moves": 0,
        "cpu_pods_on_gpu_nodes": 3,
        "cpu_pods_astray": 0,
        "cpu_ms_per_decision": 0.2,
        "sources": openb_cells.sources(column),
    }


def results(*found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{one['trace']}/{one['column']}/{one['seed']}": one for one in found}


def test_the_plan_covers_every_trace_and_seed_and_goes_seed_by_seed() -> None:
    found = plan()
    assert len(found) == len(set(found))
    for column in (LEARNT, GIVEN, FGD):
        assert {(c.trace, c.seed) for c in found if c.column == column} >= {(t, s) for t in traces() for s in SEEDS}
    assert {c.seed for c in found if c.column == LEARNT} == {*SEEDS, *OTHER_SEEDS}
    assert {c.trace for c in found if c.column == MIXED} == {"default"}
    assert [c.seed for c in found[: 17 * 4]] == [42] * 17 * 3 + [43] * 17
    assert not set(SEEDS) & set(OTHER_SEEDS)
    assert plan(["cpu050"], [FGD]) == [Cell(trace="cpu050", column=FGD, seed=seed) for seed in SEEDS]


@pytest.mark.parametrize("column", COLUMNS)
def test_what_a_column_knows(column: str) -> None:
    setting = Cell(trace="default", column=column, seed=42).setting
    assert setting.problems() == []
    assert setting.mix == ("given" if column in (GIVEN, FGD) else "learn")
    assert (setting.moves_ratio > 0) == (column == MOVED)


def test_a_cell_is_a_run_of_the_protocol() -> None:
    found = run(Cell(trace="gpushare100", column=LEARNT, seed=42))
    assert 10.5 < found["unallocated_percent"] < 12.5
    assert sum(found["arrived"].values()) > 8000
    assert found["failed"].keys() <= found["arrived"].keys()
    assert found["sources"] == openb_cells.sources(LEARNT)


def test_cells_are_stale_when_a_file_that_decides_them_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("binpack/index", "binpack/peers", "binpack/data", "binpack/repack", "binpack/solver"):
        (tmp_path / place).mkdir(parents=True)
    for name in ("arrivals", "simulate", "tally", "trace", "fit", "state", "fragmentation", "index/a", "peers/b"):
        (tmp_path / "binpack" / f"{name}.py").write_text("before")
    monkeypatch.setattr(openb_cells, "ROOT", tmp_path)
    openb_cells.sources.cache_clear()
    before = {column: openb_cells.sources(column) for column in COLUMNS}
    (tmp_path / "binpack/peers/b.py").write_text("after")
    openb_cells.sources.cache_clear()
    assert {column for column in COLUMNS if openb_cells.sources(column) != before[column]} == {FGD}
    (tmp_path / "binpack/index/a.py").write_text("after")
    openb_cells.sources.cache_clear()
    assert {column for column in COLUMNS if openb_cells.sources(column) != before[column]} == set(COLUMNS)
    openb_cells.sources.cache_clear()


def test_a_group_whose_first_seed_comes_out_the_same_is_not_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "openb.json")
    cells = [Cell(trace=trace, column=FGD, seed=seed) for trace in ("default", "cpu050") for seed in (42, 43, 44)]
    for cell in cells[:-1]:
        store.add(cell, a_result(cell.trace, FGD, cell.seed, 5.0) | {"sources": "old"})
    assert not any(store.has(cell) for cell in cells)
    asked = []

    def again(cell: Cell) -> dict[str, Any]:
        asked.append(cell.key)
        return a_result(cell.trace, FGD, cell.seed, 5.0 if cell.trace == "default" else 4.9)

    left = store.confirm(cells, again)
    assert asked == ["default/fgd/42", "cpu050/fgd/42"]
    assert [cell.key for cell in left] == ["cpu050/fgd/43", "cpu050/fgd/44"]
    assert [store.has(cell) for cell in cells] == [True, True, True, True, False, False]
    assert store.cells["cpu050/fgd/42"]["unallocated_percent"] == 4.9


def test_a_store_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "openb.json")
    store.write("none", [])
    assert Store(store.path).cells == {}
    for seed in SEEDS:
        store.add(Cell(trace="default", column=FGD, seed=seed), a_result("default", FGD, seed, 5.0))
    store.write("some", [{"what": "a", "outcome": "missed"}])
    again = Store(store.path)
    assert again.cells == store.cells
    assert json.loads(store.path.read_text("utf-8"))["verdicts"] == [{"what": "a", "outcome": "missed"}]


def test_a_class_is_worse_when_it_fails_more_than_fgds_by_over_2_percent_of_its_arrivals() -> None:
    def row(ours: int, fgd: int) -> Row:
        (found,) = rows(
            results(
                a_result("default", LEARNT, 42, 3.7, n_1gpu=ours, n_8gpu=1),
                a_result("default", FGD, 42, 4.8, n_1gpu=fgd, n_8gpu=1),
                a_result("default", LEARNT, 43, 3.7, n_1gpu=99),  # no such sequence of FGD's to judge it by
            )
        )
        return found

    assert row(7, 5).worse == {}
    assert row(8, 5).worse == {"1gpu": pytest.approx(0.03)}


def test_the_gap_is_what_is_above_the_bound_beside_what_fgd_is() -> None:
    figures = Figures(seeds=1, percent=4.0, sd=0, worst=4.0, failed={}, arrived={}, moves=0, cpu_ms=0.2)
    row = Row(trace="default", ours={LEARNT: figures}, others=None, published={"fgd": 5.0}, bound=3.0)
    assert row.gap_ratio(LEARNT) == pytest.approx(0.5)
    assert row.gap_ratio(MOVED) is None
    assert (
        Row(trace="x", ours={LEARNT: figures}, others=None, published={"fgd": 5}, bound=None).gap_ratio(LEARNT) is None
    )


def test_targets_are_judged_only_where_there_are_cells() -> None:
    assert verdicts([], {}) == []
    found = results(
        *(a_result(trace, LEARNT, 42, 4.5, n_8gpu=3) for trace in ("default", "gpuspec33")),
        a_result("default", FGD, 42, 4.4, n_8gpu=1),
        a_result("default", MIXED, 42, 3.0),
    )
    judged = {one.what: one for one in verdicts(rows(found), found)}
    assert not judged["default, mix learnt"].is_reached
    assert judged["gpuspec33, mix learnt"].is_reached
    assert (
        "default (4.50, FGD 4.77)" in judged["below FGD, mix learnt"].measured
    )  # FGD on the same sequences counts too
    assert "8gpu +20.0 %" in judged["no class fails more than under FGD"].measured
    assert judged["default with 310 nodes without GPUs: CPU pods on GPU nodes"].is_reached
    assert not any("5 % moved" in what or "given" in what or "shuffles" in what for what in judged)
    found |= results(a_result("default", LEARNT, OTHER_SEEDS[0], 4.7))
    judged = {one.what: one for one in verdicts(rows(found), found)}
    assert judged["other shuffles give the same"].measured == "0 of 1 traces; not default (4.70 after 4.50)"


def test_the_tables_have_a_cell_for_every_heading() -> None:
    table = rows(results(a_result("default", LEARNT, 42, 3.7), a_result("default", FGD, 42, 4.8, n_8gpu=2)))
    assert all(len(line) == len(HEADINGS) for line in lines(table))
    assert all(len(line) == len(CLASS_HEADINGS) for line in class_lines(table))
    assert "0.0 / 2.0 / 10" in class_lines(table)[0]
    assert as_markdown(HEADINGS, lines(table)).count("\n") == 3


def test_the_published_figures_cover_all_traces() -> None:
    published = at_100()
    assert set(published) == set(traces())
    assert (published["default"]["fgd"], published["gpuspec33"]["fgd"]) == (4.77, 12.16)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    found = results(*(a_result(trace, LEARNT, 42, 3.7) for trace in traces()))
    draw(rows(found), tmp_path / "openb.png")
    assert (tmp_path / "openb.png").read_bytes().startswith(b"\x89PNG")


def test_the_results_in_the_repository_hold_together() -> None:
    kept = Store(FILE)
    assert set(kept.cells) <= {cell.key for cell in plan()}
    for key, cell in kept.cells.items():
        assert key == f"{cell['trace']}/{cell['column']}/{cell['seed']}"
