"""Four weeks in one object: gaps, ages, bytes."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.errors import DecodeError
from warmpool.history import DAY_MIN, MINUTES, History

START = 28_000_020


def test_a_gap_is_not_a_zero():
    history = History()
    history.see(START, 3, 5)
    history.see(START + 1, 0, None)
    history.see(START + 2, None, 5)
    history.see(START + 5, 1, 6)
    newest = history.draws()[-6:]
    assert newest[[0, 1, 5]].tolist() == [3.0, 0.0, 1.0]
    assert np.isnan(newest[[2, 3, 4]]).all()
    assert history.in_use(0) == 6
    assert history.in_use(1) is None
    assert history.in_use(3) == 5
    assert history.in_use(10**9) is None


def test_old_minutes_are_coarser_and_keep_the_peak():
    history = History()
    for minute in range(START, START + 9 * DAY_MIN):
        history.see(minute, 0, 20.0 if minute % 60 == 7 else 4.0)
    newest = START + 9 * DAY_MIN - 1
    at_peak = newest - (START + 9 * DAY_MIN - 60 + 7)
    assert history.in_use(at_peak) == 20
    assert history.in_use(at_peak + 1) == 4
    week = at_peak + 5 * DAY_MIN
    assert history.in_use(week) == history.in_use(week + 1) == 20  # the same five minutes
    assert history.in_use(week + 8) == 4


def test_what_is_older_than_four_weeks_is_gone():
    history = History()
    history.see(START, 7, 1)
    history.see(START + MINUTES - 1, 1, 1)
    assert history.draws()[0] == 7
    history.see(START + MINUTES, 1, 1)
    assert np.isnan(history.draws()[0])
    history.see(START + 10 * MINUTES, 2, 1)
    assert np.isfinite(history.draws()).sum() == 1


def test_the_past_is_not_rewritten():
    history = History()
    history.see(START, 3, 5)
    history.see(START, 9, 9)
    history.see(START - 10, 9, 9)
    assert history.draws()[-1] == 3


@pytest.mark.parametrize("count", [0, 1, 199, 200, 1000, 10**6])
def test_large_counts_keep_five_percent(count):
    history = History()
    history.see(START, count, None)
    assert history.draws()[-1] == pytest.approx(min(count, 3113), rel=0.05)


def test_the_worst_history_is_small_and_comes_back():
    random = np.random.default_rng(1)
    history = History()
    for minute in range(START, START + MINUTES):
        history.see(minute, int(random.integers(0, 250)), float(random.integers(0, 60_000)))
    stored = history.to_bytes()
    assert len(stored) < 60_000
    again = History.from_bytes(stored)
    assert again.minute == history.minute
    assert np.array_equal(again.draws(), history.draws(), equal_nan=True)
    assert [again.in_use(ago) for ago in (0, 5000, 30_000)] == [history.in_use(ago) for ago in (0, 5000, 30_000)]


@pytest.mark.parametrize("stored", [b"x", b"WH1", b"WH1" + b"\0" * 40, b"XX1" + b"\0" * 8])
def test_other_bytes_are_refused(stored):
    with pytest.raises(DecodeError):
        History.from_bytes(stored)


def test_nothing_is_stored_as_nothing():
    assert History().to_bytes() == b""
    assert History.from_bytes(b"").minute is None
