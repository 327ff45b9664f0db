"""Knative re-made: the behaviour cases of its own unit tests (knative/serving v0.48.0, pkg/autoscaler), by number.

Defaults of those tests: panic ratio 2, rates 10 up and 10 down, stable window 60 s, a pod holds target / 0.75.
"""

import math
from dataclasses import replace

import pytest

from bench.scaler.rivals.knative import Knative, Kpa, KpaSpec
from bench.scaler.rivals.knative_windows import Buckets, DelayWindow
from tests.support.rival_seconds import a_fleet, a_second, answers

SPEC = KpaSpec(target=10.0, total=10.0 / 0.75, up_rate=10.0, down_rate=10.0, burst_capacity=100.0)


def started(spec=SPEC, ready=1):
    return Kpa(spec, ready=ready, now_s=0.0)


def desired(kpa, stable, panic, *, ready=1, now_s=0.0):
    return kpa.scale(stable, panic, ready=ready, now_s=now_s).desired


@pytest.mark.parametrize(
    ("number", "changes", "ready", "loads"),
    [
        (1, {}, 1, [(50, 10, 5), (100, 10, 10)]),
        (2, {}, 8, [(100, 100, 10), (50, 50, 5)]),
        (3, {}, 1, [(1, 0, 1), (0, 0, 0)]),
        (4, {}, 5, [(50, 50, 5)]),
        (5, {"target": 1.0, "up_rate": 1.1}, 2, [(3, 3, 3)]),
        (6, {"down_rate": 1.1}, 100, [(1, 1, 90)]),
        (6, {"down_rate": 1.1, "is_reachable": False}, 100, [(1, 1, 1)]),
        (7, {}, 1, [(1000, 1001, 10)]),
        (7, {}, 10, [(1000, 1001, 100)]),
        (8, {}, 100, [(1, 1, 10)]),
        (8, {}, 10, [(1, 1, 1)]),
        (9, {}, 1, [(50, 100, 10)]),
        (10, {"target": 1.0}, 5, [(50, 30, 50)]),
        (10, {"target": 1.0}, 5, [(20, 30, 30)]),
        (19, {}, 0, [(1000, 888, 10)]),
    ],
)
def test_what_is_wanted_of_a_load(number, changes, ready, loads):
    kpa = started(replace(SPEC, **changes))
    for stable, panic, wanted in loads:
        assert desired(kpa, stable, panic, ready=ready) == wanted, f"case {number}"


def test_11_a_panic_holds_its_count_for_a_stable_window():
    kpa = started()
    assert desired(kpa, 100, 100, ready=1, now_s=0) == 10
    assert desired(kpa, 100, 1000, ready=10, now_s=0) == 100
    assert desired(kpa, 1, 1, ready=10, now_s=30) == 100
    assert desired(kpa, 1, 1, ready=10, now_s=61) == 1


def test_12_and_13_a_panic_is_renewed_only_while_the_load_is_twice_the_capacity():
    for later, wanted, renewed_s in (((30, 41), 41, 0.0), ((30, 80), 80, 30.0)):
        kpa = started(replace(SPEC, target=1.0))
        assert desired(kpa, 11, 25, ready=10, now_s=0) == 25
        assert desired(kpa, *later, ready=40, now_s=30) == wanted
        assert kpa.panic_since_s == renewed_s
        if renewed_s == 0.0:
            assert desired(kpa, 50, 56, ready=55, now_s=62) == 50
            assert kpa.panic_since_s is None


def test_14_growth_follows_a_load_that_multiplies_and_then_stays():
    kpa = started(replace(SPEC, target=1.0))
    for now_s, (load, ready) in enumerate([(6, 1), (36, 6), (216, 36), (1296, 216), (1296, 1296)]):
        assert desired(kpa, load, load, ready=ready, now_s=2.0 * now_s) == load


def delayed(is_reachable=True):
    return replace(SPEC, panic_ratio=100.0, shrink_delay_s=300.0, is_reachable=is_reachable)


def test_15_and_16_a_lower_count_waits_for_the_delay():
    kpa = started(delayed(), ready=0)
    for now_s, load, wanted in [
        (2, 40, 4), (300, 0, 4), (302, 0, 0),
        (540, 40, 4), (600, 30, 4), (660, 0, 4), (840, 0, 3), (900, 0, 0),
    ]:  # fmt: skip
        assert desired(kpa, load, load, now_s=now_s) == wanted, now_s


def test_17_without_a_route_it_shrinks_at_once():
    kpa = started(delayed(), ready=0)
    assert desired(kpa, 40, 40, now_s=2) == 4
    assert desired(kpa, 0, 0, now_s=60) == 4
    kpa.update(delayed(is_reachable=False))
    assert desired(kpa, 0, 0, now_s=62) == 0


def test_18_without_load_or_pod_count_it_answers_nothing():
    assert started().scale(None, None, ready=1, now_s=0.0) is None
    assert started().scale(1000.0, 888.0, ready=None, now_s=0.0) is None


def test_20_a_changed_target_counts_at_once():
    kpa = started()
    assert desired(kpa, 100, 101, ready=1) == 10
    kpa.update(replace(SPEC, target=1.0))
    assert desired(kpa, 100, 101, ready=10) == 100


@pytest.mark.parametrize(("ready", "floor"), [(None, 1), (0, 1), (1, 1), (2, 2)])
def test_21_it_starts_in_a_panic_where_more_than_one_pod_is_ready(ready, floor):
    kpa = started(ready=ready)
    assert (kpa.panic_since_s is not None) == (floor == 2)
    assert desired(kpa, 10, 10, ready=2, now_s=1) == floor


@pytest.mark.parametrize(("burst", "headroom"), [(100.0, math.floor(10 / 0.75 - 100 - 50)), (0.0, 0), (-1.0, -1)])
def test_22_headroom_for_a_burst(burst, headroom):
    kpa = started(replace(SPEC, burst_capacity=burst))
    assert kpa.scale(50.0, 50.0, ready=1, now_s=0.0).burst_headroom == pytest.approx(headroom, abs=1)


def test_23_a_window_averages_what_it_has_and_forgets_what_it_lost():
    buckets = Buckets(5)
    assert buckets.is_empty(0)
    for second in range(5):
        buckets.record(second, second + 1.0)
    assert buckets.average(4) == pytest.approx(3.0)
    assert buckets.average(6) == pytest.approx((15 - 1 - 2) / 3)
    assert buckets.average(10) == 0.0
    assert not buckets.is_empty(9)
    assert buckets.is_empty(10)


def test_23_a_window_that_is_not_filled_is_averaged_over_the_seconds_seen():
    buckets = Buckets(60)
    buckets.record(0, 10.0)
    buckets.record(3, 10.0)  # two seconds without a value in between count as 0
    assert buckets.average(3) == pytest.approx(5.0)


def test_24_a_late_value_joins_its_second_unless_the_window_has_passed_it():
    buckets = Buckets(5)
    for second in (10, 11, 12):
        buckets.record(second, 1.0)
    buckets.record(11.9, 3.0)
    assert buckets.average(12) == pytest.approx(2.0)
    buckets.record(8, 4.0)  # older than the first: the window now begins there
    assert buckets.average(12) == pytest.approx(2.0)
    buckets.record(7, 100.0)
    assert buckets.average(12) == pytest.approx(2.0)


def test_a_silent_window_is_begun_anew():
    buckets = Buckets(5)
    buckets.record(0, 100.0)
    buckets.record(5, 1.0)
    assert buckets.average(5) == 1.0


def test_of_two_counts_in_one_tick_the_larger_stays():
    window = DelayWindow(10, 2)
    assert [window.record(at_s, count) for at_s, count in [(0, 3), (1, 2), (2, 1), (10, 1)]] == [3, 3, 3, 1]


def test_activation_lifts_the_first_step_only():
    kpa = started(replace(SPEC, activation_replicas=3))
    assert desired(kpa, 5, 5, ready=0) == 3
    assert desired(started(replace(SPEC, activation_replicas=3)), 0, 0, ready=1) == 0


def test_the_rival_averages_a_minute_and_panics_over_six_seconds():
    given = answers(Knative(5.6, 8, 60, 1000), [5.0] * 60 + [100.0] * 6, a_fleet(1))
    assert given[60] == 1
    assert given[66] == math.ceil(100 / 5.6)


def test_the_rival_holds_while_nothing_is_known():
    rival = Knative(5.6, 8, 60, 1000)
    assert answers(rival, [None] * 4, a_fleet(3)) == {2: 3, 4: 3}
    rival.see(a_second(5.0, 5.0, queued=None), a_fleet(3))
    assert rival.decide(6.0, a_fleet(3)) == 3


def test_what_waits_counts_as_load():
    rival = Knative(5.6, 8, 60, 1000)
    rival.see(a_second(2.0, 8.0, queued=48.0), a_fleet(1))
    assert rival.decide(2.0, a_fleet(1)) == 10


def test_the_rival_keeps_one_and_stays_under_the_maximum():
    assert answers(Knative(5.6, 8, 60, 4), [0.0] * 4 + [1000.0] * 4, a_fleet(1)) == {2: 1, 4: 1, 6: 4, 8: 4}
