"""What of a cycle is used, and which concurrency a latency is put beside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaler.vertical.rows import usable_rows
from tests.support.learning import a_cycle


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("in_flight", np.nan),
        ("in_flight", np.inf),
        ("in_flight", -1.0),
        ("in_flight", 1e12),
        ("completions", np.nan),
        ("completions", -3.0),
        ("completions", np.inf),
        ("latency_s", 1e9),
        ("second", np.nan),
        ("second", 1e7),
        ("replica", 7),
        ("replica", -1),
    ],
)
def test_a_row_that_cannot_be_is_dropped_and_counted(column: str, value: float) -> None:
    cycle = a_cycle(np.full((2, 30), 4.0))
    changed = getattr(cycle, column).copy()
    changed[5] = value
    rows = usable_rows(replace(cycle, **{column: changed}))
    assert (rows.dropped, rows.seconds, rows.k.size) == (1, 59, 59)


def test_a_missing_latency_is_littles() -> None:
    cycle = a_cycle(np.full((1, 30), 4.0))
    rows = usable_rows(replace(cycle, latency_s=np.full(30, np.nan)))
    assert rows.latency_s == pytest.approx(4.0 / cycle.completions)


def test_a_second_without_an_end_is_usable_but_has_no_latency() -> None:
    cycle = a_cycle(np.full((1, 30), 4.0))
    ended = cycle.completions.copy()
    ended[3] = 0
    rows = usable_rows(replace(cycle, completions=ended))
    assert (rows.seconds, rows.k.size, rows.dropped) == (30, 29, 0)


def test_errors_that_are_missing_or_too_many_are_bounded_by_what_ended() -> None:
    cycle = a_cycle(np.full((1, 30), 4.0))
    errors = cycle.errors.copy()
    errors[:4] = np.nan, np.inf, -2.0, 1e9
    assert usable_rows(replace(cycle, errors=errors)).errors[:4] == pytest.approx([0, 0, 0, cycle.completions[3]])


def test_a_latency_stands_beside_the_load_that_its_requests_lived_in() -> None:
    # 4 s of life: k steps from 20 to 100 at second 15; requests that end at 15 lived nearly all their life at 20.
    k = np.where(np.arange(30) < 15, 20.0, 100.0)[None, :]
    rows = usable_rows(a_cycle(k, curve=lambda k: np.full(k.shape, 4.0)))
    by_second = dict(zip(range(30 - rows.k.size, 30), rows.k, strict=True))
    assert by_second[14] == pytest.approx(20.0)
    assert by_second[15] == pytest.approx(30.0)  # an eighth of the mean life lies in the new load
    assert by_second[18] == pytest.approx(90.0)
    assert by_second[25] == pytest.approx(100.0)


def test_seconds_before_which_too_little_of_the_lives_is_known_are_left_out() -> None:
    rows = usable_rows(a_cycle(np.full((1, 30), 40.0), curve=lambda k: np.full(k.shape, 10.0)))
    assert 20 <= rows.k.size < 30


def test_requests_that_outlive_the_cycle_are_still_learnt_from() -> None:
    rows = usable_rows(a_cycle(np.full((2, 30), 60.0), curve=lambda k: np.full(k.shape, 60.0)))
    assert rows.k.size
    assert rows.k == pytest.approx(60.0)


def test_latency_is_per_size_only_where_most_sizes_are_known() -> None:
    cycle = a_cycle(np.full((1, 30), 4.0))
    known = replace(cycle, size=np.full(30, 2.0))
    few = replace(cycle, size=np.where(np.arange(30) < 10, 2.0, np.nan))
    assert usable_rows(known).latency_s == pytest.approx(0.05)
    assert usable_rows(few).latency_s == pytest.approx(0.1)


def test_seconds_after_a_change_of_limit_are_skipped() -> None:
    assert usable_rows(a_cycle(np.full((1, 30), 4.0)), skip_s=5.0).k.size == 25


def test_an_impossible_memory_reading_is_missing() -> None:
    cycle = a_cycle(np.full((1, 30), 4.0), memory_ratio=0.5)
    memory = cycle.memory_ratio.copy()
    memory[:3] = -1.0, np.inf, 40.0
    assert np.isnan(usable_rows(replace(cycle, memory_ratio=memory)).memory_ratio[:3]).all()
