"""One value a pod, ages that survive skewed clocks, and everything else counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.prom_answer import Series
from scaler.signals.metrics_join import Joined, Taken, identity, join
from scaler.signals.metrics_values import PodKey

R1, R2, R9 = ("shop", "r1"), ("shop", "r2"), ("shop", "r9")


def series(pod: PodKey, value: float, *, stamp_s: float = 990.0, age_s: float = 10.0, **labels: str) -> Series:
    return Series(labels={"namespace": pod[0], "pod": pod[1], **labels}, value=value, stamp_s=stamp_s, age_s=age_s)


def joined(*given: Series) -> Joined:
    return join(given, [R1, R2], {}, received_s=100.0, asked_before_s=None, most=1e9)


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({"namespace": "a", "pod": "b"}, ("a", "b")),
        # An exporter scraped without honor_labels: its own pod is not the one it talks about.
        ({"namespace": "gpu", "pod": "exporter", "exported_namespace": "a", "exported_pod": "b"}, ("a", "b")),
        ({"kubernetes_namespace": "a", "kubernetes_pod_name": "b"}, ("a", "b")),
        ({"namespace": "a", "kubernetes_pod_name": "b"}, None),
        ({"namespace": "a", "pod": ""}, None),
        ({"pod": "b"}, None),
        ({}, None),
    ],
)
def test_identity_is_the_pod(labels: dict[str, str], pod: PodKey | None) -> None:
    assert identity(labels) == pod


def test_same_replica_reported_twice() -> None:
    """Field case kubernetes-sigs/prometheus-adapter 24: duplicates and a deleted pod's series; demand is 24, not 78."""
    found = joined(
        series(R1, 12, job="svc-a"),
        series(R1, 12, job="svc-b"),
        series(R2, 12, job="svc-a"),
        series(R2, 12, job="svc-b"),
        series(R9, 30, job="svc-b"),
    )
    assert {pod: taken.value for pod, taken in found.taken.items()} == {R1: 12, R2: 12}
    assert (found.duplicates, found.foreign) == (2, 1)


def test_duplicates_that_differ_give_the_largest_value_and_the_newest_stamp() -> None:
    found = joined(series(R1, 3, stamp_s=999, age_s=1), series(R1, 5, stamp_s=980, age_s=20))
    assert found.taken[R1] == Taken(value=5, stamp_s=999, taken_s=99.0)


@pytest.mark.parametrize("value", [-1.0, -1e-9, 4.01, 9.2e18])
def test_impossible_values_are_missing(value: float) -> None:
    found = join([series(R1, value), series(R2, 4.0)], [R1, R2], {}, received_s=100.0, asked_before_s=None, most=4.0)
    assert set(found.taken) == {R2}
    assert found.impossible == 1


def test_series_without_a_pod_or_a_date_are_counted() -> None:
    found = joined(Series(labels={}, value=1.0, stamp_s=1.0, age_s=0.0), Series(labels=series(R1, 1).labels, value=1.0))
    assert (found.nameless, found.impossible, dict(found.taken)) == (1, 1, {})


def test_a_pod_that_is_gone_is_forgotten_and_a_silent_one_ages() -> None:
    before = {R1: Taken(value=1, stamp_s=5, taken_s=50.0), R2: Taken(value=2, stamp_s=5, taken_s=60.0)}
    found = join([], [R1], before, received_s=100.0, asked_before_s=90.0, most=1e9)
    assert dict(found.taken) == {R1: before[R1]}


# One pod, polled at 0, 10, 20 ... on the receiver's clock: (age on the server's clock, stamp) -> age believed.
STORIES = [
    ("clocks agree", [(4, 0), (4, 10), (4, 20)], [4, 4, 4]),
    ("node a minute behind", [(64, 0), (64, 10), (64, 20)], [64, 10, 10]),
    ("an hour behind", [(3604, 0), (3604, 10), (3604, 20)], [3604, 10, 10]),
    ("ahead: stamps come when their time has come", [(0, 0), (0, 10), (0, 20)], [0, 0, 0]),
    ("scraped every 30 s", [(4, 0), (14, 0), (24, 0), (4, 30)], [4, 14, 24, 4]),
    ("behind and scraped every 30 s", [(64, 0), (74, 0), (84, 0), (64, 30), (74, 30)], [64, 74, 84, 10, 20]),
    ("it stops", [(4, 0), (14, 0), (24, 0), (34, 0), (44, 0)], [4, 14, 24, 34, 44]),
    ("behind, and it stops", [(64, 0), (64, 10), (74, 10), (84, 10)], [64, 10, 20, 30]),
    ("the clock is set back", [(4, 0), (4, 10), (104, -80), (104, -70)], [4, 4, 10, 10]),
    ("missing once in between", [(4, 0), None, (4, 20)], [4, 14, 4]),
]


@pytest.mark.parametrize(("story", "polls", "ages"), STORIES, ids=[story[0] for story in STORIES])
def test_ages(story: str, polls: list[tuple[float, float] | None], ages: list[float]) -> None:
    taken: dict[PodKey, Taken] = {}
    for turn, (poll, age_s) in enumerate(zip(polls, ages, strict=True)):
        now_s = 10.0 * turn
        given = [] if poll is None else [series(R1, 1.0, age_s=poll[0], stamp_s=poll[1])]
        taken = dict(
            join(given, [R1], taken, received_s=now_s, asked_before_s=now_s - 10.0 if turn else None, most=1e9).taken
        )
        assert taken[R1].signal(now_s, 60.0).age_s == pytest.approx(age_s), f"{story}, poll {turn}"


PODS = st.sampled_from([R1, R2, R9])


@given(
    st.lists(st.tuples(PODS, st.floats(0, 100), st.floats(0, 50)), max_size=12),
    st.permutations(range(12)),
    st.sets(PODS),
)
def test_order_does_not_matter_and_nothing_is_lost(
    given_series: list[tuple[PodKey, float, float]], order: list[int], pods: set[PodKey]
) -> None:
    """1. Independent of order. 2. Only live pods. 3. Each series is a value, a duplicate or foreign."""
    made = [series(pod, value, age_s=age_s, stamp_s=1000 - age_s) for pod, value, age_s in given_series]
    first = join(made, pods, {}, received_s=100.0, asked_before_s=None, most=1e9)
    second = join(
        [made[index] for index in order if index < len(made)],
        pods,
        {},
        received_s=100.0,
        asked_before_s=None,
        most=1e9,
    )
    assert first == second
    assert set(first.taken) <= pods
    assert len(first.taken) + first.duplicates + first.foreign == len(made)
    for pod, taken in first.taken.items():
        assert taken.value == max(value for other, value, _ in given_series if other == pod)
