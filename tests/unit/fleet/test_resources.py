from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.resources import Resources, extended_of

AMOUNTS = st.builds(
    lambda cpu, memory, slots, extended: Resources(
        milli_cpu=cpu, memory_bytes=memory, pod_slots=slots, extended=extended_of(extended)
    ),
    st.integers(0, 10**6),
    st.integers(0, 2**50),
    st.integers(0, 200),
    st.dictionaries(st.sampled_from(["nvidia.com/gpu", "hugepages-2Mi", "a", "z"]), st.integers(0, 9)),
)


@given(AMOUNTS, AMOUNTS)
def test_subtraction_undoes_addition(a: Resources, b: Resources) -> None:
    assert a + b - b == a
    assert a + b == b + a


@given(AMOUNTS, AMOUNTS)
def test_nothing_lacks_exactly_where_the_difference_is_nowhere_negative(have: Resources, wanted: Resources) -> None:
    rest = have - wanted
    amounts = [rest.milli_cpu, rest.memory_bytes, rest.pod_slots, *(amount for _, amount in rest.extended)]
    assert (have.lacks(wanted) == ()) is (min(amounts) >= 0)
    assert sum(amount for _, amount in have.lacks(wanted)) == -sum(amount for amount in amounts if amount < 0)


@given(AMOUNTS, AMOUNTS)
def test_the_peak_covers_both_and_no_more(a: Resources, b: Resources) -> None:
    peak = a.peak(b)
    assert not peak.lacks(a)
    assert not peak.lacks(b)
    assert {name for name, _ in peak.extended} == {name for name, _ in a.extended + b.extended}
    assert peak.milli_cpu in (a.milli_cpu, b.milli_cpu)


def test_what_is_not_asked_is_not_lacking_on_an_over_committed_node() -> None:
    assert Resources(milli_cpu=-5).lacks(Resources(pod_slots=0)) == ()
    assert Resources(milli_cpu=-5).lacks(Resources(milli_cpu=1)) == (("milli_cpu", 6),)


def test_amounts_not_offered_are_zero() -> None:
    assert Resources(extended=(("a", 1),)).of("b") == 0
    assert Resources().lacks(Resources(extended=(("a", 2),))) == (("a", 2),)
