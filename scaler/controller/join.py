"""A second at the balancer joined with the live pods: whose load counts, and whose does not.

The replica is who it is by its name or its address in the live list, never by what a series calls itself: a server
without a live pod is a ghost, a second one of the same pod a duplicate, and a pod that is leaving is no capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.controller.census import Census
from scaler.seen import Phase, Sample, usable

_NO_EXTRA: Mapping[str, float | None] = {}
_LEAVING = (ServerState.DRAINING, ServerState.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One replica in one second.

    Attributes:
        pod: Name of the pod.
        server: What every balancer calls it: its address, or where none is told, the name of its slot.
    """

    pod: str
    server: str
    in_flight: float
    completions: float
    errors: float
    latency_s: float | None
    p95_s: float | None


@dataclass(slots=True)
class Rejected:
    """Counts since the start of what was dropped, by reason."""

    unusable: int = 0
    ghost: int = 0
    duplicate: int = 0
    unmatched: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What one second says.

    Attributes:
        sample: For the horizontal axis.
        rows: One per serving replica, for the vertical axis.
        is_unmatched: There are Ready pods and servers, and none of these is any of those: no load can be told.
    """

    sample: Sample
    rows: tuple[Row, ...] = field(default=())
    is_unmatched: bool = False


def join(
    second: BackendSecond, seen: Census, rejected: Rejected, extra: Mapping[str, float | None] = _NO_EXTRA
) -> Joined:
    """Return the sample and the rows of one second; what is dropped is counted in `rejected`.

    Where one of several balancers is silent, what the others say is a lower bound: it may ask for replicas, so the
    load counts, and it may not let any go, so the rates do not.
    """
    rows = _rows(second.servers, seen, rejected)
    has_servers = any(not _is_leaving(server) for server in second.servers)
    is_unmatched = not rows and has_servers and seen.fleet.ready > 0
    if is_unmatched:
        rejected.unmatched += 1
    sample = Sample(
        at_s=second.at_s,
        arrivals=None if second.is_partial else _known(second.arrivals, rejected),
        completions=None if second.is_partial else _known(second.completions, rejected),
        in_flight=None if is_unmatched else _in_flight(second, rows, rejected),
        queued=_known(second.queued, rejected),
        errors=_known(second.errors, rejected),
        extra=extra,
        is_partial=second.is_partial,
    )
    return Joined(sample=sample, rows=rows, is_unmatched=is_unmatched)


def _in_flight(second: BackendSecond, rows: Sequence[Row], rejected: Rejected) -> float | None:
    """Return the load on serving replicas; without servers listed, the backend's own figure."""
    return sum(row.in_flight for row in rows) if second.servers else _known(second.in_flight, rejected)


def _rows(servers: Iterable[ServerSecond], seen: Census, rejected: Rejected) -> tuple[Row, ...]:
    rows: dict[str, Row] = {}
    for server in servers:
        name = _pod_of(server, seen)
        if name is None:
            rejected.ghost += 1
        elif name in rows:
            rejected.duplicate += 1
        elif seen.pods[name].phase is Phase.READY and not _is_leaving(server):
            in_flight = server.in_flight
            if in_flight is None or not usable(in_flight):
                rejected.unusable += in_flight is not None
                continue
            rows[name] = Row(
                pod=name,
                server=server.address or server.name,
                in_flight=in_flight,
                completions=_known(server.completions, rejected) or 0.0,
                errors=_known(server.errors, rejected) or 0.0,
                latency_s=_known(server.latency_mean_s, rejected),
                p95_s=_known(server.latency_p95_s, rejected),
            )
    return tuple(rows.values())


def _pod_of(server: ServerSecond, seen: Census) -> str | None:
    if server.name in seen.pods:
        return server.name
    address = server.address
    name = seen.names.get(address)
    if name is None and ":" in address:
        name = seen.names.get(address.rpartition(":")[0].strip("[]"))
    return name


def _is_leaving(server: ServerSecond) -> bool:
    return server.state in _LEAVING


def _known(value: float | None, rejected: Rejected) -> float | None:
    if value is None or usable(value):
        return value
    rejected.unusable += 1
    return None
