from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.balancer.values import ServerState
from scaler.controller.census import Census, Order, census
from scaler.controller.join import Rejected, join
from scaler.seen import Phase
from tests.support.exporter import a_server
from tests.support.replicas import a_pod, a_second


def two_replicas() -> Census:
    there = [a_pod("r1", address="10.0.0.1"), a_pod("r2", address="10.0.0.2")]
    return census(there, Order(replicas=2, at_s=0.0))


def test_a_replica_counts_once_and_only_if_it_lives():
    """Prometheus-adapter 24: the same pod under two labels, and a pod that was deleted a minute ago."""
    servers = [
        a_server("a1", "10.0.0.1:80", 12.0),
        a_server("b1", "10.0.0.1:80", 12.0),
        a_server("a2", "10.0.0.2:80", 12.0),
        a_server("b2", "10.0.0.2:80", 12.0),
        a_server("gone", "10.0.0.9:80", 30.0),
    ]
    rejected = Rejected()
    joined = join(a_second(servers), two_replicas(), rejected)
    assert joined.sample.in_flight == 24.0
    assert (rejected.duplicate, rejected.ghost) == (2, 1)
    assert [(row.pod, row.server) for row in joined.rows] == [("r1", "10.0.0.1:80"), ("r2", "10.0.0.2:80")]


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.1:8000", ""])
def test_a_server_is_a_pod_by_name_or_by_address(address):
    server = a_server("r1" if not address else "slot7", address, 3.0)
    assert join(a_second([server]), two_replicas(), Rejected()).sample.in_flight == 3.0


def test_ipv6_addresses_are_told_from_their_ports():
    seen = census([a_pod("r1", address="fd00::1")], Order(replicas=1, at_s=0.0))
    assert join(a_second([a_server("s", "[fd00::1]:80", 3.0)]), seen, Rejected()).sample.in_flight == 3.0
    assert join(a_second([a_server("s", "fd00::1", 3.0)]), seen, Rejected()).sample.in_flight == 3.0


def test_who_finishes_what_it_has_is_neither_load_nor_capacity():
    """kubernetes/kubernetes 83561: 15 and 3 waiting on one serving replica; the leaving one's 2 count nowhere."""
    there = [a_pod("r1"), a_pod("r2", Phase.DRAINING)]
    seen = census(there, Order(replicas=1, at_s=0.0))
    servers = [a_server("r1", in_flight=15.0), a_server("r2", in_flight=2.0)]
    sample = join(a_second(servers, queued=3.0), seen, Rejected()).sample
    assert (sample.in_flight, sample.queued) == (15.0, 3.0)
    leaving = [a_server("r1", in_flight=15.0, state=ServerState.DRAINING)]
    assert join(a_second(leaving), seen, Rejected()).sample.in_flight == 0.0


def test_load_that_is_nobodys_is_unknown_and_not_zero():
    rejected = Rejected()
    joined = join(a_second([a_server("x", "192.168.0.1:80", 9.0)]), two_replicas(), rejected)
    assert joined.is_unmatched
    assert joined.sample.in_flight is None
    assert rejected.unmatched == 1


def test_without_a_ready_pod_nothing_need_match():
    joined = join(
        a_second([a_server("x", "192.168.0.1:80", 0.0)], queued=2.0),
        census((), Order(replicas=0, at_s=0.0)),
        Rejected(),
    )
    assert not joined.is_unmatched
    assert (joined.sample.in_flight, joined.sample.queued) == (0.0, 2.0)


def test_a_backend_without_servers_is_taken_at_its_word():
    assert join(a_second(), two_replicas(), Rejected()).sample.in_flight == 24.0


def test_of_a_partly_silent_balancer_load_counts_and_rates_do_not():
    sample = join(a_second(is_partial=True), two_replicas(), Rejected()).sample
    assert (sample.in_flight, sample.queued, sample.arrivals, sample.completions) == (24.0, 0.0, None, None)


BAD = st.sampled_from([math.nan, math.inf, -math.inf, -1.0])


@given(BAD, BAD, BAD, BAD)
def test_what_is_no_number_is_dropped_and_counted(arrivals, queued, in_flight, latency_s):
    rejected = Rejected()
    servers = [a_server("r1", in_flight=in_flight), a_server("r2", in_flight=4.0, latency_mean_s=latency_s)]
    joined = join(a_second(servers, arrivals=arrivals, queued=queued), two_replicas(), rejected)
    assert (joined.sample.arrivals, joined.sample.queued) == (None, None)
    assert joined.sample.in_flight == 4.0
    assert joined.rows[0].latency_s is None
    assert rejected.unusable == 4
