"""The bench's loads: as much work as the windows they stand for hold, and the same requests for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from bench.scaler.cells import TARGET
from bench.scaler.workloads import LEAD_IN_S, WORKLOADS, load, piecewise

# Thousand replica-seconds that a fleet at the target needs after the lead-in, published with the rules' first figures.
IDEALS = {
    "step": 18, "spike": 4, "ramp": 24, "flat": 32, "code": 24, "conv": 93, "mooncake": 51, "nasa": 258,
    "servegen-large": 445, "servegen-mid": 651, "worldcup": 336, "nasa-20": 381, "worldcup-14": 522,
    "worldcup-8": 141, "servegen-large-11": 234, "servegen-mid-11": 510,
}  # fmt: skip


@pytest.mark.parametrize("name", IDEALS)
def test_the_work_of_each_load_is_that_of_its_window(name):
    requests = WORKLOADS[name].make(np.random.default_rng(5))
    work = requests.service_s[requests.arrival_s >= LEAD_IN_S].sum() / TARGET / 1000
    assert work == pytest.approx(IDEALS[name], rel=0.02, abs=0.5)


@pytest.mark.parametrize("name", ["step", "code", "servegen-large-11"])
def test_the_same_seed_gives_the_same_requests_and_another_seed_others(name):
    first, other = load(name, 1), load(name, 2)
    load.cache_clear()
    again = load(name, 1)
    assert again is not first
    np.testing.assert_array_equal(first.arrival_s, again.arrival_s)
    np.testing.assert_array_equal(first.service_s, again.service_s)
    assert first.arrival_s[:100].tolist() != other.arrival_s[:100].tolist()


def test_a_ramp_has_the_rate_of_its_line():
    requests = piecewise([(0, 0), (1000, 200)])(np.random.default_rng(0))
    counts, _ = np.histogram(requests.arrival_s, [0, 250, 500, 750, 1000])
    np.testing.assert_allclose(counts, [6250, 18750, 31250, 43750], rtol=0.03)


def test_the_busiest_minute_of_a_web_day_has_a_hundred_requests_a_second():
    requests = load("nasa", 1)
    minutes, _ = np.histogram(requests.arrival_s[requests.arrival_s >= 300], np.arange(300, 43_501, 60))
    assert minutes.max() / 60 == pytest.approx(100, rel=0.05)


def test_gaps_of_the_llm_rates_vary_as_the_pool_does():
    requests = load("servegen-mid", 1)
    counts = np.histogram(requests.arrival_s, np.arange(0, 43_501, 10))[0]
    steps = np.diff(counts.astype(float))
    dispersion = (steps**2).mean() / (2 * counts.mean())
    assert 5.5 < dispersion < 9.5  # CV 3: nine times a Poisson's over long windows


def test_the_lead_in_is_at_the_level_of_what_follows():
    for name in ("code", "conv", "mooncake"):
        requests = load(name, 1)
        before = requests.service_s[requests.arrival_s < LEAD_IN_S].sum()
        after = requests.service_s[(requests.arrival_s >= LEAD_IN_S) & (requests.arrival_s < 2 * LEAD_IN_S)].sum()
        assert before == pytest.approx(after, rel=0.02)
