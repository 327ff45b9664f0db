"""The fitted curve and its knee."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaler.vertical.bins import Points
from scaler.vertical.curve import Curve, fit
from scaler.vertical.knee import knee, p95_ratio


def some_points(k: np.ndarray, latency_s: np.ndarray, completions: float = 2000.0, p95_times: float = 2.0) -> Points:
    return Points(k=k, latency_s=latency_s, p95_s=p95_times * latency_s, completions=np.full(k.size, completions))


def a_curve(**words: Any) -> Curve:
    seen = {"is_saturated": True, "is_straight_seen": True, "lowest_k": 1.0, "highest_k": 40.0}
    return Curve(**{"a_s": 0.5, "b_s": 0.01, "power": 16.0, "capacity_rps": 20.0} | seen | words)


LEVELS = np.geomspace(1, 40, 25)


def test_a_bent_curve_is_found_again() -> None:
    true = a_curve()
    found = fit(some_points(LEVELS, true.latency_s(LEVELS)), 10.0)
    assert found is not None
    assert found.is_saturated
    assert found.capacity_rps == pytest.approx(20.0, rel=0.03)
    assert found.a_s == pytest.approx(0.5, rel=0.02)
    assert found.latency_s(LEVELS) == pytest.approx(true.latency_s(LEVELS), rel=0.04)


def test_a_straight_curve_needs_no_capacity() -> None:
    found = fit(some_points(LEVELS, 0.5 + 0.01 * LEVELS), 10.0)
    assert found is not None
    assert not found.is_saturated
    assert (found.a_s, found.b_s) == pytest.approx((0.5, 0.01), rel=1e-3)


def test_where_all_lies_past_the_bend_the_knee_is_below_what_was_seen() -> None:
    k = np.linspace(20, 40, 8)
    points = some_points(k, k / 20.0)
    found = fit(points, 30.0)
    assert found is not None
    assert found.is_saturated
    assert not found.is_straight_seen
    assert knee(found, points, None).k == pytest.approx(20.0, rel=0.15)


def test_few_requests_prove_no_bend() -> None:
    k = np.linspace(20, 24, 4)
    found = fit(some_points(k, k / 20.0, completions=6.0), 22.0)
    assert found is not None
    assert not found.is_saturated


def test_a_lucky_thin_bin_does_not_hide_the_capacity() -> None:
    true = a_curve(b_s=0.0)
    points = some_points(np.append(LEVELS, 44.0), np.append(true.latency_s(LEVELS), 0.9))
    points.completions[-1] = 15.0
    found = fit(points, 10.0)
    assert found is not None
    assert found.capacity_rps == pytest.approx(20.0, rel=0.05)


def test_levels_past_a_wall_do_not_bend_the_curve() -> None:
    k = np.arange(5.0, 40.0, 2.0)
    latency = np.where(k > 20, 3.0, 1.0) * (0.5 + 0.01 * k)
    found = fit(some_points(k, latency), 18.0, wall_k=20.0)
    assert found is not None
    assert (found.a_s, found.b_s) == pytest.approx((0.5, 0.01), rel=0.01)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_levels_are_no_curve(count: int) -> None:
    assert fit(some_points(LEVELS[:count], LEVELS[:count]), 5.0) is None


def test_the_knee_is_where_95_percent_of_the_throughput_is_reached() -> None:
    curve, points = a_curve(b_s=0.0, power=32.0), some_points(LEVELS, LEVELS)
    found = knee(curve, points, None)
    assert found.k is not None
    throughput = found.k / curve.latency_s(np.array([found.k]))[0]
    assert throughput == pytest.approx(0.95 * 20.0, rel=0.01)
    assert found.latency_k == np.inf


def test_a_latency_limit_cuts_the_levels_before_the_largest_throughput_is_looked_for() -> None:
    curve = a_curve(capacity_rps=np.inf, b_s=0.05, is_saturated=False)
    points = some_points(LEVELS, curve.latency_s(LEVELS))
    found = knee(curve, points, 2.0)  # p95 = 2 x mean: R <= 1 s, k <= 10
    assert found.latency_k == pytest.approx(10.0, rel=0.02)
    assert found.k is not None
    assert found.k < 10.0 < found.throughput_k


def test_no_level_within_the_limit_is_said() -> None:
    found = knee(a_curve(), some_points(LEVELS, LEVELS), 0.1)
    assert found.k is None
    assert found.latency_k is None
    assert found.throughput_k > 0


def test_a_rising_curve_is_read_beyond_what_was_seen_and_a_flat_one_is_not() -> None:
    rising = a_curve(b_s=0.0, capacity_rps=np.inf, is_saturated=False, highest_k=10.0)
    flat = a_curve(a_s=0.02, b_s=0.05, capacity_rps=np.inf, is_saturated=False, highest_k=10.0)
    points = some_points(LEVELS, LEVELS)
    assert knee(rising, points, None).k == pytest.approx(38.0, rel=0.02)
    assert (knee(flat, points, None).k or 0) < 10.0


def test_a_missing_percentile_counts_as_the_mean_and_a_thin_one_leans_on_the_rest() -> None:
    points = some_points(LEVELS, LEVELS)
    points.p95_s[:] = np.nan
    assert p95_ratio(points, np.array([3.0])) == pytest.approx(1.0)
    points = some_points(LEVELS, LEVELS)
    points.p95_s[4], points.completions[4] = 100 * points.latency_s[4], 5.0
    assert p95_ratio(points, points.k[4:5])[0] < 15
