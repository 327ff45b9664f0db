"""The least that stays free where pods leave: by hand where it is plain, and never above what a run reaches."""

from __future__ import annotations

import pytest

from bench.lifetimes_bound import least_unallocated
from binpack.lifetimes import LifeSetting, Lived, simulate_lifetimes
from tests.support.berths import pod, seat, share

NODES = [seat("a", (1000, 1000), cpu=64).node]


def test_a_share_that_leaves_a_rest_nobody_wants_leaves_it_at_any_load() -> None:
    lived = [Lived(pod=pod("big", ask=share(800)), life_s=100.0)]
    assert least_unallocated(NODES, lived, 1.0) == pytest.approx(0.2)
    assert least_unallocated(NODES, lived, 3.0) == pytest.approx(0.2)


def test_below_full_load_what_does_not_arrive_stays_free_and_rests_are_filled_by_what_fits_them() -> None:
    lived = [Lived(pod=pod("big", ask=share(800)), life_s=100.0), Lived(pod=pod("small", ask=share(200)), life_s=100.0)]
    assert least_unallocated(NODES, lived, 0.6) == pytest.approx(0.4, abs=0.02)
    assert least_unallocated(NODES, lived, 1.0) == pytest.approx(0.0, abs=0.01)


def test_no_run_leaves_less_free() -> None:
    lived = [
        Lived(pod=pod("big", ask=share(700)), life_s=900.0),
        Lived(pod=pod("half", ask=share(500)), life_s=400.0),
    ]
    for load in (0.7, 1.0, 1.3):
        run = simulate_lifetimes(NODES, lived, LifeSetting(load_ratio=load, days=2.0, warm_up_days=0.5))
        offered_more = max(0.0, run.offered_ratio - load)
        assert run.unallocated_gpu_ratio >= least_unallocated(NODES, lived, load) - offered_more - 0.01
