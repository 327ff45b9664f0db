"""Conditions as they are written: the time moves with the status and with nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fleet.condition import Condition, dated, stamp

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
NOW_S = 1767229200.0


def test_times_are_written_as_the_api_does() -> None:
    assert stamp(NOW_S) == NOW
    assert stamp(NOW_S + 0.9) == NOW


@pytest.mark.parametrize(
    ("holds", "told", "since"),
    [
        pytest.param(True, [("Ready", "True", THEN)], THEN, id="as it was"),
        pytest.param(False, [("Ready", "True", THEN)], NOW, id="changed"),
        pytest.param(None, [("Ready", "False", THEN)], NOW, id="not known any more"),
        pytest.param(True, [("Other", "True", THEN)], NOW, id="new"),
        pytest.param(True, [("Ready", "True", None)], NOW, id="somebody took its time away"),
    ],
)
def test_a_condition_keeps_its_time_while_its_status_stays(holds, told, since) -> None:
    before = [SimpleNamespace(type=kind, status=status, last_transition_time=at) for kind, status, at in told]
    condition = Condition(kind="Ready", holds=holds, reason="Why", text="so")
    (written,) = dated([condition], before, 7, NOW_S)
    assert written == {
        "type": "Ready",
        "status": {True: "True", False: "False", None: "Unknown"}[holds],
        "reason": "Why",
        "message": "so",
        "lastTransitionTime": since,
        "observedGeneration": 7,
    }
