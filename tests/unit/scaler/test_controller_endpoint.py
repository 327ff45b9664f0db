"""One endpoint's life in seconds: what it sees, when it decides, what it says, what outlives it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from fleet import labels
from scaler.controller.census import Make, Order, census
from scaler.controller.conditions import Picture, conditions_of
from scaler.controller.due import is_due, told
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Kept
from scaler.controller.learning import to_learn_from
from scaler.controller.objects import ToldObject
from scaler.controller.status import annotations_of, kept_in, kept_text, status_of
from scaler.controller.world import Claim, Key, World
from scaler.decision import Reason
from scaler.resource import spec_of
from scaler.seen import Phase, Sample
from tests.support.exporter import a_server
from tests.support.replicas import a_pod, a_second, a_spec, an_autoscaler, read

KEY = Key(namespace="n", name="a")
WALL_S = 1_800_000_000.0


def an_endpoint(kept: Kept | None = None, ready: int = 2, **spec: Any) -> Endpoint:
    endpoint = Endpoint(KEY, spec_of(a_spec(**spec)), kept or Kept(), 0.0, WALL_S)
    staffed(endpoint, ready)
    return endpoint


def staffed(endpoint: Endpoint, ready: int, starting: int = 0) -> None:
    there = [a_pod(f"p{number}") for number in range(ready)]
    there += [a_pod(f"s{number}", Phase.STARTING, since_s=50.0) for number in range(starting)]
    endpoint.census = census(there, Order(replicas=ready + starting, at_s=0.0))


def seconds(
    endpoint: Endpoint, from_s: int, to_s: int, in_flight: float | None = 8.0, queued: float = 0.0
) -> list[float]:
    """Feed one sample a second and decide when due; returns the times of decisions."""
    decided = []
    for second in range(from_s, to_s):
        endpoint.take(Sample(at_s=second + 0.5, in_flight=in_flight, queued=queued))
        if endpoint.is_due(second + 0.6):
            endpoint.decide(second + 0.6)
            decided.append(second + 0.6)
    return decided


def a_picture(endpoint: Endpoint | None, claim: Claim = Claim.OURS, **more: Any) -> Picture:
    autoscaler = World().set_autoscaler(an_autoscaler())
    return Picture(autoscaler=replace(autoscaler, **more), endpoint=endpoint, claim=(claim, "as the test says"))


def test_it_decides_once_a_period():
    decided = seconds(an_endpoint(), 0, 60)
    assert len(decided) == 12
    assert {round(later - earlier) for earlier, later in itertools.pairwise(decided)} == {5}


def test_endpoints_decide_at_different_times():
    spec = spec_of(a_spec())
    due = [0] * 5
    for number in range(200):
        endpoint = Endpoint(Key(namespace="n", name=f"e{number}"), spec, Kept(), 0.0, WALL_S)
        due[next(second for second in range(6) if endpoint.is_due(second + 0.1)) % 5] += 1
    assert min(due) > 20


def test_who_waits_at_zero_is_not_kept_waiting_for_the_period():
    endpoint = an_endpoint(ready=0, minReplicas=0)
    seconds(endpoint, 0, 6, in_flight=0.0)
    assert endpoint.decision is not None
    assert endpoint.decision.desired == 0
    endpoint.take(Sample(at_s=6.5, in_flight=0.0, queued=1.0))
    assert endpoint.is_due(6.6)
    assert endpoint.decide(6.6).reason is Reason.WAKE
    staffed(endpoint, 0, starting=1)
    assert not endpoint.is_due(6.7)


def test_a_new_policy_counts_at_once():
    endpoint = an_endpoint()
    seconds(endpoint, 0, 30, in_flight=20.0)
    assert endpoint.decision is not None
    assert endpoint.decision.desired == 4
    endpoint.apply(spec_of(a_spec(maxReplicas=3)))
    assert endpoint.is_due(30.6)
    assert endpoint.decide(30.6).desired == 3


def test_what_was_learnt_survives_an_edit_and_follows_its_bounds():
    endpoint = an_endpoint(Kept(learnt=40.0))
    assert endpoint.sizing.target == pytest.approx(28.0)
    endpoint.apply(spec_of(a_spec(targetConcurrency={"initial": 5, "max": 14})))
    assert endpoint.sizing.target == pytest.approx(14.0)
    endpoint.apply(spec_of(a_spec(targetConcurrency={"initial": 6, "learn": False})))
    assert endpoint.sizing.target == 6.0


def test_a_restart_keeps_what_its_status_says():
    before = an_endpoint(Kept(learnt=20.0, validated=12.0, service_s=0.5, start_times_s=(30.0, 40.0)))
    before.counted(WALL_S, 5.0)
    status = status_of(a_picture(before), now_s=0.0, wall_s=WALL_S, forecast=kept_text(before))
    kept = kept_in(read(ToldObject, status))
    assert (kept.learnt, kept.validated, kept.service_s, kept.start_times_s) == (20.0, 12.0, 0.5, (30.0, 40.0))
    after = an_endpoint(kept)
    assert after.sizing == before.sizing
    assert after.starts == before.starts
    assert after.track.service.seconds == 0.5
    assert after.sizing.target == pytest.approx(0.7 * 12.0)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"target": None, "startTime": {"seconds": "x"}, "forecast": {"history": "###"}, "serviceSeconds": "1"},
        {"target": {"learnt": True}, "startTime": {"seconds": ["a", None, -1, True]}, "serviceSeconds": 0},
        {"target": {"learnt": "20"}, "forecast": {"history": 7}},
    ],
)
def test_a_status_that_cannot_be_read_keeps_nothing(status):
    assert kept_in(read(ToldObject, status)) == Kept()
    assert an_endpoint(Kept(forecast=b"rubbish")).kept_forecast() == b""


def test_after_a_restart_nothing_shrinks_before_the_window():
    endpoint = an_endpoint(ready=10)
    seconds(endpoint, 0, 290, in_flight=0.0)
    assert endpoint.decision is not None
    assert (endpoint.decision.desired, endpoint.decision.reason) == (10, Reason.RESTARTED)


def test_a_workload_that_was_not_ours_begins_anew():
    endpoint = an_endpoint(ready=10)
    seconds(endpoint, 0, 290, in_flight=0.0)
    endpoint.pause(290.0)
    assert endpoint.decision is None
    endpoint.forget_orders()
    seconds(endpoint, 290, 580, in_flight=0.0)
    assert endpoint.decision is not None
    assert endpoint.decision.desired == 10


def test_a_lesson_comes_every_thirty_seconds_and_changes_what_is_aimed_at():
    endpoint = an_endpoint(ready=2)
    lessons = []
    for second in range(120):
        servers = [
            a_server(f"p{n}", in_flight=4.0, completions=8.0, latency_mean_s=0.5, latency_p95_s=0.6) for n in range(2)
        ]
        endpoint.see(replace(a_second(servers), at_s=second + 0.5))
        lesson = endpoint.learn_if_due(second + 0.5)
        if lesson is not None:
            lessons.append(second)
            assert endpoint.sizing == lesson.sizing
    assert {later - earlier for earlier, later in itertools.pairwise(lessons)} == {30}
    assert endpoint.servers == {"p0": "p0", "p1": "p1"}
    assert annotations_of(endpoint)[labels.TARGET_CONCURRENCY] == f"{endpoint.sizing.target:.3g}"
    fixed = an_endpoint(targetConcurrency={"initial": 5, "learn": False})
    assert fixed.learn_if_due(1000.0) is None
    assert annotations_of(fixed) == {
        labels.TARGET_CONCURRENCY: "5",
        labels.CONCURRENCY_LIMIT: None,
        labels.CANARY_REPLICA: None,
    }


def learnt_from(endpoint: Endpoint, from_s: int, to_s: int, latency_s: float = 0.5, **servers: float) -> None:
    """Feed busy seconds of the servers named, at their requests in progress, and learn when due."""
    for second in range(from_s, to_s):
        rows = [
            a_server(name, in_flight=k, completions=k / latency_s, latency_mean_s=latency_s, latency_p95_s=latency_s)
            for name, k in servers.items()
        ]
        endpoint.see(replace(a_second(rows), at_s=second + 0.5))
        endpoint.learn_if_due(second + 0.5)


def made(endpoint: Endpoint, **makes: tuple[str, str]) -> None:
    """Let the Ready pods be of these versions, on nodes with these GPUs."""
    there = [a_pod(name, version=version, node=f"node-{gpu}") for name, (version, gpu) in makes.items()]
    hardware = {f"node-{gpu}": gpu for _, gpu in makes.values()}
    endpoint.census = census(there, Order(replicas=len(there), at_s=0.0), hardware)


def test_shadow_fleets_count_with_the_size_that_was_learnt_before_the_restart():
    fresh, restored = an_endpoint(), an_endpoint(Kept(learnt=40.0, service_s=1.0))
    assert restored.track._unit_slots > 4 * fresh.track._unit_slots


def test_a_full_replica_does_not_lengthen_the_service_time_of_an_empty_one():
    """S = min(F / C, 1.1 x the fitted latency at the target): a queue inside full replicas orders no replicas."""
    endpoint = an_endpoint(ready=2, targetConcurrency={"initial": 4})
    learnt_from(endpoint, 0, 180, latency_s=0.5, p0=4.0, p1=3.0)
    assert endpoint.track.service.limit_s == pytest.approx(0.55, rel=0.05)
    for second in range(180, 200):
        endpoint.take(Sample(at_s=second + 0.5, arrivals=8.0, completions=8.0, in_flight=40.0, queued=0.0))
    assert endpoint.track.service.seconds == pytest.approx(0.55, rel=0.05)
    endpoint.apply(spec_of(a_spec(targetConcurrency={"initial": 4, "learn": False})))
    assert endpoint.track.service.seconds is not None
    assert endpoint.track.service.seconds > 1.0


def test_what_a_curve_was_not_seen_to_hold_bounds_no_service_time():
    endpoint = an_endpoint(ready=2, targetConcurrency={"initial": 50})
    learnt_from(endpoint, 0, 180, p0=4.0, p1=3.0)
    assert endpoint.sizing.target == 50.0
    assert endpoint.track.service.limit_s is None


def test_another_version_begins_at_what_was_learnt_with_empty_bins():
    endpoint = an_endpoint(Kept(learnt=8.0, validated=6.0))
    made(endpoint, p0=("v1", ""), p1=("v1", ""))
    learnt_from(endpoint, 0, 120, p0=6.0, p1=5.0)
    assert endpoint.learning._learner.curve is not None
    assert endpoint.track.service.limit_s is not None
    made(endpoint, p0=("v1", ""), p1=("v2", ""))  # half-way: the old one is learnt from as long as it is half
    learnt_from(endpoint, 120, 150, p0=6.0, p1=5.0)
    assert endpoint.learning.make is not None
    assert endpoint.learning.make.version == "v1"
    learnt, target = endpoint.learning.learnt, endpoint.sizing.target
    made(endpoint, p0=("v2", ""), p1=("v2", ""))
    learnt_from(endpoint, 150, 180, p0=6.0, p1=5.0)
    new = endpoint.learning._learner
    assert (endpoint.learning.make.version, endpoint.learning.learnt) == ("v2", learnt)
    assert new.curve is None
    assert new.bins.points().k.size == 0
    assert endpoint.sizing.target == pytest.approx(target)  # a rollout is no reason to need more or fewer replicas
    assert endpoint.track.service.limit_s is None
    status = status_of(a_picture(endpoint), now_s=200.0, wall_s=WALL_S)
    assert status["target"]["version"] == "v2"
    assert "hardware" not in status["target"]


def test_replicas_of_another_make_are_not_learnt_from():
    endpoint = an_endpoint(Kept(learnt=8.0))
    made(endpoint, a0=("v1", "A100"), a1=("v1", "A100"), h0=("v1", "H100"))
    learnt_from(endpoint, 0, 60, a0=6.0, a1=5.0, h0=40.0)
    assert endpoint.learning._learner.bins.points().k.max() < 10.0
    status = status_of(a_picture(endpoint), now_s=60.0, wall_s=WALL_S)
    assert (status["target"]["version"], status["target"]["hardware"]) == ("v1", "A100")


def test_a_make_that_comes_back_begins_at_what_was_learnt_of_it():
    endpoint = an_endpoint(Kept(learnt=8.0))
    made(endpoint, p0=("v1", ""))
    learnt_from(endpoint, 0, 90, p0=6.0)
    learnt = endpoint.learning.learnt
    made(endpoint, p0=("v2", ""))
    learnt_from(endpoint, 90, 121, p0=6.0)
    endpoint.learning._learner = replace(endpoint.learning._learner, limit=2.0, validated=2.0)
    made(endpoint, p0=("v1", ""))
    learnt_from(endpoint, 121, 181)
    assert endpoint.learning.learnt == learnt


@pytest.mark.parametrize(
    ("present", "ready", "chosen"),
    [
        (None, {}, None),
        ("a", {}, "a"),
        (None, {"a": 1, "b": 2}, "b"),
        ("a", {"a": 1, "b": 2}, "a"),
        ("a", {"a": 1, "b": 3}, "b"),
        ("a", {"b": 1}, "b"),
    ],
)
def test_whose_replicas_are_learnt_from(present, ready, chosen):
    make = Make(present) if present else None
    assert to_learn_from(make, {Make(name): n for name, n in ready.items()}) == (Make(chosen) if chosen else None)


def test_the_canary_is_called_what_every_balancer_calls_it():
    """Two balancers give the same replica other slots: only its address is the same in both."""
    endpoint = an_endpoint()
    endpoint.census = census([a_pod(f"p{n}", address=f"10.0.0.{n}") for n in range(3)], Order(replicas=3, at_s=0.0))
    for second in range(61):
        servers = [a_server(f"slot{n}", f"10.0.0.{n}:8000", 4.0, completions=8.0, latency_mean_s=0.5) for n in range(3)]
        endpoint.see(replace(a_second(servers), at_s=second + 0.5))
        endpoint.learn_if_due(second + 0.5)
    assert annotations_of(endpoint)[labels.CANARY_REPLICA] == "10.0.0.0:8000"


def test_the_status_says_what_was_decided_in_finite_json():
    endpoint = an_endpoint()
    seconds(endpoint, 0, 30, in_flight=20.0)
    staffed(endpoint, 2, starting=2)
    endpoint.starts = endpoint.starts.seen(60.0, 12.0)
    status = status_of(a_picture(endpoint), now_s=100.0, wall_s=WALL_S)
    json.dumps(status, allow_nan=False)
    assert (status["readyReplicas"], status["currentReplicas"], status["desiredReplicas"]) == (2, 4, 4)
    assert status["lastDecision"]["reason"] == "Demand"
    assert status["need"][0]["replicas"] == 4
    assert status["load"]["summary"] == "20 in flight"
    assert status["nextReady"] == "2027-01-15T08:00:10Z"  # ordered 50 s ago, 60 s a start
    assert status["startTime"]["schedulingSeconds"] == 12.0
    assert None not in status.values()


# What is said of an endpoint -> Ready, its reason.
@pytest.mark.parametrize(
    ("claim", "seen", "mode", "ready", "reason"),
    [
        (Claim.OURS, True, "act", True, "Acting"),
        (Claim.OURS, True, "observe", True, "Observing"),
        (Claim.OURS, False, "act", None, "NothingSeenYet"),
        (Claim.ABSENT, True, "act", False, "TargetNotFound"),
        (Claim.SHARED, True, "act", False, "ClaimedByAnother"),
        (Claim.RIVAL, True, "act", False, "HorizontalPodAutoscalerPresent"),
    ],
)
def test_ready_sums_up_the_others(claim, seen, mode, ready, reason):
    endpoint = an_endpoint(mode=mode)
    if seen:
        seconds(endpoint, 0, 30)
    picture = a_picture(endpoint, claim, spec=endpoint.spec)
    first = conditions_of(picture)[0]
    assert (first.kind, first.holds, first.reason) == ("Ready", ready, reason)


def test_an_invalid_spec_is_named_and_the_old_one_goes_on():
    endpoint = an_endpoint()
    seconds(endpoint, 0, 30)
    picture = a_picture(endpoint, problems=("minReplicas 50 is above maxReplicas 10: min <= max must hold",))
    ready, valid, *_ = conditions_of(picture)
    assert (ready.holds, valid.holds, valid.reason) == (False, False, "InvalidSpec")
    assert "min <= max" in valid.text
    assert "last valid one stays in force" in valid.text


def test_silence_and_strangers_are_named():
    endpoint = an_endpoint()
    seconds(endpoint, 0, 30)
    seconds(endpoint, 30, 90, in_flight=None)
    signals = conditions_of(a_picture(endpoint))[3]
    assert (signals.holds, signals.reason) == (False, "NoData")
    endpoint.see(a_second([a_server("x", "1.2.3.4", 5.0)]))
    assert conditions_of(a_picture(endpoint))[3].reason == "ServersUnmatched"


def test_a_condition_keeps_the_time_of_its_last_change():
    endpoint = an_endpoint()
    seconds(endpoint, 0, 30)
    first = status_of(a_picture(endpoint), now_s=30.0, wall_s=WALL_S)
    again = status_of(a_picture(endpoint, told=read(ToldObject, first)), now_s=90.0, wall_s=WALL_S + 60)
    broken = status_of(a_picture(endpoint, Claim.ABSENT, told=read(ToldObject, again)), now_s=95.0, wall_s=WALL_S + 65)
    times = [
        {one["type"]: one["lastTransitionTime"] for one in status["conditions"]} for status in (first, again, broken)
    ]
    assert times[0] == times[1]
    assert times[2]["Ready"] != times[1]["Ready"]
    assert times[2]["SignalsKnown"] == times[1]["SignalsKnown"]


def test_a_new_count_is_told_at_once_a_new_reason_soon_and_new_numbers_later():
    endpoint = an_endpoint()
    seconds(endpoint, 0, 30, in_flight=8.0)
    picture = a_picture(endpoint)
    written = told(picture, 30.0)
    assert is_due(None, picture, 0.0)
    assert not is_due(written, picture, 60.0)
    assert is_due(written, picture, 91.0)
    assert endpoint.decision is not None
    endpoint.decision = replace(endpoint.decision, reason=Reason.EXCESS)
    assert [is_due(written, picture, now_s) for now_s in (31.0, 41.0)] == [False, True]
    endpoint.decision = replace(endpoint.decision, desired=9)
    assert [is_due(written, picture, now_s) for now_s in (30.5, 31.0)] == [False, True]
