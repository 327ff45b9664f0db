"""The minutes of the last ten days: what is a gap, what is a zero, and what a clock may do."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.forecast.codes import GAP, decode, encode, encode_all
from scaler.forecast.series import MINUTES, History

MINUTE = 30_000_000


def fed(*minutes, start=MINUTE):
    """Each minute is (seconds seen, requests per second); the history stands in the minute after the last."""
    history = History()
    for offset, (seconds, rate) in enumerate(minutes):
        for second in range(60):
            history.see(60.0 * (start + offset) + second, rate if second < seconds else None)
    history.see(60.0 * (start + len(minutes)), None)
    return history


def tail(history, count):
    return [None if np.isnan(rate) else round(float(rate), 2) for rate in history.rates_rps()[-count:]]


@pytest.mark.parametrize("rate", [0.0, 1 / 60, 0.5, 3.0, 1e3, 1e7])
def test_two_bytes_hold_a_rate_to_two_in_ten_thousand(rate):
    held = float(decode(np.array([encode(rate)], np.uint16))[0])
    assert abs(held - rate) <= 2e-4 * (rate + 1 / 60)
    assert (held == 0) is (rate == 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_what_is_no_rate_is_a_gap(bad):
    assert encode(bad) == GAP
    assert encode_all(np.array([bad, 0.0], np.float32)).tolist() == [GAP, 0]


def test_a_zero_is_not_a_gap():
    assert tail(fed((60, 0.0), (0, 1.0), (60, 2.0)), 3) == [0.0, None, 2.0]


def test_a_minute_counts_from_half_its_seconds_on_and_by_those_alone():
    assert tail(fed((30, 4.0), (29, 4.0)), 2) == [4.0, None]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -3.0, None])
def test_unusable_seconds_leave_the_others_alone(bad):
    history = History()
    for second in range(60):
        history.see(60.0 * MINUTE + second, 5.0 if second % 2 else bad)
    history.see(60.0 * (MINUTE + 1), 0.0)
    assert tail(history, 1) == [5.0]


def test_minutes_without_a_second_are_gaps():
    history = fed((60, 1.0))
    history.see(60.0 * (MINUTE + 4), None)
    assert tail(history, 4) == [1.0, None, None, None]


def test_a_clock_that_jumps_back_takes_what_lies_after_with_it():
    history = fed((60, 1.0), (60, 2.0), (60, 3.0))
    history.see(60.0 * (MINUTE + 1) + 5, 9.0)
    assert history.minute == MINUTE + 1
    assert tail(history, 1) == [1.0]
    history.see(60.0 * (MINUTE + 4), None)
    assert tail(history, 4) == [1.0, None, None, None], "nothing of the time that never was"


@pytest.mark.parametrize("jump", [MINUTES - 1, MINUTES, 5 * MINUTES, -5 * MINUTES])
def test_a_clock_that_jumps_by_the_whole_memory_leaves_only_gaps(jump):
    history = fed((60, 1.0))
    history.see(60.0 * (MINUTE + 1 + jump), None)
    assert np.isnan(history.rates_rps()).all()


def test_it_holds_ten_days_and_forgets_the_oldest():
    codes = encode_all(np.arange(MINUTES + 5, dtype=np.float32))
    history = History.of(codes, MINUTE)
    assert history.codes().tolist() == codes[-(MINUTES - 1) :].tolist()
    assert history.codes().nbytes < 30_000
    history.see(60.0 * MINUTE, 7.0)
    history.see(60.0 * (MINUTE + 1), None)
    assert history.codes()[:-1].tolist() == codes[-(MINUTES - 2) :].tolist()


def test_nothing_seen_is_nothing_known():
    history = History()
    assert history.minute is None
    assert np.isnan(history.rates_rps()).all()
