"""A batch closes after a pause, at the longest wait, or when full."""

from hypothesis import given
from hypothesis import strategies as st

from binpack.batch import BatchPolicy, arrived, closes_at_s, wait_s

POLICY = BatchPolicy(idle_s=0.02, longest_s=0.2, most_pods=100)


def test_a_lone_pod_waits_only_for_the_pause():
    window = arrived(None, 10.0)
    assert closes_at_s(window, POLICY) == 10.02
    assert wait_s(window, POLICY, 10.015) > 0.0
    assert wait_s(window, POLICY, 10.02) == 0.0


def test_a_later_pod_prolongs_the_pause_but_not_past_the_longest_wait():
    window = arrived(None, 10.0)
    assert closes_at_s(arrived(window, 10.01), POLICY) == 10.03
    assert closes_at_s(arrived(window, 10.195), POLICY) == 10.2


def test_a_full_batch_closes_at_once():
    window = arrived(arrived(None, 10.0), 10.001, pods=99)
    assert wait_s(window, POLICY, 10.001) == 0.0


def test_a_pod_stamped_in_the_past_does_not_shorten_the_pause():
    assert closes_at_s(arrived(arrived(None, 10.0), 9.0), POLICY) == 10.02


@given(st.lists(st.floats(0.0, 0.05), min_size=1, max_size=50))
def test_no_pod_waits_longer_than_the_longest_wait_and_none_closes_before_it_came(pauses_s):
    now_s, window = 0.0, arrived(None, 0.0)
    for pause_s in pauses_s:
        now_s += pause_s
        if wait_s(window, POLICY, now_s) == 0.0:
            break
        window = arrived(window, now_s)
    assert window.last_at_s <= closes_at_s(window, POLICY) <= window.opened_at_s + POLICY.longest_s
