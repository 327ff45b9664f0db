"""`explain autoscaler` and the table of `top`: what they say of an object, whole, new or odd."""

from __future__ import annotations

import json

import pytest

from berthmaster.autoscaler_object import autoscaler_of, autoscalers_of, seconds_of
from berthmaster.autoscaler_table import rows, table
from berthmaster.autoscaler_words import age, explained, named, number
from berthmaster.options import output
from berthmaster.reasons import HORIZONTAL, VERTICAL, meaning
from fleet.errors import DecodeError
from scaler.decision import Reason, TargetReason

NOW_S = seconds_of("2026-11-30T09:30:00Z")

SPEC = {
    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
    "minReplicas": 2,
    "maxReplicas": 40,
    "targetConcurrency": {"initial": 4},
    "behavior": {"mode": "steady"},
    "forecast": {"mode": "observe"},
    "mode": "act",
}
STATUS = {
    "currentReplicas": 8,
    "readyReplicas": 6,
    "desiredReplicas": 9,
    "load": {"summary": "41 + 3", "inFlight": 41.25, "queued": 3, "rate": 12.3},
    "lastDecision": {
        "at": "2026-11-30T09:29:56Z",
        "reason": "Backlog",
        "message": "3 requests will still wait in 34 s",
        "numbers": {"backlog": 3.0, "drain_s": 5.0, "rate_rps": 12.3, "late_ratio": 0.012},
    },
    "lastChange": {"at": "2026-11-30T09:29:26Z", "from": 6, "to": 8, "reason": "Backlog", "message": ""},
    "need": [
        {"replicas": 9, "by": "2026-11-30T09:30:00Z", "confidence": 0.5},
        {"replicas": 11, "by": "2026-11-30T09:31:02Z", "confidence": 0.9},
    ],
    "nextReady": "2026-11-30T09:30:34Z",
    "target": {
        "at": "2026-11-30T09:29:40Z",
        "concurrency": 5.6,
        "limit": 10.0,
        "learnt": 8.0,
        "validated": 8.0,
        "confidence": 0.8,
        "canary": "llm-abc",
        "reason": "AtTheKnee",
        "message": "knee 8.1",
        "numbers": {"knee": 8.1},
    },
    "forecast": {"standing": "NoSkill", "weight": 0.0, "message": "over 48 hours 3% worse", "report": "in 2.0 hours"},
    "startTime": {"planningSeconds": 62.0, "seconds": [58, 60, 66]},
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Scaling", "lastTransitionTime": "2026-11-30T09:00:00Z"}
    ],
}


def an_autoscaler(name="llm", namespace="models", spec=None, **status):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": SPEC | (spec or {}), "status": status}


def read(document):
    return autoscaler_of(json.dumps(document).encode())


def told(document):
    return {part.title: "\n".join(part.lines) for part in explained(read(document), NOW_S)}


def test_a_whole_object_is_told_with_its_numbers():
    parts = told(an_autoscaler(**STATUS))
    assert list(parts) == ["models/llm", "replicas", "requests per replica", "forecast", "conditions"]
    assert "scales Deployment llm between 2 and 40 replicas; mode act; behavior steady" in parts["models/llm"]
    replicas = parts["replicas"]
    for expected in (
        "6 ready, 2 starting (the next is Ready in 34 s), 9 desired",
        "41.2 requests in progress, 3 queued, 12.3 requests/s",
        "decision 4 s ago: Backlog: 3 requests will still wait in 34 s",
        "numbers: backlog 3, drain 5 s, rate 12.3 requests/s, late 1.2%",
        HORIZONTAL[Reason.BACKLOG].helps,
        "last change 34 s ago: 6 -> 8, Backlog",
        "needed now: 9, 50% sure that no more are",
        "needed in 62 s: 11, 90% sure",
        "start time: 62 s from order to Ready are planned with; 3 starts are remembered",
    ):
        assert expected in replicas
    vertical = parts["requests per replica"]
    for expected in (
        "5.6 in progress are aimed at, the balancer admits 10",
        "learnt: 8 can be held, 8 really were without errors; confidence 80%",
        "canary: llm-abc",
        "lesson 20 s ago: AtTheKnee: knee 8.1",
        VERTICAL[TargetReason.AT_KNEE].says,
    ):
        assert expected in vertical
    assert "it changes nothing in this mode\nNoSkill: over 48 hours 3% worse\nin 2.0 hours" in parts["forecast"]
    assert parts["conditions"] == "Ready True: Scaling"


def test_an_object_that_nobody_has_answered_yet_says_so():
    parts = told(an_autoscaler())
    assert "- ready, - starting, - desired" in parts["replicas"]
    assert "no decision was told yet: is the scaler running?" in parts["replicas"]
    assert "4 in progress are aimed at, as the spec says" in parts["requests per replica"]
    assert "forecast" not in parts


def test_one_that_waits_for_its_workload_points_to_the_conditions():
    lost = {"type": "Ready", "status": "False", "reason": "TargetNotFound", "message": "no Deployment llm"}
    parts = told(an_autoscaler(conditions=[lost], target={"concurrency": 4, "limit": 8, "learnt": 5.71}))
    assert "no decision was told yet: the conditions say why" in parts["replicas"]
    assert parts["conditions"] == "Ready False: TargetNotFound: no Deployment llm"
    assert parts["requests per replica"].endswith("learnt: 5.71 can be held\nno lesson yet")


def test_zero_is_told_as_zero_and_missing_as_missing():
    parts = told(an_autoscaler(load={"inFlight": 0, "queued": 0}, readyReplicas=0, currentReplicas=0))
    assert "0 ready, 0 starting" in parts["replicas"]
    assert "0 requests in progress, 0 queued, - requests/s" in parts["replicas"]


def test_a_start_that_should_be_over_is_overdue():
    late = STATUS | {"nextReady": "2026-11-30T09:29:00Z"}
    assert "(the next is overdue)" in told(an_autoscaler(**late))["replicas"]


def test_observe_and_off_are_told():
    parts = told(an_autoscaler(spec={"mode": "observe", "forecast": {"mode": "off"}}, **STATUS))
    assert "mode observe: it tells, and changes nothing" in parts["models/llm"]
    assert parts["forecast"] == "mode off"


@pytest.mark.parametrize("reason", [*Reason, *TargetReason])
def test_every_reason_has_a_meaning(reason):
    found = meaning(reason.value)
    assert found is not None
    assert found.says
    assert found.helps


def test_a_reason_of_another_version_is_shown_without_one():
    status = STATUS | {"lastDecision": STATUS["lastDecision"] | {"reason": "Whim"}}
    assert meaning("Whim") is None
    assert "Whim" in told(an_autoscaler(**status))["replicas"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rate_rps", 12.345, "rate 12.3 requests/s"),
        ("late_ratio", 0.0123, "late 1.2%"),
        ("service_s", 0.25, "service 0.25 s"),
        ("memory_bytes", 1e9, "memory 1000000000 bytes"),
        ("level", 3.0, "level 3"),
    ],
)
def test_a_number_carries_its_unit(name, value, expected):
    assert named(name, value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, "-"), (-3.0, "0 s"), (119.4, "119 s"), (120.0, "2 min"), (7200.0, "2 h"), (172800.0, "2 d")],
)
def test_ages(seconds, expected):
    assert age(seconds) == expected


def test_numbers_are_short():
    assert [number(value) for value in (None, 0, 5.625, 12345.6)] == ["-", "0", "5.62", "12346"]


@pytest.mark.parametrize(
    "document",
    [b"{", b"[]", b'{"spec": {}}', b'{"metadata": {"name": "a"}, "status": {"readyReplicas": "x"}}'],
)
def test_what_is_no_autoscaler_is_refused_by_name(document):
    with pytest.raises(DecodeError, match="ConcurrencyAutoscaler"):
        autoscaler_of(document)


def test_one_that_cannot_be_read_costs_the_list_nothing_else():
    items = [an_autoscaler("b"), {"metadata": {"name": 3}}, an_autoscaler("a")]
    found, problems = autoscalers_of(json.dumps({"items": items}).encode())
    assert [autoscaler.key for autoscaler in found] == ["models/a", "models/b"]
    assert len(problems) == 1


@pytest.mark.parametrize("time", ["", "soon", "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_unknown(time):
    assert seconds_of(time) is None


def test_the_table_begins_with_those_that_need_a_look():
    ill = STATUS | {
        "load": {"queued": 0},
        "conditions": [{"type": "Ready", "status": "False", "reason": "TargetNotFound"}],
    }
    calm = STATUS | {"load": {"queued": 0}, "readyReplicas": 9, "desiredReplicas": 9}
    moving = STATUS | {"load": {"queued": 0}}
    documents = [
        an_autoscaler("calm", **calm),
        an_autoscaler("moving", **moving),
        an_autoscaler("queued", **STATUS),
        an_autoscaler("ill", **ill),
    ]
    found = rows([read(document) for document in documents], NOW_S)
    assert [row.autoscaler.removeprefix("models/") for row in found] == ["ill", "queued", "moving", "calm"]
    row = found[1]
    assert (row.ready, row.starting, row.desired, row.target, row.limit) == (6, 2, 9, 5.6, 10.0)
    assert (row.reason, row.lesson, row.age_s, row.is_well) == ("Backlog", "AtTheKnee", 4.0, True)


def printed(found, most, capsys):
    output().print(table(found, most))
    return capsys.readouterr().out


def test_the_table_shows_what_fits_and_counts_the_rest(capsys):
    found = rows([read(an_autoscaler(f"m{i}", **STATUS)) for i in range(5)], NOW_S)
    text = printed(found, 3, capsys)
    assert "models/m2" in text
    assert "models/m3" not in text
    assert "and 2 more" in text
    assert "more" not in printed(found, 5, capsys)


def test_the_table_takes_names_and_absence_as_they_are(capsys):
    text = printed(rows([read(an_autoscaler("[red]x", spec={"mode": "observe"}))], NOW_S), 9, capsys)
    assert "models/[red]x" in text
    assert "- (observe)" in text
