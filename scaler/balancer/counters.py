"""From two readings of counters to what happened between them; a restart of the balancer loses nothing."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.balancer.stat import BackendLine, ServerLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What happened between two readings; all counts are at least 0.

    Attributes:
        arrivals: Requests that came.
        ended: Requests that ended, however they ended.
        errors: Requests that failed.
    """

    arrivals: int
    ended: int
    errors: int


def grown(before: int, now: int) -> int:
    """Return how much a counter grew. One that fell was set back to 0 in between: all it shows came since."""
    return now - before if now >= before else now


def server_traffic(before: ServerLine | None, now: ServerLine) -> Traffic:
    """Return what happened at one server.

    ended = arrivals + in flight before - in flight now: conservation, so that every way a request can end (answered,
    given up by the client, reset by the replica, killed by a restart) is counted exactly once and nothing can leak.

    Args:
        before: Earlier reading; None = the server was not there, and its counters began at 0.
        now: Later reading.
    """
    if before is None:
        arrivals, errors = now.sessions, now.server_errors + now.broken
    else:
        arrivals = grown(before.sessions, now.sessions)
        errors = grown(before.server_errors, now.server_errors) + grown(before.broken, now.broken)
    was = 0 if before is None else before.in_flight
    return Traffic(arrivals=arrivals, ended=max(0, arrivals + was - now.in_flight), errors=errors)


def backend_traffic(before: BackendLine | None, now: BackendLine) -> Traffic:
    """Return what happened in a whole backend; arguments as for `server_traffic`.

    A request that a server answers 5xx stands in the server's count and the backend's; one that a server breaks off
    stands under `broken`, and under the backend's 5xx only if the balancer could still answer 502; one that found no
    server stands under `unanswered`. errors = max(5xx to clients, 5xx by servers + broken + unanswered) counts each
    once. Answers of the balancer's own rules (a hold that ran out) show in the first term alone.
    """
    earlier = {} if before is None else {server.name: server for server in before.servers}

    def by_server(server: ServerLine) -> int:
        was = earlier.get(server.name)
        return server.server_errors if was is None else grown(was.server_errors, server.server_errors)

    own = sum(by_server(server) for server in now.servers)
    if before is None:
        arrivals, answered, lost = now.sessions, now.answers_5xx, now.broken + now.unanswered
    else:
        arrivals = grown(before.sessions, now.sessions)
        answered = grown(before.answers_5xx, now.answers_5xx)
        lost = grown(before.broken, now.broken) + grown(before.unanswered, now.unanswered)
    was = 0 if before is None else before.in_progress
    return Traffic(arrivals=arrivals, ended=max(0, arrivals + was - now.in_progress), errors=max(answered, own + lost))


def waiting(now: BackendLine) -> int:
    """Return requests that wait: queued for a slot, and held by a rule while no server takes traffic.

    A held request belongs to the backend but to no server and no queue. It is counted only while nothing serves: with
    a server up, such a request is one whose headers are just being read.
    """
    queued = now.queued + sum(server.queued for server in now.servers)
    if any(server.state == "serving" for server in now.servers):
        return queued
    at_servers = sum(server.in_flight for server in now.servers)
    return queued + max(0, now.in_progress - at_servers - queued)
