"""The other rivals: what their documentation and sources say they do, as tables of seconds and answers."""

import math

import numpy as np
import pytest

from bench.scaler.rivals import RIVALS
from bench.scaler.rivals.aibrix import AiBrix
from bench.scaler.rivals.hpa import Fresh, Hpa, Pipeline
from bench.scaler.rivals.keda import Keda
from bench.scaler.rivals.ray import RayServe
from bench.scaler.rivals.seen import WindowMaximum, WindowMean, requests
from bench.scaler.rivals.spec import Spec
from scaler.seen import Sample
from scaler.simulate.load import Load
from scaler.simulate.run import simulate
from scaler.simulate.scorecard import scorecard
from scaler.simulate.world import World
from tests.support.rival_seconds import a_fleet, a_second, answers, obeyed

MOST = 100_000


def an_hpa(target=10.0, maximum=MOST):
    return Hpa(target, 8, 60, maximum, metric=Fresh())


def hpa_once(load, replicas, target=10.0):
    """Return the first answer; a shrink is looked at 300 s after the beginning."""
    rival = an_hpa(target)
    rival.decide(0.0, a_fleet(replicas))
    rival.see(a_second(301.0, load), a_fleet(replicas))
    return rival.decide(315.0, a_fleet(replicas))


class TestHpa:
    """Kubernetes documentation "Horizontal Pod Autoscaling": algorithm details and default behaviour."""

    @pytest.mark.parametrize(
        ("load", "replicas", "wanted"),
        [
            (200.0, 10, 20),  # twice the target: twice the pods
            (50.0, 10, 5),  # half of it: half of them
            (109.0, 10, 10),  # within a tenth
            (110.0, 10, 10),
            (111.0, 10, 12),  # outside: rounded up
            (91.0, 10, 10),
            (89.0, 10, 9),
        ],
    )
    def test_wants_load_over_target_outside_the_tolerance(self, load, replicas, wanted):
        assert hpa_once(load, replicas) == wanted

    def test_ignores_the_forty_first_task_on_ten_pods_that_hold_four_each(self):
        """As kubernetes/kubernetes 116984 reports."""
        assert hpa_once(41.0, 10, target=4.0) == 10

    @pytest.mark.parametrize(("replicas", "wanted"), [(1, 5), (3, 7), (4, 8), (10, 20)])
    def test_grows_by_four_or_double_whichever_is_more_per_period(self, replicas, wanted):
        assert hpa_once(10_000.0, replicas) == wanted

    def test_two_answers_in_one_period_share_its_growth(self):
        rival = an_hpa()
        rival.see(a_second(1.0, 10_000.0), a_fleet(10))
        assert rival.decide(5.0, a_fleet(10)) == 20
        assert rival.decide(10.0, a_fleet(10, 10)) == 20
        assert rival.decide(20.0, a_fleet(10, 10)) == 40

    def test_shrinks_to_the_most_it_wanted_in_five_minutes(self):
        given = answers(an_hpa(), [100.0] * 15 + [200.0] * 15 + [50.0] * 400, a_fleet(20))
        assert {given[at_s] for at_s in range(15, 330, 15)} == {20}
        assert given[330] == 5

    def test_the_count_it_finds_is_its_first_recommendation(self):
        given = answers(an_hpa(), [50.0] * 330, a_fleet(20))
        assert given[300] == 20
        assert given[315] == 5

    def test_counts_starting_pods_among_those_it_has(self):
        rival = an_hpa()
        rival.see(a_second(1.0, 200.0), a_fleet(10, 10))
        assert rival.decide(15.0, a_fleet(10, 10)) == 20

    def test_holds_without_a_metric(self):
        assert answers(an_hpa(), [None] * 30, a_fleet(7, 2)) == {15: 9, 30: 9}

    def test_its_metric_comes_late(self):
        pipeline = Pipeline(window_s=15.0, publish_s=15.0)
        seen = {}
        for at_s in range(1, 47):
            pipeline.add(float(at_s), 10.0 if at_s <= 20 else 40.0)
            seen[at_s] = pipeline.at(float(at_s))
        assert seen[15] is None
        assert seen[16] == seen[30] == 10.0
        assert seen[31] == pytest.approx((4 * 10.0 + 11 * 40.0) / 15)
        assert seen[46] == 40.0

    def test_so_the_plain_one_answers_a_step_a_sync_after_the_one_with_a_fresh_metric(self):
        loads = [5.6] * 29 + [560.0] * 60
        plain = answers(Hpa(5.6, 8, 60, MOST), loads, a_fleet(1))
        fresh = answers(Keda(5.6, 8, 60, MOST), loads, a_fleet(1))
        assert next(at_s for at_s in fresh if fresh[at_s] > 1) == 30
        assert next(at_s for at_s in plain if plain[at_s] > 1) == 45


class TestKeda:
    """keda.sh "Scaling Deployments" and "ScaledObject": poll 30 s, cool-down 300 s, the rest is the HPA's."""

    def test_grows_as_an_hpa_does(self):
        loads = [56.0] * 30 + [5600.0] * 30 + [56.0] * 400
        assert answers(Keda(5.6, 8, 60, MOST), loads, a_fleet(10)) == answers(
            Hpa(5.6, 8, 60, MOST, metric=Fresh()), loads, a_fleet(10)
        )

    def test_wakes_at_a_poll_and_sleeps_after_the_cool_down(self):
        rival = Keda(5.6, 8, 60, MOST, min_replicas=0)
        awake = answers(rival, [0.0] * 315, a_fleet(1))
        assert (awake[300], awake[315]) == (1, 0)  # the first look, at 15 s, counts as activity
        asleep = answers(rival, [20.0] * 30, a_fleet(0), begin_s=316)
        assert (asleep[330], asleep[345]) == (0, 1)  # polls at 315 and 345 s

    def test_one_that_sleeps_hands_over_to_the_hpa_once_there_is_a_replica(self):
        rival = Keda(5.6, 8, 60, MOST, min_replicas=0)
        assert answers(rival, [28.0] * 15, a_fleet(1))[15] == 5


class TestRay:
    """Ray Serve's autoscaling guide, autoscaling_policy.py: look back 30 s, pushed every 10 s, up 30 s, down 600 s."""

    def test_grows_when_more_was_wanted_for_thirty_seconds_without_a_break(self):
        given = answers(RayServe(5.0, 8, 60, MOST), [5.0] * 11 + [500.0] * 60, a_fleet(1))
        grown = [at_s for at_s in given if given[at_s] > 1]
        assert grown[0] == 21 + 30  # first pushed with the step in it at 21 s

    def test_a_moment_of_agreement_begins_the_wait_anew(self):
        loads = [5.0] * 11 + [10.0] * 20 + [0.0] * 30 + [10.0] * 25
        given = answers(RayServe(5.0, 8, 60, MOST), loads, a_fleet(1))
        assert set(given.values()) == {1}

    def test_shrinks_after_ten_minutes(self):
        given = answers(RayServe(5.0, 8, 60, MOST), [5.0] * 700, a_fleet(10))
        assert given[611 - 1] == 10
        assert given[11 + 600] == 1

    @pytest.mark.parametrize(
        ("loads", "moved_s", "count"),
        [
            # Less is pushed at 21 and 31 s, more from 41 s on.
            ([50.0] * 11 + [5.0] * 20 + [500.0] * 100, 41 + 30, 100),
            # More is pushed at 21, 31 and 41 s, less from 51 s on.
            ([50.0] * 11 + [500.0] * 10 + [5.0] * 700, 51 + 600, 1),
        ],
        ids=["up", "down"],
    )
    def test_what_was_wanted_the_other_way_neither_lengthens_nor_shortens_the_wait(self, loads, moved_s, count):
        given = answers(RayServe(5.0, 8, 60, MOST), loads, a_fleet(10))
        assert {given[at_s] for at_s in range(1, moved_s)} == {10}
        assert given[moved_s] == count

    def test_takes_what_is_wanted_at_the_end_of_the_wait_not_at_its_start(self):
        given = answers(RayServe(5.0, 8, 60, MOST), [5.0] * 11 + [50.0] * 30 + [100.0] * 30, a_fleet(1))
        assert given[51] == math.ceil((20 * 50 + 10 * 100) / 30 / 5.0)

    def test_wakes_one_at_once(self):
        rival = RayServe(5.0, 8, 60, MOST)
        for at_s in range(1, 12):
            rival.see(a_second(float(at_s), 0.0, queued=50.0), a_fleet(0))
        assert rival.decide(11.0, a_fleet(0)) == 1

    def test_says_what_it_said_while_nothing_is_known(self):
        assert set(answers(RayServe(5.0, 8, 60, MOST), [None] * 60, a_fleet(4)).values()) == {4}


class TestAiBrix:
    """vllm-project/aibrix, pkg/controller/podautoscaler, its unit tests' totals; defects mended as the module says."""

    @pytest.mark.parametrize(
        ("load", "replicas", "wanted"),
        [
            (80.0, 4, 8),  # 4 pods at 20 each, target 10: unmended it wants 2
            (1000.0, 4, 8),  # at most double
            (43.0, 4, 4),  # within a tenth
            (45.0, 4, 5),
        ],
    )
    def test_wants_total_over_target(self, load, replicas, wanted):
        assert answers(AiBrix(10.0, 8, 60, MOST), [load] * 10, a_fleet(replicas))[10] == wanted

    def test_doubles_what_it_has_already_doubled_while_that_still_starts(self):
        counts = obeyed(AiBrix(10.0, 8, 60, MOST), [1000.0] * 50, ready=2, start_s=60)
        assert [counts[at_s - 1] for at_s in (10, 20, 30, 40, 50)] == [4, 8, 16, 32, 64]

    def test_in_a_panic_it_never_shrinks_and_averages_a_minute(self):
        given = answers(AiBrix(10.0, 8, 60, MOST), [20.0] * 180 + [100.0] * 30, a_fleet(20))
        assert given[180] == 10
        assert given[210] == 10
        surging = answers(AiBrix(10.0, 8, 60, MOST), [20.0] * 180 + [400.0] * 60, a_fleet(20))
        assert surging[240] == 40

    def test_twice_the_load_is_no_panic_yet(self):
        """20, then 80: after a minute the short window shows exactly twice the long one, and never more."""
        given = answers(AiBrix(10.0, 8, 60, MOST), [20.0] * 180 + [80.0] * 120, a_fleet(4))
        assert given[240] == 4

    def test_idle_is_calm(self):
        given = answers(AiBrix(10.0, 8, 60, MOST), [0.0] * 400, a_fleet(8))
        assert given[10] == 4
        assert given[400] == 4

    def test_shrinks_to_the_most_of_five_minutes(self):
        given = answers(AiBrix(10.0, 8, 60, MOST), [150.0] * 10 + [60.0] * 700, a_fleet(10))
        assert given[10] == 15
        assert given[300] == 15
        assert given[700] == 6

    def test_holds_while_nothing_is_known(self):
        assert set(answers(AiBrix(10.0, 8, 60, MOST), [None] * 40, a_fleet(5, 1)).values()) == {6}


class TestSpec:
    def test_grows_to_the_mean_of_twenty_seconds_without_a_cap(self):
        given = answers(Spec(5.6, 8, 60, MOST), [5.6] * 20 + [5600.0] * 20, a_fleet(1))
        assert given[20] == 1
        assert given[30] == math.ceil((10 * 5.6 + 10 * 5600.0) / 20 / 5.6)
        assert given[40] == 1000

    def test_holds_the_most_of_five_minutes(self):
        given = answers(Spec(5.6, 8, 60, MOST), [56.0] * 20 + [5.6] * 400, a_fleet(10))
        assert given[315] == 10
        assert given[340] == 1


@pytest.mark.parametrize("name", sorted(RIVALS))
class TestAll:
    def test_is_within_one_and_the_maximum(self, name):
        loads = [0.0] * 700 + [1e6] * 200 + [None] * 40
        counts = obeyed(RIVALS[name](5.6, 8.0, 60.0, 50), loads, ready=1, start_s=5)
        assert min(counts) >= 1
        assert max(counts) == 50

    def test_settles_on_a_load_that_stays(self, name):
        counts = obeyed(RIVALS[name](5.6, 8.0, 5.0, MOST), [56.0] * 1500, ready=10, start_s=5)
        assert set(counts[900:]) == {10}

    def test_half_a_reading_is_none(self, name):
        rival = RIVALS[name](5.6, 8.0, 5.0, MOST)
        fleet = a_fleet(3)
        for at_s in range(1, 61):
            rival.see(Sample(at_s=float(at_s), in_flight=None, queued=9000.0), fleet)
            if at_s % rival.period_s == 0:
                assert rival.decide(float(at_s), fleet) == 3


@pytest.mark.parametrize("start_s", [60, 180])
@pytest.mark.parametrize("name", sorted(RIVALS))
def test_a_step_that_needs_nineteen_replicas_makes_all_of_them_order_hundreds(name, start_s):
    """Starting capacity is not in their formulas and a backlog is: knative/serving 13284 and 3153, aibrix 2670."""
    rate = np.where(np.arange(1600) < 600, 10, 100)
    second = np.repeat(np.arange(rate.size), rate)
    place = np.arange(second.size) - np.repeat(np.cumsum(rate) - rate, rate)
    load = Load(arrival_s=second + place / rate[second], service_s=np.ones(second.size), duration_s=rate.size)
    world = World(start_s=float(start_s), initial_replicas=2)
    run = simulate(load, RIVALS[name](5.6, 8.0, float(start_s), MOST), world)
    assert scorecard(run, 5.6).peak_replicas > 400


def test_a_window_mean_of_nothing_is_missing():
    mean = WindowMean(10.0)
    mean.add(1.0, None)
    assert mean.at(1.0) is None
    mean.add(2.0, 4.0)
    mean.add(3.0, 8.0)
    assert mean.at(3.0) == 6.0
    assert mean.at(12.0) == 8.0
    assert mean.at(13.0) is None


def test_a_window_maximum_forgets_what_is_older():
    window = WindowMaximum(10.0)
    assert [window.add(at_s, value) for at_s, value in [(0.0, 9), (5.0, 3), (9.9, 1), (10.0, 2), (15.0, 1)]] == [
        9, 9, 9, 3, 2,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("in_flight", "queued", "load"),
    [(3.0, 2.0, 5.0), (0.0, 0.0, 0.0), (None, 2.0, None), (3.0, None, None), (math.nan, 0.0, None)],
)
def test_load_is_what_runs_and_what_waits(in_flight, queued, load):
    assert requests(Sample(at_s=1.0, in_flight=in_flight, queued=queued)) == load
