"""What one second looked like at the balancer: per backend and per server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ServerState(StrEnum):
    """What a server slot of the balancer does."""

    SERVING = "serving"
    DRAINING = "draining"  # finishes what it has, takes nothing new
    DOWN = "down"  # its health check failed
    EMPTY = "empty"  # in maintenance: no replica has the slot


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecond:
    """One second of one server; None = not known.

    Attributes:
        name: Of the slot; it outlives the replica that has it.
        address: IP:PORT of the replica, "" = none.
        state: At the end of the second.
        in_flight: Requests in progress, time average.
        queued: Waiting for this server alone, at the end.
        completions: Requests that ended here, however they ended.
        errors: Of those, answered 5xx, cut short or not answered.
        latency_mean_s: From the connection to the last byte, waiting left out: measured from the balancer's log where
            there is one, else in_flight / completions (Little), which is noisy in a single second.
        latency_p95_s: 95th percentile of the logged requests that ended in this second.
        limit: Most requests in progress that the balancer allows; 0 = no bound, None = not known.
    """

    name: str
    address: str
    state: ServerState
    in_flight: float | None = None
    queued: float | None = None
    completions: float | None = None
    errors: float | None = None
    latency_mean_s: float | None = None
    latency_p95_s: float | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSecond:
    """One second of one backend; None = not known.

    Attributes:
        name: Of the backend.
        at_s: When the second ended, on the clock of whoever holds this value.
        arrivals: Requests that came, held and queued ones too.
        completions: Requests that ended on serving servers, so that in_flight / completions is the time in a replica.
        given_up: Requests that ended without having reached a server.
        in_flight: In progress on serving servers, time average.
        queued: Waiting for a slot, or held while there is no server, at the end.
        errors: Answered 5xx (by a server or by the balancer), cut short or not answered.
        servers: Every slot that has a replica, whatever its state.
        is_partial: Some balancer of this backend is silent: the numbers are a lower bound.
    """

    name: str
    at_s: float
    arrivals: float | None = None
    completions: float | None = None
    given_up: float | None = None
    in_flight: float | None = None
    queued: float | None = None
    errors: float | None = None
    servers: tuple[ServerSecond, ...] = ()
    is_partial: bool = False
