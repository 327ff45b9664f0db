"""The plant that the learnt knee is measured on, and the other limiters' formulas against their published speeds."""

from __future__ import annotations

import numpy as np
import pytest

from bench.scaler import limiters
from bench.scaler.knee import settled_after
from bench.scaler.knee_plant import Plant
from bench.scaler.profiles import closed_network_s, cpu_bound, memory_cliff, profiles


def updates(limiter: limiters.Limiter, to: float, *, rtt_s: float, failures: float = 0.0, most: int = 500) -> int:
    down = limiter.limit > to
    for count in range(1, most):
        limiter.update(limiter.limit, rtt_s, 20, failures)
        if (limiter.limit <= to) if down else (limiter.limit >= to):
            return count
    return most


def test_aimd_needs_13_drops_from_200_to_50() -> None:
    # 200 x 0.9^13 = 50.8: the figure is a rounded one.
    assert updates(limiters.Aimd(200.0), 51.0, rtt_s=0.1, failures=1.0) == 13


def test_vegas_needs_10_to_14_updates_from_20_to_100_while_no_queue_is_seen() -> None:
    assert 8 <= updates(limiters.Vegas(20.0, np.random.default_rng(1)), 100.0, rtt_s=0.1) <= 14


def test_gradient2_grows_by_0_8_an_update() -> None:
    assert updates(limiters.Gradient2(20.0), 100.0, rtt_s=0.1) in (100, 101)


def test_gradient2_ratchets_up_under_a_steadily_bad_latency() -> None:
    limiter = limiters.Gradient2(20.0)
    assert updates(limiter, 200.0, rtt_s=30.0) < 230


def test_envoy_needs_9_updates_from_3_to_100_at_a_gradient_of_one() -> None:
    limiter = limiters.Envoy(3.0, np.random.default_rng(1))
    limiter.min_s, limiter.limit, limiter.next_probe_s = 0.1, 3.0, 1e9
    # minRTT x 1.25 / 0.125 = 1: L' = L + sqrt(L)
    assert 15 <= updates(limiter, 100.0, rtt_s=0.125) <= 20
    limiter.limit = 3.0
    assert 8 <= updates(limiter, 100.0, rtt_s=0.1) <= 10


def test_a_closed_network_of_one_server_is_the_known_formula() -> None:
    # k customers, one server of 0.2 s, no delay to speak of: R = 0.2 k.
    latency = closed_network_s(servers=1, service_s=0.2, delay_s=1e-9)
    assert latency[1:10] == pytest.approx(0.2 * np.arange(1, 10), rel=1e-6)


def test_knees_follow_their_definition() -> None:
    for profile in profiles():
        good = np.where(profile.error_ratio < 0.02, profile.goodput_rps, 0.0)
        at = int(np.ceil(profile.knee))
        assert good[at] >= 0.95 * good.max() > good[at - 1]
    assert memory_cliff().knee < 20


def test_the_plant_keeps_littles_law_and_its_limits() -> None:
    profile = cpu_bound()
    plant = Plant([profile] * 3, 4, 3)
    plant.limit[:], plant.level[:] = 10.0, 5.0
    seen = plant.run(60)
    assert seen.in_flight.max() <= 10.0
    k, ended = seen.in_flight[10:].sum(), seen.completions[10:].sum()
    assert k / ended == pytest.approx(
        float(profile.latency_s[5]), rel=0.15
    )  # load varies: some seconds are past the bend


@pytest.mark.parametrize(
    ("limits", "after"),
    [([1.0, 1.0], 1), ([0.5, 0.8, 1.0, 1.05], 3), ([1.0, 1.2], None), ([0.5, 1.0, 1.3, 0.95], 4)],
)
def test_settled_means_to_the_end(limits: list[float], after: int | None) -> None:
    assert settled_after(limits) == after
