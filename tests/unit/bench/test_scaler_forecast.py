"""The forecast on the shipped traces: what earns a weight and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from bench.scaler_forecast import TRACES, load, walk, wapes


@pytest.mark.parametrize("name", TRACES)
def test_the_shipped_traces_are_weeks_of_minutes(name):
    rates = load(name)
    assert len(rates) >= 14 * 1440
    assert np.isfinite(rates).mean() > 0.9
    assert np.nanmin(rates) >= 0


@pytest.mark.parametrize("name", ["servegen_large", "servegen_mid"])
@pytest.mark.parametrize("horizon", [3, 60])
def test_traffic_that_does_not_repeat_earns_nothing(name, horizon):
    found = walk(load(name), horizon)
    assert found["weight_mean"] == 0.0
    assert found["cost_with_floor_ratio"] == 1.0


def test_days_with_matches_earn_a_weight_an_hour_ahead_and_none_at_a_start_time():
    rates = load("worldcup_cup")
    hour = walk(rates, 60)
    assert hour["weight_mean"] > 0.3
    assert hour["beyond_with_floor_percent"] < 0.8 * hour["beyond_percent"]
    assert hour["cost_with_floor_ratio"] < 1.1
    assert hour["covered_ratio"] == pytest.approx(0.9, abs=0.03)
    assert walk(rates, 3)["weight_mean"] == 0.0


def test_the_forecast_beats_yesterday_and_the_last_value_where_days_repeat():
    found = wapes(load("worldcup_cup"), 60, 1)
    assert found["forecast"] < 0.85 * min(found["last"], found["mean10"])
    assert found["forecast"] < 0.5 * found["yesterday"]
