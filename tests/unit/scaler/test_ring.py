from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.decision import Decision, Reason, Sizing
from scaler.ring import KEPT_S, SECONDS, Ring
from scaler.seen import Fleet, Sample

FLEET = Fleet(ready=3, starting_since_s=(1.0,), draining=2)


def a_sample(at_s: float, in_flight: float | None = 1.0) -> Sample:
    return Sample(at_s=at_s, arrivals=2.0, completions=3.0, in_flight=in_flight, queued=4.0, errors=None)


def a_decision(at_s: float, desired: int = 5) -> Decision:
    return Decision(at_s=at_s, current=4, desired=desired, reason=Reason.BACKLOG)


def test_a_second_is_told_as_it_was_seen():
    ring = Ring(100.0)
    ring.see(a_sample(107.5), FLEET)
    history = ring.history()
    assert history.from_s == 107.0
    assert {name: values[0] for name, values in history.seconds.items() if name != "errors"} == {
        "arrivals": 2.0,
        "completions": 3.0,
        "in_flight": 1.0,
        "queued": 4.0,
        "ready": 3.0,
        "starting": 1.0,
        "draining": 2.0,
    }
    assert math.isnan(history.seconds["errors"][0])


def test_a_second_without_a_sample_is_missing_and_not_zero():
    ring = Ring(0.0)
    for at_s in (1.0, 4.0):
        ring.see(a_sample(at_s), FLEET)
    assert np.isnan(ring.history().seconds["ready"]).tolist() == [False, True, True, False]


def test_an_empty_ring_tells_nothing():
    history = Ring(5.0).history()
    assert [len(values) for values in history.seconds.values()] == [0] * len(SECONDS)
    assert history.reasons == ()


def test_decisions_keep_their_reason_and_what_was_known_then():
    ring = Ring(1000.0)
    ring.decided(a_decision(1005.0), Sizing(target=5.6, slots=8.0), 60.0)
    ring.decided(a_decision(1405.0, 7), Sizing(target=5.5), 61.0)
    ring.see(a_sample(1500.0), FLEET)  # closes the first block
    history = ring.history()
    assert history.reasons == (Reason.BACKLOG, Reason.BACKLOG)
    assert history.decisions["at_s"].tolist() == [1005.0, 1405.0]
    assert history.decisions["desired"].tolist() == [5.0, 7.0]
    assert history.decisions["slots"][0] == 8.0
    assert math.isnan(history.decisions["slots"][1])
    assert ring.history(1300.0, 1500.0).decisions["at_s"].tolist() == [1405.0]


def test_an_hour_and_no_more_is_kept_and_is_small():
    ring = Ring(0.0)
    rng = np.random.default_rng(3)
    for second in range(3 * KEPT_S):
        ring.see(a_sample(second + 0.5, float(rng.gamma(20, 2))), FLEET)
        if second % 5 == 0:
            ring.decided(a_decision(second + 0.5), Sizing(target=5.0), 60.0)
    history = ring.history()
    assert KEPT_S <= len(history.seconds["ready"]) <= KEPT_S + 300
    assert not np.isnan(history.seconds["ready"]).any()
    assert len(history.reasons) == pytest.approx(KEPT_S / 5, abs=61)
    assert ring.size_bytes < 60_000


def test_after_a_long_silence_what_is_too_old_is_gone():
    ring = Ring(0.0)
    ring.see(a_sample(10.0), FLEET)
    ring.see(a_sample(10.0 + 2 * KEPT_S), FLEET)
    assert len(ring.history().seconds["ready"]) == 1


@given(st.lists(st.floats(-10.0, 8000.0), max_size=40), st.floats(-10.0, 8000.0), st.floats(-10.0, 8000.0))
def test_any_part_lies_within_what_was_asked_for(times, from_s, to_s):
    ring = Ring(0.0)
    for at_s in times:
        ring.see(a_sample(at_s), FLEET)
    history = ring.history(from_s, to_s)
    count = len(history.seconds["ready"])
    if count:
        assert from_s - 1 < history.from_s
        assert history.from_s + count - 1 <= to_s
        assert not math.isnan(history.seconds["ready"][0])
        assert not math.isnan(history.seconds["ready"][-1])
