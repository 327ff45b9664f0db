"""Whatever a cycle holds, the learnt limit stays in bounds, moves by rule and is the same again."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.decision import Lesson
from scaler.policy import Policy, Promise, TargetBounds
from scaler.vertical.learn import learn
from scaler.vertical.learner import ONBOARDING_CYCLES, Learner, bounds
from scaler.vertical.moves import CUT_RATIO, ONBOARDING_RATIO, PROVEN_RAISE_RATIO
from scaler.vertical.thresholds import THRESHOLDS
from scaler.vertical.values import Cycle
from tests.support.learning import a_cycle, a_learning_policy

ROWS = 80
NASTY = np.array([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, -1e300, 5e-324, 1e-7, 1e9])


@dataclass(frozen=True)
class Anything:
    """A cycle of numbers over many orders, and some of what no meter should say."""

    seed: int
    decades: int
    nasty_ratio: float
    first_replica: int
    replicas: int
    starting: int
    is_late: bool
    since_rollout_s: float

    def cycle(self) -> Cycle:
        rng = np.random.default_rng(self.seed)

        def column() -> np.ndarray:
            values = 10.0 ** rng.uniform(-self.decades, self.decades, ROWS)
            return np.where(rng.random(ROWS) < self.nasty_ratio, rng.choice(NASTY, ROWS), values)

        names = ("in_flight", "latency_s", "p95_s", "completions", "errors", "memory_ratio", "size")
        columns: dict[str, Any] = {name: column() for name in names}
        return Cycle(
            replica=np.arange(ROWS) % 4 + self.first_replica,
            second=np.arange(ROWS, dtype=float) // 4,
            names=("a", "b", "c", "d"),
            replicas=self.replicas,
            resources={name: column() for name in THRESHOLDS},
            starting=self.starting,
            is_late=self.is_late,
            since_rollout_s=self.since_rollout_s,
            **columns,
        )


@dataclass(frozen=True)
class World:
    """A cycle of replicas that could be: any capacity, spread, error cliff and memory."""

    seed: int
    level: float
    capacity: float
    cliff: float
    error_ratio: float
    memory_slope: float
    starting: int
    is_late: bool
    since_rollout_s: float

    def cycle(self) -> Cycle:
        k = self.level * np.random.default_rng(self.seed).uniform(0.2, 1.25, (4, 30))
        return replace(
            a_cycle(
                k,
                curve=lambda k: 0.2 * np.maximum(k / self.capacity, 1.0),
                error_ratio=lambda k: np.where(k > self.cliff, self.error_ratio, 0.0),
                memory_ratio=(lambda k: np.minimum(0.2 + self.memory_slope * k, 1.0)) if self.memory_slope else np.nan,
            ),
            starting=self.starting,
            is_late=self.is_late,
            since_rollout_s=self.since_rollout_s,
        )


anything = st.builds(
    Anything,
    seed=st.integers(0, 2**32 - 1),
    decades=st.integers(0, 8),
    nasty_ratio=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    first_replica=st.sampled_from([0, 0, 0, 2, -1]),
    replicas=st.integers(0, 5),
    starting=st.integers(0, 2),
    is_late=st.booleans(),
    since_rollout_s=st.sampled_from([0.0, 59.0, 61.0, np.inf]),
)
worlds = st.builds(
    World,
    seed=st.integers(0, 999),
    level=st.floats(0.5, 60),
    capacity=st.floats(1, 40),
    cliff=st.floats(1, 80),
    error_ratio=st.sampled_from([0.0, 0.05, 0.4]),
    memory_slope=st.sampled_from([0.0, 0.02, 0.1]),
    starting=st.sampled_from([0, 0, 1]),
    is_late=st.sampled_from([False, False, True]),
    since_rollout_s=st.sampled_from([10.0, np.inf, np.inf]),
)


Made = Anything | World
policies = st.builds(
    lambda initial, limit, latency_s: Policy(
        min_replicas=0,
        max_replicas=9,
        target=TargetBounds(initial=initial, minimum=1.0, maximum=50.0, limit=limit),
        promise=Promise(latency_s=latency_s),
    ),
    st.floats(1.0, 50.0),
    st.one_of(st.none(), st.floats(0.5, 60.0)),
    st.sampled_from([None, 0.01, 0.5]),
)


def taught(seen: list[Made], policy: Policy) -> list[tuple[Lesson, Learner, Learner]]:
    state, turns = Learner.fresh(policy), []
    for turn, made in enumerate(seen):
        lesson, after = learn(made.cycle(), state, policy, 30.0 * turn)
        turns.append((lesson, state, after))
        state = after
    return turns


@given(st.lists(anything, min_size=1, max_size=4), policies)
@pytest.mark.filterwarnings("error")
def test_bounds_hold_whatever_comes(seen: list[Made], policy: Policy) -> None:
    low, high = bounds(policy)
    for lesson, _, after in taught(seen, policy):
        assert low <= lesson.learnt <= high
        assert low <= lesson.validated <= lesson.learnt
        assert policy.target.minimum <= lesson.sizing.target <= policy.target.maximum
        assert lesson.sizing.slots is not None
        assert 1 <= lesson.sizing.slots < 1e4
        assert 0 <= lesson.confidence_ratio <= 1
        assert all(np.isfinite(value) for value in lesson.numbers.values())
        assert np.isfinite(after.bins.sums).all()


@given(st.lists(worlds, min_size=1, max_size=16), policies)
def test_one_cycle_never_raises_more_than_allowed(seen: list[Made], policy: Policy) -> None:
    for lesson, before, after in taught(seen, policy):
        given_back = before.full_cuts and after.full_cuts > before.full_cuts
        if lesson.learnt <= before.limit or given_back:
            continue
        most = ONBOARDING_RATIO if after.cycles <= ONBOARDING_CYCLES else PROVEN_RAISE_RATIO
        assert lesson.learnt <= most * before.limit * (1 + 1e-9)


@given(st.lists(worlds, min_size=1, max_size=16), policies)
def test_nothing_is_raised_while_starting_late_or_after_a_rollout(seen: list[Made], policy: Policy) -> None:
    for made, (lesson, before, after) in zip(seen, taught(seen, policy), strict=True):
        if made.starting or made.is_late or made.since_rollout_s < 60:
            given_back = before.full_cuts and after.full_cuts > before.full_cuts
            assert lesson.learnt <= before.limit or given_back
            assert lesson.validated <= before.validated


@given(st.lists(worlds, min_size=1, max_size=12), policies)
def test_what_forbids_a_raise_changes_no_cut(seen: list[Made], policy: Policy) -> None:
    state = Learner.fresh(policy)
    for made in seen[:-1]:
        _, state = learn(made.cycle(), state, policy, 0.0)
    calm = replace(seen[-1].cycle(), starting=0, is_late=False, since_rollout_s=np.inf)
    busy = replace(calm, starting=3, is_late=True, since_rollout_s=1.0)
    free, _ = learn(calm, state, policy, 0.0)
    held, _ = learn(busy, state, policy, 0.0)
    assert held.learnt == min(free.learnt, state.limit)


@given(st.lists(worlds, min_size=1, max_size=12), policies)
def test_without_errors_and_full_memory_a_cut_is_at_most_thirty_percent(seen: list[Made], policy: Policy) -> None:
    quiet = [replace(made, error_ratio=0.0, memory_slope=0.0) for made in seen if isinstance(made, World)]
    for lesson, before, _ in taught(quiet, policy):
        assert lesson.learnt >= CUT_RATIO * before.limit * (1 - 1e-9)


@given(st.lists(worlds, min_size=1, max_size=6), policies)
def test_learning_is_deterministic(seen: list[Made], policy: Policy) -> None:
    first, second = taught(seen, policy), taught(seen, policy)
    for (lesson, _, state), (again, _, other) in zip(first, second, strict=True):
        assert lesson == again
        for name in (field.name for field in fields(Learner)):
            if name != "bins":
                assert getattr(state, name) == getattr(other, name)
        assert np.array_equal(state.bins.sums, other.bins.sums)


@given(st.lists(worlds, min_size=1, max_size=6), policies)
def test_a_state_is_never_changed_in_place(seen: list[Made], policy: Policy) -> None:
    for _, before, after in taught(seen, policy):
        assert not before.bins.sums.flags.writeable
        assert not after.bins.sums.flags.writeable
        assert after.bins.sums.nbytes < 20_000


@given(st.lists(worlds, min_size=1, max_size=8), policies)
def test_idle_cycles_move_nothing(seen: list[Made], policy: Policy) -> None:
    state = taught(seen, policy)[-1][2]
    idle = a_cycle(np.zeros((4, 30)), curve=lambda k: np.full(k.shape, 0.2))
    for _ in range(5):
        lesson, after = learn(idle, state, policy, 0.0)
        assert (after.limit, after.validated, after.bins) == (state.limit, state.validated, state.bins)
        assert lesson.learnt == state.limit
        state = after


@given(st.lists(worlds, min_size=1, max_size=10), policies)
def test_a_restart_keeps_l(seen: list[Made], policy: Policy) -> None:
    lesson = taught(seen, policy)[-1][0]
    assert Learner.restored(policy, lesson.learnt).limit == lesson.learnt


@given(st.floats(0.05, 2.0), st.integers(5, 40))
def test_healthy_at_the_upper_bound_stays_there(latency_s: float, k: int) -> None:
    policy = a_learning_policy(initial=14.0, maximum=14.0, latency_s=10.0)
    state = Learner.fresh(policy)
    for _ in range(6):
        lesson, state = learn(
            a_cycle(np.full((4, 30), k), curve=lambda k: np.full(k.shape, latency_s)), state, policy, 0
        )
        assert lesson.learnt == pytest.approx(20.0)
