"""Reports from the field about autoscalers, played second by second through Track and decide. See traffic.yaml.

Three reports of the same collection are told elsewhere: one value per live replica belongs to the joining of signals,
a learnt limit at its ceiling to the vertical axis, the refusal of an edit to the resource's own tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaler.decision import Decision, Sizing
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.track import Track
from scaler.horizontal.victims import victims
from scaler.policy import Behavior, ExtraSignal, Policy, TargetBounds
from scaler.seen import Fleet, Phase, Replica, Sample

_CASES = yaml.safe_load((Path(__file__).parent / "traffic.yaml").read_text())
_ROWS = [(case, name) for case in _CASES for name in case["rows"]]
_PERIOD_S = 5


@pytest.mark.parametrize(("case", "name"), _ROWS, ids=[f"{case['name']}: {name}" for case, name in _ROWS])
def test_traffic_case(case: Mapping[str, Any], name: str) -> None:
    """Bounds hold in every decision, whatever the row."""
    row = case["rows"][name]
    policy = _policy(case["policy"] | {key: row[key] for key in ("target",) if key in row})
    assert policy.problems() == ()
    decisions, track = _play(policy, row)
    for decision in decisions:
        assert policy.min_replicas <= decision.desired <= policy.max_replicas
        assert all(math.isfinite(value) for value in decision.numbers.values())
    for right in row["right"]:
        _expect(right, decisions, track)


def test_starting_replicas_are_given_up_first() -> None:
    """ray-project/ray#43034: running replicas were stopped while others were left to start."""
    ready = [Replica(name=name, phase=Phase.READY, since_s=-900.0, in_flight=4.0) for name in "abc"]
    ages = {"d": 170.0, "e": 60.0, "f": 5.0}
    starting = [Replica(name=name, phase=Phase.STARTING, since_s=-age) for name, age in ages.items()]
    assert set(victims([*ready, *starting], 6 - 4)) == {"e", "f"}


def test_minimum_above_maximum_is_refused_as_a_whole() -> None:
    """kedacore/keda#5288: one controller applied the new minimum and another refused it; the count jumped."""
    policy = _policy({"min": 50, "max": 10, "target": 10})
    (problem,) = policy.problems()
    assert "min" in problem
    assert "max" in problem


def _policy(words: Mapping[str, Any]) -> Policy:
    behavior = Behavior(
        growth_ratio=words.get("grow_ratio", 4.0),
        growth_replicas=words.get("grow_replicas", 4),
        shrink_ratio=words.get("shrink_ratio", 1.0),
        to_zero_after_s=words.get("to_zero_s", 300.0),
    )
    return Policy(
        min_replicas=words["min"],
        max_replicas=words["max"],
        target=TargetBounds(initial=words["target"], minimum=min(1.0, words["target"]), limit=words.get("limit")),
        behavior=behavior,
        extra=tuple(ExtraSignal(name=name, target=target) for name, target in words.get("extra", {}).items()),
    )


def _play(policy: Policy, row: Mapping[str, Any]) -> tuple[list[Decision], Track]:
    start_s = row.get("start_s", 0)
    begins = row.get("first_s", row["seconds"][0]["from"])
    ends = row.get("until", row["seconds"][-1]["to"] - 1)
    ready, starting = row["replicas"], []
    track, state = Track(policy, float(begins)), HorizontalState.found(ready, float(begins))
    sizing = Sizing(target=policy.target.initial, slots=policy.target.limit)
    decisions = []
    for now_s in range(begins, ends + 1):
        ready += sum(at_s + start_s <= now_s for at_s in starting)
        starting = [at_s for at_s in starting if at_s + start_s > now_s]
        fleet = Fleet(ready=ready, starting_since_s=tuple(map(float, starting)), draining=row.get("draining", 0))
        sample = _sample(row["seconds"], now_s)
        if sample is not None:
            track.see(sample, fleet)
        if (now_s - begins) % _PERIOD_S:
            continue
        decision, state = decide(track, fleet, sizing, policy, state, float(now_s), start_time_s=max(start_s, 1.0))
        decisions.append(decision)
        surplus = decision.desired - fleet.replicas
        if not row.get("follow", True):
            continue
        if surplus > 0 and start_s:
            starting += [now_s] * surplus
        else:
            ready += surplus
    return decisions, track


def _sample(seconds: list[Mapping[str, Any]], now_s: int) -> Sample | None:
    for span in seconds:
        if span["from"] <= now_s < span["to"]:
            words = {key: span[key] for key in ("in_flight", "queued", "arrivals", "completions") if key in span}
            if "cycle" in span:
                words["in_flight"] = span["cycle"][(now_s - span["from"]) % len(span["cycle"])]
            return Sample(at_s=float(now_s), extra=span.get("extra", {}), **words)
    return None


def _expect(right: Mapping[str, Any], decisions: list[Decision], track: Track) -> None:
    if "rejected" in right:
        assert track.rejected == right["rejected"]
        return
    values = [decision.desired for decision in decisions]
    if "changes" in right:
        assert sum(a != b for a, b in itertools.pairwise(values)) == right["changes"]
        return
    if "distinct" in right:
        assert [value for value, _ in itertools.groupby(values)] == right["distinct"]
        return
    at = right["at"]
    begins, ends = at if isinstance(at, list) else (at, at)
    span = [decision for decision in decisions if begins <= decision.at_s <= ends]
    assert span, f"no decision in {at}"
    for decision in span:
        told = f"at {decision.at_s}: {decision.text} ({decision.reason})"
        assert right.get("least", 0) <= decision.desired <= right.get("most", decision.desired), told
        assert decision.desired == right.get("desired", decision.desired), told
        assert decision.reason.value == right.get("reason", decision.reason.value), told
