"""What holds for every load.

1. Desired lies within the bounds and its numbers are finite, whatever comes.
2. More load never wants fewer replicas from the same memory.
3. Under a constant load the count settles and then never moves.
4. A change of the target alone causes no reversal.
5. Nothing shrinks before a full window after a restart, or while nothing is known.
6. One decision grows at most to max(ratio n, n + replicas).
7. Victims: no Ready replica goes while a starting one stays; none further from Ready stays for one that is nearer.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaler.decision import Decision
from scaler.horizontal.victims import victims
from scaler.policy import Style
from scaler.seen import Phase, Replica
from tests.support.scaling import Endpoint, a_policy

_numbers = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 200))
_samples = st.lists(
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {"arrivals": _numbers, "completions": _numbers, "in_flight": _numbers, "queued": _numbers}
        ),
    ),
    min_size=5,
    max_size=60,
)
_styles = st.sampled_from(Style)


@given(_samples, st.integers(0, 12), st.integers(0, 5), st.integers(0, 20), _styles)
@settings(max_examples=100, deadline=None)
def test_desired_is_in_bounds_whatever_comes(
    samples: list[dict[str, Any] | None], replicas: int, least: int, more: int, style: Style
) -> None:
    """1 and 6."""
    policy = a_policy(min_replicas=least, max_replicas=max(least + more, 1), style=style)
    endpoint = Endpoint(policy, replicas, start_s=7.0)
    for decision in endpoint.live(len(samples), lambda now_s: samples[now_s - 1]):
        assert policy.min_replicas <= decision.desired <= policy.max_replicas
        assert all(math.isfinite(value) for value in decision.numbers.values())
        cap = max(4 * decision.current, decision.current + 4, policy.min_replicas)
        assert decision.desired <= cap
        assert decision.text


@given(
    st.lists(st.integers(0, 120), min_size=20, max_size=120),
    st.floats(0, 3),
    st.integers(1, 30),
    st.floats(0.05, 20),
    _styles,
)
@settings(max_examples=40, deadline=None)
def test_more_load_never_wants_fewer_from_the_same_memory(
    loads: list[int], factor: float, replicas: int, service_s: float, style: Style
) -> None:
    """2: the base rule, F and Q alone, where memory is the same by construction."""
    policy = a_policy(style=style)
    less, more = (Endpoint(policy, replicas) for _ in range(2))
    for endpoint, scale in ((less, 1.0), (more, 1.0 + factor)):
        list(endpoint.live(len(loads), lambda now_s, s=scale: {"in_flight": s * loads[now_s - 1] * service_s}))
    for lower, higher in zip(less.decisions, more.decisions, strict=True):
        assert lower.desired <= higher.desired


@given(st.floats(0.2, 150), st.floats(0.1, 10), st.integers(1, 60), _styles)
@settings(max_examples=8, deadline=None)
def test_a_constant_load_is_a_fixed_point(rate_rps: float, service_s: float, replicas: int, style: Style) -> None:
    """3: it settles within the longest wait for a reversal, 2 h, and stays; settled, it carries the load."""
    endpoint = Endpoint(a_policy(max_replicas=400, style=style), replicas, start_s=20.0, plan_s=20.0)
    endpoint.steady(7800, rate_rps, service_s)
    settled = endpoint.decisions[-1].desired
    assert all(decision.desired == settled for decision in endpoint.steady(600, rate_rps, service_s))
    assert settled * 8.0 >= rate_rps * service_s - 1e-6


@given(st.floats(5, 100), st.floats(0.3, 3), st.floats(2, 12), st.floats(1.05, 2))
@example(5.0, 0.375, 2.0, 1.25)
@example(5.0, 2.0, 2.0, 1.0625)
@settings(max_examples=10, deadline=None)
def test_a_target_change_alone_causes_no_reversal(
    rate_rps: float, service_s: float, target: float, headroom: float
) -> None:
    """4: constant load, settled, then one change of the target; the count moves one way only."""
    endpoint = Endpoint(a_policy(max_replicas=2000), 30, start_s=20.0, plan_s=20.0)
    endpoint.steady(2400, rate_rps, service_s)
    endpoint.resize(target, target * headroom)
    after = endpoint.steady(2400, rate_rps, service_s)
    assert _reversals(after) == 0


@given(st.integers(2, 40), st.floats(0.5, 20), st.booleans(), _styles)
@settings(max_examples=30, deadline=None)
def test_nothing_shrinks_before_a_full_window(replicas: int, rate_rps: float, has_rates: bool, style: Style) -> None:
    """5: the count that is found lives for the whole window, and for ever while nothing is known."""
    endpoint = Endpoint(a_policy(style=style), replicas)
    window_s = (600 if style is Style.STEADY else 210) if has_rates else 300
    words = {"in_flight": rate_rps} | ({"arrivals": rate_rps, "completions": rate_rps} if has_rates else {})
    for decision in endpoint.live(window_s, lambda _: words):
        assert decision.desired >= replicas
    for decision in endpoint.live(400, lambda _: None):
        assert decision.desired >= decision.current


@given(
    st.lists(
        st.tuples(st.sampled_from(Phase), st.floats(-300, 0), st.one_of(st.none(), st.floats(0, 9)), st.booleans()),
        max_size=12,
    ),
    st.integers(-1, 14),
)
def test_victims_serve_least(rows: list[tuple[Phase, float, float | None, bool]], count: int) -> None:
    """7, and names are chosen once each, never a draining one."""
    replicas = [
        Replica(name=f"r{place}", phase=phase, since_s=since_s, in_flight=busy, unscheduled=unscheduled)
        for place, (phase, since_s, busy, unscheduled) in enumerate(rows)
    ]
    gone = victims(replicas, count)
    assert len(gone) == len(set(gone)) == min(max(count, 0), sum(r.phase is not Phase.DRAINING for r in replicas))
    by_name = {replica.name: replica for replica in replicas}
    stays = [replica for replica in replicas if replica.name not in gone and replica.phase is not Phase.DRAINING]
    for name, other in itertools.product(gone, stays):
        victim = by_name[name]
        if victim.phase is Phase.READY:
            assert other.phase is Phase.READY
            assert other.in_flight is None or (victim.in_flight is not None and victim.in_flight <= other.in_flight)
        if victim.phase is other.phase is Phase.STARTING and victim.unscheduled == other.unscheduled:
            assert victim.since_s >= other.since_s


def _reversals(decisions: list[Decision]) -> int:
    values = [decision.desired for decision in decisions]
    steps = [b - a for a, b in itertools.pairwise(values) if a != b]
    return sum((a > 0) != (b > 0) for a, b in itertools.pairwise(steps))
