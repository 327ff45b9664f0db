"""One look ahead: how far, from what, why it counts or does not; and what `observe` makes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from scaler.forecast.codes import encode_all
from scaler.forecast.outlook import Outlook, OutlookState, Standing, as_status, look
from scaler.forecast.points import points
from scaler.forecast.report import Minute, Report, account, replicas_of
from scaler.forecast.series import DAY_MIN, History

MINUTE = 30_000_000
NOW_S = 60.0 * MINUTE + 20


def history(count=9, level=1.0):
    """Days that repeat; the last hour at `level` times its usual size."""
    minutes = np.arange(int(count * DAY_MIN))
    rates = 100.0 * (1.2 + np.sin(2 * np.pi * minutes / DAY_MIN)) ** 2
    rates *= np.random.default_rng(5).normal(1.0, 0.03, len(rates))
    rates[-60:] *= level
    return History.of(encode_all(rates.astype(np.float32)), MINUTE)


def looked(past=None, state=None, now_s=NOW_S, start_s=3600.0):
    return look(history() if past is None else past, state or OutlookState(), now_s, start_s)


@pytest.mark.parametrize(("start_s", "horizon_s"), [(0.0, 60.0), (5.0, 60.0), (60.0, 60.0), (61.0, 120.0)])
def test_it_never_looks_less_far_than_a_start_takes(start_s, horizon_s):
    assert looked(start_s=start_s)[0].horizon_s == horizon_s


def test_it_foresees_the_shape_at_the_present_size():
    usual, doubled = looked()[0], looked(history(level=2.0))[0]
    target = DAY_MIN * 9 + 60
    shape = 100.0 * (1.2 + np.sin(2 * np.pi * target / DAY_MIN)) ** 2
    present = 100.0 * (1.2 + np.sin(2 * np.pi * (DAY_MIN * 9 - 5) / DAY_MIN)) ** 2
    assert usual.present_rps == pytest.approx(present, rel=0.05)
    assert usual.expected_rps == pytest.approx((shape + present) / 2, rel=0.05)
    assert doubled.expected_rps == pytest.approx(2 * usual.expected_rps, rel=0.05)


@pytest.mark.parametrize(("start_s", "late_min", "steps"), [(30.0, 0, 2), (180.0, 0, 4), (181.0, 0, 5), (60.0, 3, 5)])
def test_the_minute_foreseen_is_the_one_after_the_start_also_where_samples_are_late(start_s, late_min, steps):
    past = history()
    rates = past.rates_rps()
    outlook, _ = looked(past, now_s=NOW_S + 60 * late_min, start_s=start_s)
    assert outlook.expected_rps == points(rates, len(rates), len(rates) + 1, steps).combined[0]


def test_what_was_earned_is_a_floor():
    outlook, _ = looked()
    assert outlook.standing is Standing.EARNED
    floor = outlook.floor
    assert (floor.weight_ratio, floor.horizon_s) == (outlook.weight_ratio, 3600.0)
    assert floor.rate_rps == outlook.rate_rps > outlook.expected_rps
    assert "48 hours" in outlook.text
    assert "better than" in outlook.text


def test_a_rate_that_remembers_nothing_of_yesterday_gives_no_floor():
    steps = np.random.default_rng(2).normal(0.0, 0.02, 9 * DAY_MIN)
    rates = 100.0 * np.exp(np.cumsum(steps) - np.cumsum(steps).mean())
    outlook, _ = looked(History.of(encode_all(rates.astype(np.float32)), MINUTE))
    assert (outlook.standing, outlook.floor) == (Standing.NO_SKILL, None)


@pytest.mark.parametrize(
    ("past", "now_s", "standing"),
    [
        pytest.param(History(), NOW_S, Standing.NO_DATA, id="nothing seen"),
        pytest.param(history(), NOW_S + 6 * 60, Standing.NO_DATA, id="samples stopped"),
        pytest.param(history(), NOW_S - 60, Standing.NO_DATA, id="clock went back"),
        pytest.param(history(1.5), NOW_S, Standing.TOO_YOUNG, id="a day and a half"),
    ],
)
def test_no_opinion_is_told_as_such(past, now_s, standing):
    outlook, _ = looked(past, now_s=now_s)
    assert (outlook.standing, outlook.floor, outlook.weight_ratio) == (standing, None, 0.0)
    assert outlook.text.startswith("no forecast")


def test_within_a_minute_the_answer_stays():
    past = history()
    first, state = looked(past)
    again, same = looked(past, state, NOW_S + 30)
    assert again is first
    assert same is state
    assert looked(past, state, NOW_S + 30, start_s=120.0)[0].horizon_s == 120.0


def test_the_skill_is_scored_anew_after_ten_minutes_only():
    past = history()
    _, state = looked(past)
    for ahead, is_same in ((1, True), (9, True), (10, False)):
        for second in range(60):
            past.see(60.0 * (MINUTE + ahead - 1) + second, 100.0)
        past.see(60.0 * (MINUTE + ahead), None)
        _, later = looked(past, state, 60.0 * (MINUTE + ahead))
        assert (later.scored is state.scored) is is_same


def test_the_status_is_json_and_leaves_out_what_is_not_known():
    told = as_status(looked()[0], "so much")
    assert json.loads(json.dumps(told)) == told
    assert told["standing"] == "Earned"
    assert told["report"] == "so much"
    assert "rate" not in as_status(looked(History())[0], "")


EARNED = Outlook(
    at_s=0.0,
    horizon_s=60.0,
    standing=Standing.EARNED,
    present_rps=10.0,
    expected_rps=20.0,
    rate_rps=30.0,
    weight_ratio=0.5,
    confidence_ratio=0.9,
    gain_ratio=0.3,
    wape_ratio=0.1,
    hours=48,
)
QUIET = Minute(ready=2, ordered=2, requests=600.0, late=0.0, service_s=1.0, target=5.0, max_replicas=100)


@pytest.mark.parametrize(
    ("outlook", "minute", "expected"),
    [
        pytest.param(EARNED, QUIET, 4, id="10 + half of 20 more, at 1 s each, 5 in progress"),
        pytest.param(EARNED, replace(QUIET, max_replicas=3), 3, id="at most the maximum"),
        pytest.param(EARNED, replace(QUIET, service_s=None), 0, id="service time unknown"),
        pytest.param(replace(EARNED, weight_ratio=0.0), QUIET, 0, id="nothing earned"),
        pytest.param(replace(EARNED, rate_rps=5.0), QUIET, 2, id="it raises, it never lowers"),
    ],
)
def test_the_floor_in_replicas(outlook, minute, expected):
    assert replicas_of(outlook, minute) == expected


@pytest.mark.parametrize(
    ("outlook", "minute", "saved", "extra_s"),
    [
        pytest.param(None, replace(QUIET, late=50.0), 0.0, 0.0, id="no forecast"),
        pytest.param(EARNED, QUIET, 0.0, 120.0, id="nothing late: cost alone"),
        pytest.param(EARNED, replace(QUIET, late=50.0), 50.0, 120.0, id="all of them"),
        pytest.param(EARNED, replace(QUIET, late=900.0), 600.0, 120.0, id="no more than two replicas serve"),
        pytest.param(EARNED, replace(QUIET, late=50.0, ordered=9), 50.0, 0.0, id="ordered later in any case"),
        pytest.param(EARNED, replace(QUIET, late=50.0, ready=4, ordered=4), 0.0, 0.0, id="there already"),
    ],
)
def test_what_it_would_have_saved_and_cost(outlook, minute, saved, extra_s):
    report = account(Report(), minute, outlook)
    assert (report.saved, report.extra_replica_s, report.late) == (saved, extra_s, minute.late)
    assert account(report, minute, outlook).minutes == 2


@pytest.mark.parametrize(("horizon_s", "raised"), [(60.0, 3), (120.0, 2), (180.0, 1), (240.0, 0)])
def test_a_minute_is_judged_by_what_was_said_a_start_time_earlier(horizon_s, raised):
    report = Report()
    for _ in range(3):
        report = account(report, QUIET, replace(EARNED, horizon_s=horizon_s))
    assert report.raised_minutes == raised


def test_the_account_does_not_grow():
    report = Report()
    for _ in range(100):
        report = account(report, QUIET, replace(EARNED, horizon_s=36000.0))
    assert len(report.pending) == 30
    assert report.raised_minutes == 71


def test_the_report_tells_its_numbers():
    report = Report(minutes=120, requests=1000.0, late=40.0, saved=30.0, extra_replica_s=7200.0)
    assert report.text == (
        "in 2.0 hours it would have saved up to 30 of 40 late requests (3.00% of all) for 2.0 replica-hours"
    )
    assert "0 of 0" in Report().text
