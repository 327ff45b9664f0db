"""Counters between two readings: every request is counted once, however it ends."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scaler.balancer.counters import Traffic, grown, traffic, waiting
from scaler.balancer.stat import ServerLine
from scaler.balancer.values import ServerState
from tests.support.haproxy import backend, second_between, server


def test_a_counter_that_fell_began_again() -> None:
    assert grown(5, 9) == 4
    assert grown(9, 9) == 0
    assert grown(1000, 3) == 3


def at_server(before: ServerLine, now: ServerLine) -> Traffic:
    _, (only,) = traffic(backend(before), backend(now))
    return only


@dataclass
class Balancer:
    """Counts as HAProxy does, request by request; and the truth beside it."""

    sessions: int = 0
    in_flight: int = 0
    errors: int = 0
    aborted: int = 0
    came: int = 0
    ended: int = 0

    def step(self, action: str) -> None:
        if action == "start":
            self.sessions, self.in_flight, self.came = self.sessions + 1, self.in_flight + 1, self.came + 1
        elif action == "restart":
            self.ended += self.in_flight
            self.sessions = self.in_flight = self.errors = self.aborted = 0
        elif self.in_flight:
            self.in_flight, self.ended = self.in_flight - 1, self.ended + 1
            self.errors += action == "answered 500"
            self.aborted += action == "replica reset"

    def line(self):
        return server(sessions=self.sessions, in_flight=self.in_flight, server_errors=self.errors, aborted=self.aborted)


ENDS = ["answered", "answered 500", "client gave up", "replica reset"]


@given(st.lists(st.lists(st.sampled_from(["start", "start", *ENDS]), max_size=8), max_size=12))
def test_whatever_ends_a_request_gives_its_place_back_once(seconds: list[list[str]]) -> None:
    balancer, before = Balancer(), Balancer().line()
    came = ended = 0
    for actions in seconds:
        for action in actions:
            balancer.step(action)
        now = balancer.line()
        seen = at_server(before, now)
        assert min(seen.arrivals, seen.ended, seen.errors) >= 0
        came, ended, before = came + seen.arrivals, ended + seen.ended, now
    assert (came, ended) == (balancer.came, balancer.ended)
    assert came - ended == balancer.in_flight


@given(st.integers(0, 50), st.integers(0, 20), st.lists(st.sampled_from(["start", *ENDS]), max_size=20))
def test_a_restart_ends_what_was_in_progress_and_loses_nothing_after_it(
    earlier: int, open_: int, actions: list[str]
) -> None:
    before = server(sessions=earlier + open_ + 30, in_flight=open_)
    balancer = Balancer(came=0, in_flight=open_)
    balancer.step("restart")
    for action in actions:
        balancer.step(action)
    seen = at_server(before, balancer.line())
    assert (seen.arrivals, seen.ended) == (balancer.came, balancer.ended)


def test_every_failed_request_is_counted_once() -> None:
    """As HAProxy 2.8.25 counts (measured): a 502 stands twice under a server's faults, a 504 once."""
    before = backend(server("slot1", sessions=10), server("slot2", sessions=10), server("slot3", sessions=10))
    # slot1 answered 500; slot2 broke off one answer, and reset one request before its answer, for which the client
    # got 502; slot3 did nothing wrong; one request reached no server and one hold ran out: 503 for both.
    now = backend(
        server("slot1", sessions=11, server_errors=1),
        server("slot2", sessions=12, aborted=1, faults=3),
        server("slot3", sessions=12),
        answers_5xx=4,
        unreached=2,
        sessions=37,
    )
    whole, rows = traffic(before, now)
    assert whole.errors == 5
    assert [row.errors for row in rows] == [1, 2, 0]


def test_time_outs_are_shared_out_by_faults() -> None:
    before = backend(server("slot1"), server("slot2"))
    now = backend(server("slot1", faults=3), server("slot2", faults=1), answers_5xx=4)
    whole, rows = traffic(before, now)
    assert (whole.errors, [row.errors for row in rows]) == (4, [3, 1])


def test_held_requests_wait_only_while_nothing_serves() -> None:
    held = backend(server("slot1", state=ServerState.EMPTY), in_progress=6)
    assert waiting(held) == 6
    last_drain = backend(server("slot1", state=ServerState.DRAINING, in_flight=2), in_progress=3)
    assert waiting(last_drain) == 1
    reading_headers = backend(server("slot1", in_flight=2), in_progress=3)
    assert waiting(reading_headers) == 0
    queued = backend(server("slot1", in_flight=8, queued=1), in_progress=14, queued=5)
    assert waiting(queued) == 6


def test_abandoned_requests_leave_no_count() -> None:
    """Case abandoned-requests-stay-counted: answered, given up by the client, reset by the replica."""
    busy = backend(server("slot1", sessions=3, in_flight=2), server("slot2", sessions=1, in_flight=1))
    quiet = backend(server("slot1", sessions=4), server("slot2", sessions=2, aborted=1))
    second = second_between(busy, quiet)
    assert (second.arrivals, second.completions, second.errors) == (2, 5, 1)
    after = second_between(quiet, quiet)
    assert (after.in_flight, after.queued, after.completions, after.given_up) == (0, 0, 0, 0)
    assert [one.in_flight for one in after.servers] == [0, 0]


def test_a_request_that_gives_up_in_the_queue_reaches_no_server() -> None:
    before = backend(server("slot1", sessions=4, in_flight=4), in_progress=6, queued=2, sessions=6)
    now = backend(server("slot1", sessions=4, in_flight=4), in_progress=4, sessions=6)
    second = second_between(before, now)
    assert (second.given_up, second.completions, second.queued) == (2, 0, 0)
