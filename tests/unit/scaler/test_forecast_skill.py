"""The weight: earned by days that repeat, never by noise, lost more slowly than it is won."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaler.forecast.conformal import quantile
from scaler.forecast.points import points
from scaler.forecast.series import DAY_MIN
from scaler.forecast.skill import SCORED_MIN, Skill, skill, weight

NOTHING = Skill(hours=48, gain_ratio=0.0, low_ratio=0.0, wape_ratio=0.1, errors=np.zeros(0))


def days(count, seed=3, noise=0.05):
    """A rate that doubles and halves once a day, with noise."""
    minutes = np.arange(int(count * DAY_MIN))
    shape = 100.0 * (1.2 + np.sin(2 * np.pi * minutes / DAY_MIN)) ** 2
    return (shape * np.random.default_rng(seed).normal(1.0, noise, len(minutes))).clip(0).astype(np.float32)


def walk(count, seed=3):
    """A rate that remembers nothing of yesterday."""
    steps = np.random.default_rng(seed).normal(0.0, 0.02, int(count * DAY_MIN))
    return (100.0 * np.exp(np.cumsum(steps) - np.cumsum(steps).mean())).astype(np.float32)


def test_days_that_repeat_earn_the_whole_weight_an_hour_ahead():
    found = skill(days(9), 60)
    assert found.hours == 48
    assert found.low_ratio > 0.25
    assert weight(found, 0.0) == 1.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("horizon", [1, 15, 60])
def test_a_rate_that_remembers_nothing_earns_nothing(seed, horizon):
    assert weight(skill(walk(9, seed), horizon), 0.0) == 0.0


def test_a_steady_rate_earns_nothing_because_the_mean_is_as_good():
    steady = np.random.default_rng(1).poisson(600, 9 * DAY_MIN).astype(np.float32) / 60
    assert weight(skill(steady, 60), 0.0) == 0.0


@pytest.mark.parametrize(("count", "is_known"), [(1.0, False), (1.9, False), (2.2, True)])
def test_a_day_of_shape_and_a_day_of_scores_come_first(count, is_known):
    found = skill(days(count), 30)
    assert (found.low_ratio is not None) is is_known
    assert is_known or weight(found, 1.0) == 0.0, "also for one that had a weight before"


def test_gaps_are_not_scored():
    rates = days(9)
    rates[-SCORED_MIN // 2 :] = np.nan
    found = skill(rates, 60)
    assert found.hours == pytest.approx(24, abs=1)
    assert np.isfinite(found.errors).all()


def test_no_traffic_at_all_is_no_skill():
    found = skill(np.zeros(9 * DAY_MIN, np.float32), 30)
    assert (found.low_ratio, found.wape_ratio) == (None, None)


@pytest.mark.parametrize(
    ("low", "earlier", "expected"),
    [
        (None, 1.0, 0.0),
        (-0.5, 1.0, 0.0),
        (0.04, 0.3, 0.0),
        (0.05, 0.0, 0.0),
        (0.05, 0.3, 0.01),
        (0.09, 0.0, 0.0),
        (0.09, 0.1, 0.2),
        (0.10, 0.0, 0.25),
        (0.25, 0.0, 1.0),
        (0.90, 0.0, 1.0),
    ],
)
def test_it_takes_more_to_get_in_than_to_stay(low, earlier, expected):
    assert weight(replace(NOTHING, low_ratio=low), earlier) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("count", "confidence", "expected"), [(9, 0.9, 8.0), (19, 0.9, 17.0), (8, 0.9, None), (0, 0.5, None), (1, 0.5, 0.0)]
)
def test_the_quantile_is_the_next_of_n_plus_one(count, confidence, expected):
    assert quantile(np.arange(float(count)), confidence) == expected


def test_the_quantile_covers_what_it_says():
    covered = []
    for seed in range(40):
        errors = np.random.default_rng(seed).lognormal(0.0, 0.5, 400)
        covered.append((errors[200:] <= quantile(np.sort(errors[:200]), 0.9)).mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.015)


@pytest.mark.parametrize(
    ("rates", "rule"), [(days(9), "last"), (days(9, noise=0.3), "mean10")], ids=["smooth", "noisy"]
)
def test_the_gain_is_over_the_better_of_the_simple_rules_less_one_standard_error(rates, rule):
    horizon, first = 20, 9 * DAY_MIN - 20 + 1 - SCORED_MIN
    told = points(rates, first, first + SCORED_MIN, horizon)
    ours, simple = (np.abs(values - told.actual) for values in (told.combined, getattr(told, rule)))
    other = np.abs((told.mean10 if rule == "last" else told.last) - told.actual)
    assert simple.sum() < other.sum()
    hourly = (simple - ours).reshape(48, 60).sum(axis=1)
    error = np.sqrt(48) * np.std(hourly, ddof=1)
    found = skill(rates, horizon)
    assert found.gain_ratio == pytest.approx(hourly.sum() / simple.sum())
    assert found.low_ratio == pytest.approx((hourly.sum() - error) / simple.sum())
    assert found.wape_ratio == pytest.approx(ours.sum() / told.actual.sum())
