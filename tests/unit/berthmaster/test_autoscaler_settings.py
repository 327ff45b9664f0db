"""Moments and settings as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from berthmaster.moments import moment
from berthmaster.settings import SETTINGS, changed
from fleet.errors import DecodeError
from scaler.resource import policy_of

NOW = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
SPEC = {
    "targetRef": {"kind": "Deployment", "name": "llm"},
    "maxReplicas": 40,
    "targetConcurrency": {"initial": 4.0},
    "signals": {"balancer": {"name": "edge", "backend": "llm"}},
}


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", timedelta(0)),
        ("-30m", timedelta(minutes=30)),
        ("30m", timedelta(minutes=30)),
        ("-1h15m", timedelta(minutes=75)),
        ("-90s", timedelta(seconds=90)),
        ("09:05", timedelta(minutes=25)),
        ("9:05:30", timedelta(minutes=24, seconds=30)),
        ("09:30", timedelta(0)),
        ("09:31", timedelta(hours=23, minutes=59)),
        ("2026-11-30T09:00:00Z", timedelta(minutes=30)),
        ("2026-11-30T10:00:00+01:00", timedelta(minutes=30)),
        ("2026-11-30 09:00", timedelta(minutes=30)),
    ],
)
def test_a_moment_is_read(text, ago):
    assert moment(text, NOW.timestamp(), UTC) == (NOW - ago).timestamp()


def test_a_time_of_day_is_of_the_persons_zone():
    zone = timezone(timedelta(hours=2))
    assert moment("11:05", NOW.timestamp(), zone) == (NOW - timedelta(minutes=25)).timestamp()
    assert moment("2026-11-30T11:05", NOW.timestamp(), zone) == (NOW - timedelta(minutes=25)).timestamp()


@pytest.mark.parametrize("text", ["", "-", "soon", "25:00", "9:60", "30", "-30", "-5m1h", "2026-02-30"])
def test_what_is_no_moment_is_refused_with_the_forms(text):
    with pytest.raises(DecodeError, match="-30m"):
        moment(text, NOW.timestamp(), UTC)


@pytest.mark.parametrize(
    ("change", "read", "expected"),
    [
        ("target.max=50", lambda policy: policy.target.maximum, 50.0),
        ("targetConcurrency.initial=2.5", lambda policy: policy.target.initial, 2.5),
        ("targetConcurrency.learn=False", lambda policy: policy.target.is_learnt, False),
        ("minReplicas = 3", lambda policy: policy.min_replicas, 3),
        ("behavior.mode=thrifty", lambda policy: policy.behavior.style.value, "thrifty"),
        ("behavior.scaleUp.maxRatio=2", lambda policy: policy.behavior.growth_ratio, 2.0),
        ("slo.latencySeconds=1.5", lambda policy: policy.promise.latency_s, 1.5),
    ],
)
def test_a_change_reaches_the_policy_and_leaves_the_spec_alone(change, read, expected):
    before = repr(SPEC)
    assert read(policy_of(changed(SPEC, [change]))) == expected
    assert repr(SPEC) == before


def test_the_last_of_two_changes_counts():
    assert changed(SPEC, ["maxReplicas=3", "maxReplicas=5"])["maxReplicas"] == 5


def test_an_unknown_name_is_answered_with_the_nearest_and_all():
    with pytest.raises(DecodeError, match=re.escape("did you mean behavior.scaleDown.maxRatio?")) as refused:
        changed(SPEC, ["behavior.scaledown.maxratio=1"])
    assert all(name in str(refused.value) for name in SETTINGS)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("maxReplicas", "a value is missing, as in --set maxReplicas=10"),
        ("maxReplicas=2.5", "must be a whole number"),
        ("slo.queueWaitSeconds=two", "must be a number"),
        ("target.learn=yes", "must be true or false"),
        ("signals.balancer.name=x", "there is no setting"),
        ("mode=observe", "there is no setting"),
    ],
)
def test_a_change_that_cannot_be_is_refused(change, complaint):
    with pytest.raises(DecodeError, match=re.escape(complaint)):
        changed(SPEC, [change])


TWO_VALUES = {"whole number": ("4", "5"), "number": ("0.5", "0.6"), "true or false": ("true", "false")}
NOT_THOSE = {
    "targetConcurrency.min": ("0.3", "0.4"),
    "behavior.scaleUp.maxRatio": ("2", "3"),
    "behavior.mode": ("steady", "thrifty"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_a_field_that_the_policy_reads(name):
    base = SPEC | {"minReplicas": 1, "targetConcurrency": {"initial": 0.5, "min": 0.1, "max": 0.9}}
    one, other = NOT_THOSE.get(name) or TWO_VALUES[SETTINGS[name]]
    assert policy_of(changed(base, [f"{name}={one}"])) != policy_of(changed(base, [f"{name}={other}"]))
