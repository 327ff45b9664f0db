"""Events: said once, counted while they repeat, bounded, and never in the way."""

from __future__ import annotations

import json

import pytest

from fleet.errors import ApiError, NotFound
from fleet.kube import events
from fleet.kube.events import EventRecorder
from fleet.pod import Pod
from tests.support.clock import ManualClock

POD = Pod(uid="u1", name="p", namespace="ns", resource_version="7")


class Writes:
    """Takes what a recorder writes; `trouble` is raised instead."""

    def __init__(self):
        self.created, self.patched = [], []
        self.trouble = None

    async def create(self, path, body, *, timeout_s, is_fenced):
        assert not is_fenced
        self._fail()
        self.created.append((path, json.loads(body)))

    async def request(self, method, path, *, body, content_type, timeout_s, is_fenced):
        assert (method, is_fenced) == ("PATCH", False)
        if isinstance(self.trouble, NotFound):
            trouble, self.trouble = self.trouble, None
            raise trouble
        self._fail()
        self.patched.append((path, json.loads(body)))

    def _fail(self):
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def writes():
    return Writes()


@pytest.fixture
def recorder(writes, clock):
    return EventRecorder(writes, clock, "berthmaster-planner", "replica-1")


def say(recorder, note="needs 2", pod=POD, reason="Insufficient"):
    return recorder.record(pod, reason=reason, note=note, is_warning=True)


async def test_an_event_says_who_what_and_of_whom(recorder, writes):
    await say(recorder)
    ((path, event),) = writes.created
    assert path == "/apis/events.k8s.io/v1/namespaces/ns/events"
    assert event["regarding"] | {"apiVersion": "v1"} == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "p",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert (event["reason"], event["note"], event["type"], event["action"]) == (
        "Insufficient",
        "needs 2",
        "Warning",
        "Planning",
    )
    assert event["reportingController"] == "berthmaster-planner"
    assert event["eventTime"] == "2027-01-15T08:00:00.000000Z"


async def test_repetition_is_counted_and_told_once_a_minute(recorder, writes, clock):
    for _ in range(5):
        await say(recorder)
    await clock.advance(59.0)
    await say(recorder)
    assert (len(writes.created), writes.patched) == (1, [])
    await clock.advance(1.0)
    await say(recorder)
    ((path, change),) = writes.patched
    assert path.endswith(f"/events/{writes.created[0][1]['metadata']['name']}")
    assert change["series"]["count"] == 7
    assert (recorder.stats.sent, recorder.stats.repeated) == (2, 5)


async def test_other_pods_reasons_and_notes_are_other_events(recorder, writes):
    await say(recorder)
    await say(recorder, note="needs 3")
    await say(recorder, reason="HandedOver")
    await say(recorder, pod=Pod(uid="u2", name="p", namespace="ns"))
    assert len({event["metadata"]["name"] for _, event in writes.created}) == 4


async def test_an_event_that_has_expired_is_made_anew(recorder, writes, clock):
    await say(recorder)
    await clock.advance(61.0)
    writes.trouble = NotFound(404, "NotFound", "")
    await say(recorder)
    assert len(writes.created) == 2


async def test_failures_stay_here(recorder, writes, clock):
    writes.trouble = ApiError(403, "Forbidden", "no")
    await say(recorder)
    assert recorder.stats.failed == 1
    assert recorder.stats.sent == 0


async def test_a_flood_is_cut_to_a_rate(recorder, writes, clock):
    for number in range(1000):
        await say(recorder, note=f"n{number}")
    assert len(writes.created) == events.BURST
    assert recorder.stats.dropped == 1000 - events.BURST
    await clock.advance(2.0)
    for number in range(1000, 2000):
        await say(recorder, note=f"n{number}")
    assert len(writes.created) == events.BURST + 2 * events.RATE_PER_S


async def test_memory_is_bounded(recorder, clock, monkeypatch):
    monkeypatch.setattr(events, "MOST_REMEMBERED", 10)
    for number in range(30):
        await clock.advance(1.0)
        await say(recorder, note=f"n{number}")
    assert len(recorder._said) == 10


@pytest.mark.parametrize("note", ["x" * 5000, "ü" * 5000, "x" * 1023 + "ü"])
async def test_a_long_note_is_cut_to_what_the_api_takes(recorder, writes, note):
    await say(recorder, note=note)
    kept = writes.created[0][1]["note"]
    assert len(kept.encode()) <= 1024
    assert kept.endswith("…")
