"""Where the rules of the horizontal axis meet: starting replicas, gaps in what is seen, waking under load."""

from __future__ import annotations

from scaler.decision import Reason, Sizing
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.track import Track
from scaler.policy import Policy
from scaler.seen import Fleet, Sample
from tests.support.scaling import a_policy


def lived(
    policy: Policy, fleet: Fleet, *, from_s: int, to_s: int, track: Track | None = None, **sample: float
) -> Track:
    track = track or Track(policy, float(from_s))
    for second in range(from_s, to_s):
        track.see(Sample(at_s=float(second), **sample), fleet)
    return track


def desired(track: Track, fleet: Fleet, policy: Policy, now_s: float) -> tuple[int, Reason]:
    sizing = Sizing(target=policy.target.initial, slots=policy.target.limit)
    state = HorizontalState.found(fleet.replicas, 0.0)
    decision, _ = decide(track, fleet, sizing, policy, state, now_s, start_time_s=5.0)
    return decision.desired, decision.reason


def test_the_band_is_a_share_of_all_replicas_not_of_those_that_serve_already() -> None:
    """Need 10.4 of n = 10, half of them starting: within the band of 10, far out of that of 5."""
    policy, fleet = a_policy(), Fleet(ready=5, starting_since_s=(299.0,) * 5)
    rate = 10.4 * policy.target.initial
    track = lived(policy, fleet, from_s=0, to_s=300, arrivals=rate, completions=rate, in_flight=rate, queued=0.0)
    assert desired(track, fleet, policy, 299.0)[0] == 10


def test_seconds_that_nobody_saw_are_no_idle_seconds() -> None:
    policy = a_policy(min_replicas=0, to_zero_after_s=60.0, look_back_down_s=60.0)
    fleet = Fleet(ready=1)
    quiet = {"arrivals": 0.0, "completions": 0.0, "in_flight": 0.0, "queued": 0.0}
    track = lived(policy, fleet, from_s=0, to_s=100, **quiet)
    assert track.busy_s == 0.0
    lived(policy, fleet, from_s=103, to_s=104, track=track, **quiet)
    assert track.busy_s == 103.0
    assert desired(track, fleet, policy, 104.0)[0] == 1


def test_who_wakes_it_is_not_all_that_is_asked_for() -> None:
    """One request waits at this moment, and ten a second came: a fleet for the one would be late for the ten."""
    policy, nobody = a_policy(min_replicas=0), Fleet(ready=0)
    track = lived(policy, nobody, from_s=0, to_s=100, arrivals=10.0, completions=10.0, in_flight=0.0, queued=20.0)
    lived(policy, nobody, from_s=100, to_s=101, track=track, arrivals=10.0, completions=0.0, in_flight=0.0, queued=1.0)
    assert desired(track, nobody, policy, 100.5)[0] == 4
