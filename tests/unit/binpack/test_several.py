"""The planner's count of pods of several whole devices: from the watch, by kind, beside what is usual."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from binpack.controller.several import Several
from fleet.pod import Phase, Pod
from tests.support.berths import chosen, pod, share

HOUR_S = 3600.0


def big(name: str, **changes: object) -> Pod:
    return replace(pod(name, ask=chosen(8)), **{"node_name": "n", **changes})  # type: ignore[arg-type]


def missing(several: Several, now_s: float, *waiting: Pod) -> list[tuple[int, float]]:
    found = several.expected(waiting, now_s)
    assert found is not None
    return [(one.waiting, round(one.missing, 2)) for one in found]


def test_who_left_is_missing_and_who_ended_has_left() -> None:
    several = Several()
    for name in "abc":
        several.seen(big(name))
        several.seen(big(name, is_ready=True))
    assert missing(several, 0.0) == [(0, 0.0)]
    several.gone("a")
    several.seen(big("b", phase=Phase.SUCCEEDED))
    assert missing(several, 1.0) == [(0, 2.0)]
    assert missing(several, 1.0 + 6 * HOUR_S) == [(0, 1.0)]
    several.gone("c")
    several.gone("never")
    assert missing(several, 2.0 + 6 * HOUR_S) == [(0, 2.0)]


def test_pinned_pods_count_and_gated_and_small_ones_do_not() -> None:
    several = Several()
    several.seen(big("gated", node_name=""))
    several.seen(replace(pod("small", ask=share(300)), node_name="n"))
    several.seen(replace(pod("one", ask=chosen()), node_name="n"))
    assert several.expected((), 0.0) == []
    several.seen(big("pinned", node_name="", pinned_node="n"))
    assert missing(several, 2.0) == [(0, -1.0)]


def test_a_look_right_after_another_says_nothing_unless_others_wait() -> None:
    several = Several()
    several.seen(big("a"))
    assert several.expected((), 0.0) is not None
    assert several.expected((), 0.5) is None
    waiting = big("w", node_name="")
    assert missing(several, 0.6, waiting) == [(1, 0.0)]
    assert several.expected([waiting], 0.7) is None
    assert several.expected([waiting], 1.7) is not None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()), max_size=30))
def test_counts_are_those_of_the_last_word_on_each_pod(events: list[tuple[str, int, bool]]) -> None:
    several, last = Several(), dict[str, int]()
    for name, devices, is_gone in events:
        if is_gone:
            several.gone(name)
            last.pop(name, None)
        else:
            several.seen(replace(pod(name, ask=chosen(devices or 1)), node_name="n"))
            last[name] = devices
    found = several.expected((), 0.0)
    assert found is not None
    counts = {one.pod.ask.count: -one.missing for one in found if one.pod.ask}
    assert all(number == 0 for number in counts.values()), "what is there at the first look is usual"
    assert counts.keys() == {devices for devices in last.values() if devices > 1}
