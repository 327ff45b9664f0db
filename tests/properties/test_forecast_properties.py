"""The forecast against its formulas spelled out minute by minute, and what a store gives back.

1. profile is the mean over the same minute, five either side, of the seven days before, whatever is missing.
2. points: ten-minute mean, level and their combination are the formulas; an origin never sees what comes after it.
3. from_bytes(to_bytes(history)) has the same ten-minute means; any other bytes are read or refused.
4. A history told as seconds, in any order of gaps, holds the mean of the known seconds of each minute.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import DecodeError
from scaler.forecast.codes import decode, encode_all
from scaler.forecast.points import points
from scaler.forecast.profile import profile
from scaler.forecast.series import DAY_MIN, MINUTES, History
from scaler.forecast.stored import BUCKET_MIN, from_bytes, to_bytes

MINUTE = 30_000_003


@st.composite
def some_rates(draw, most_days=9):
    """Return a history of any length with gaps of any length, quiet hours and bursts."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    length = draw(st.integers(200, most_days * DAY_MIN))
    rates = random.gamma(draw(st.sampled_from([0.1, 1.0, 50.0])), 1.0, length)
    for _ in range(draw(st.integers(0, 6))):
        begin, width = random.integers(0, length), random.integers(1, 2 * DAY_MIN)
        rates[begin : begin + width] = np.nan if random.random() < 0.6 else 0.0
    return rates.astype(np.float32)


def spelled_profile(rates, minute):
    near = [
        rates[at]
        for day in range(1, 8)
        for at in range(minute - day * DAY_MIN - 5, minute - day * DAY_MIN + 6)
        if 0 <= at < len(rates) and np.isfinite(rates[at])
    ]
    return np.mean(near, dtype=np.float64) if near else np.nan


def spelled_mean(values):
    known = [value for value in values if np.isfinite(value)]
    return np.mean(known, dtype=np.float64) if len(known) >= len(values) / 3 else np.nan


@settings(max_examples=30, deadline=None)
@given(rates=some_rates(), ahead=st.integers(0, DAY_MIN - 6), width=st.integers(1, 40))
def test_profile_is_its_formula(rates, ahead, width):
    last = len(rates) + ahead
    found = profile(rates, last - width, last)
    expected = [spelled_profile(rates, minute) for minute in range(last - width, last)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * float(np.nanmax(np.append(rates, 1.0))))


@settings(max_examples=30, deadline=None)
@given(rates=some_rates(), horizon=st.integers(1, 120), back=st.integers(0, 150), width=st.integers(1, 20))
def test_points_are_their_formulas(rates, horizon, back, width):
    last = len(rates) + 1 - min(back, len(rates) - 60)
    first = max(30, last - width)
    found = points(rates, first, last, horizon)
    scale = 1e-5 * float(np.nanmax(np.append(rates, 1.0)))
    for row, origin in enumerate(range(first, last)):
        window = range(origin - 30, origin)
        both = [(rates[m], spelled_profile(rates, m)) for m in window]
        known = [(r, p) for r, p in both if np.isfinite(r) and np.isfinite(p)]
        ten = spelled_mean(rates[origin - 10 : origin])
        np.testing.assert_allclose(found.mean10[row], ten, rtol=1e-5, atol=scale)
        if len(known) < 10:
            assert np.isnan(found.combined[row])
            continue
        seen, usual = sum(r for r, _ in known), sum(p for _, p in known)
        if 0 < usual < 1e-6 * len(known):
            continue  # what cancels in cumulated sums decides, and a rate that small moves no replica
        level = np.clip(seen / usual, 0.25, 4.0) if usual > 0 else 4.0 if seen > 0 else 1.0
        shape = spelled_profile(rates, origin - 1 + horizon)
        np.testing.assert_allclose(found.combined[row], (ten + shape * level) / 2, rtol=1e-4, atol=4 * scale)
        np.testing.assert_allclose(found.last[row], rates[origin - 1])
        target = origin - 1 + horizon
        np.testing.assert_allclose(found.actual[row], rates[target] if target < len(rates) else np.nan)


@settings(max_examples=30, deadline=None)
@given(rates=some_rates(), horizon=st.integers(1, 120), back=st.integers(1, 100))
def test_an_origin_sees_nothing_that_comes_after_it(rates, horizon, back):
    origin = len(rates) - back
    with_future = points(rates, origin, origin + 1, horizon)
    without = points(rates[:origin], origin, origin + 1, horizon)
    for name in ("last", "mean10", "profiled", "combined"):
        np.testing.assert_allclose(getattr(with_future, name), getattr(without, name), rtol=1e-4, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(rates=some_rates(most_days=10), minute=st.integers(MINUTE, MINUTE + 9), later=st.integers(0, 3 * DAY_MIN))
def test_what_is_stored_comes_back_as_ten_minute_means(rates, minute, later):
    rates = rates[-(MINUTES - 1) :]
    history = History.of(encode_all(rates), minute)
    stored = to_bytes(history)
    back = from_bytes(stored, 60.0 * (minute + later))
    assert back.minute == minute + later
    whole = history.rates_rps()
    before, after = (
        dict(zip(range(end - len(values), end), values, strict=True))
        for end, values in ((minute, whole), (minute + later, back.rates_rps()))
    )
    last = minute // BUCKET_MIN * BUCKET_MIN
    for begin in range(last - 3 * BUCKET_MIN, last, BUCKET_MIN):
        told = [before[at] for at in range(begin, begin + BUCKET_MIN) if np.isfinite(before.get(at, np.nan))]
        found = {float(after[at]) for at in range(begin, begin + BUCKET_MIN) if at in after}
        if told:
            (mean,) = found
            assert mean == pytest.approx(float(np.mean(told)), rel=1e-3, abs=1e-5)
        else:
            assert all(np.isnan(rate) for rate in found)
    assert all(np.isnan(rate) for at, rate in after.items() if at >= last), "what was not stored is a gap"
    assert len(stored) < 4000
    assert to_bytes(from_bytes(stored, 60.0 * minute)) == stored


@settings(max_examples=200, deadline=None)
@given(stored=st.binary(min_size=1, max_size=60), cut=st.integers(0, 200), flip=st.integers(0, 500))
def test_other_bytes_are_read_or_refused_and_nothing_else(stored, cut, flip):
    whole = to_bytes(History.of(encode_all(np.arange(500, dtype=np.float32)), MINUTE))
    broken = bytearray(whole)
    broken[flip % len(whole)] ^= 0x55
    for text in (stored, whole[: min(cut + 1, len(whole) - 1)], bytes(broken)):
        with suppress(DecodeError):
            from_bytes(text, 60.0 * MINUTE)


def test_a_history_from_the_future_is_refused():
    stored = to_bytes(History.of(encode_all(np.ones(100, np.float32)), MINUTE))
    with pytest.raises(DecodeError, match="a clock is wrong"):
        from_bytes(stored, 60.0 * (MINUTE - 10))


def test_nothing_stored_is_a_fresh_history():
    assert to_bytes(History()) == b""
    assert from_bytes(b"", 60.0 * MINUTE).minute is None


@settings(max_examples=40, deadline=None)
@given(minutes=st.lists(st.lists(st.one_of(st.none(), st.floats(0, 1e4)), max_size=60), min_size=1, max_size=6))
def test_a_minute_is_the_mean_of_its_known_seconds(minutes):
    history = History()
    for offset, seconds in enumerate(minutes):
        for second, arrivals in enumerate(seconds):
            history.see(60.0 * (MINUTE + offset) + second, arrivals)
    history.see(60.0 * (MINUTE + len(minutes)), None)
    found = decode(history.codes())[-len(minutes) :]
    for rate, seconds in zip(found, minutes, strict=True):
        known = [value for value in seconds if value is not None]
        if len(known) < 30:
            assert np.isnan(rate)
        else:
            assert float(rate) == pytest.approx(sum(known) / len(known), rel=4e-4, abs=1e-4)
