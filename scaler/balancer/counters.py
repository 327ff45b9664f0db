"""From two readings of counters to what happened between them; a restart of the balancer loses nothing."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.balancer.stat import BackendLine
from scaler.balancer.values import ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What happened between two readings; all are at least 0.

    Attributes:
        arrivals: Requests that came.
        ended: Requests that ended, however they ended.
        errors: Requests that failed; a fraction where only a sum is known of several servers.
    """

    arrivals: int
    ended: int
    errors: float


def grown(before: int, now: int) -> int:
    """Return how much a counter grew. One that fell was set back to 0 in between: all it shows came since."""
    return now - before if now >= before else now


def ended(arrivals: int, open_before: int, open_now: int) -> int:
    """Return arrivals + open before - open now: conservation, so that nothing can leak.

    Every way in which a request can end (answered, given up by the client, reset by the replica, killed by a restart
    of the balancer) is counted exactly once.
    """
    return max(0, arrivals + open_before - open_now)


def traffic(before: BackendLine | None, now: BackendLine) -> tuple[Traffic, tuple[Traffic, ...]]:
    """Return what happened in a backend, and at each of its servers in their order.

    A failed request is answered 5xx (by the replica, or by the balancer for it), or its answer is not ended; it is
    never both, so errors = 5xx + aborted. Which replica caused a 5xx of the balancer is not counted by HAProxy: their
    number, 5xx - those of replicas - those that reached none, is shared out by each replica's faults.

    Args:
        before: Earlier reading; None = the backend was not there, and its counters began at 0.
        now: Later reading.
    """
    earlier = {} if before is None else {server.name: server for server in before.servers}
    pairs = [(earlier.get(server.name), server) for server in now.servers]
    answers_5xx = grown(0 if before is None else before.answers_5xx, now.answers_5xx)
    aborted = grown(0 if before is None else before.aborted, now.aborted)
    unreached = grown(0 if before is None else before.unreached, now.unreached)
    own = [grown(was.server_errors if was else 0, server.server_errors) for was, server in pairs]
    cut = [grown(was.aborted if was else 0, server.aborted) for was, server in pairs]
    faults = [
        max(0, grown(was.faults if was else 0, server.faults) - aborts)
        for (was, server), aborts in zip(pairs, cut, strict=True)
    ]
    for_servers = min(sum(faults), max(0, answers_5xx - sum(own) - unreached))
    share = for_servers / sum(faults) if for_servers else 0.0
    arrivals = grown(0 if before is None else before.sessions, now.sessions)
    whole = Traffic(
        arrivals=arrivals,
        ended=ended(arrivals, 0 if before is None else before.in_progress, now.in_progress),
        errors=answers_5xx + aborted,
    )
    at_servers = []
    for (was, server), answered, aborts, faulty in zip(pairs, own, cut, faults, strict=True):
        came = grown(was.sessions if was else 0, server.sessions)
        at_servers.append(
            Traffic(
                arrivals=came,
                ended=ended(came, was.in_flight if was else 0, server.in_flight),
                errors=answered + aborts + faulty * share,
            )
        )
    return whole, tuple(at_servers)


def waiting(now: BackendLine) -> int:
    """Return requests that wait: queued for a slot, and held by a rule while no server takes traffic.

    A held request belongs to the backend but to no server and no queue. It is counted only while nothing serves: with
    a server up, such a request is one whose headers are just being read.
    """
    queued = now.queued + sum(server.queued for server in now.servers)
    if any(server.state is ServerState.SERVING for server in now.servers):
        return queued
    at_servers = sum(server.in_flight for server in now.servers)
    return queued + max(0, now.in_progress - at_servers - queued)
