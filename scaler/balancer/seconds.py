"""From several readings a second to one value for the second; requests in progress as a time integral, never a peak.

A peak in each slot grows with the number of replicas and feeds on itself (knative/serving#2016); an integral does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from scaler.balancer.counters import Traffic, traffic, waiting
from scaler.balancer.latency import Latency
from scaler.balancer.stat import BackendLine, Gauges, ServerLine
from scaler.balancer.values import BackendSecond, ServerSecond, ServerState

_LONGEST_SECOND_S = 1.5
_LONGEST_STEP_S = 1.0

Key = tuple[str, str]


class Meter:
    """Accumulates the readings of one balancer; fed in the order of time."""

    def __init__(self) -> None:
        self._before: Mapping[str, BackendLine] | None = None
        self._closed_at_s = 0.0
        self._gauges: Gauges = {}
        self._read_at_s: float | None = None
        self._areas: dict[Key, float] = {}
        self._covered_s = 0.0

    def note(self, at_s: float, gauges: Gauges) -> None:
        """Take a reading of requests in progress by (backend, server); trapezoids between neighbouring readings."""
        if self._read_at_s is not None and 0 < (step_s := at_s - self._read_at_s) <= _LONGEST_STEP_S:
            before, areas = self._gauges, self._areas
            for key, value in gauges.items():
                if mean := (value + before.get(key, 0)) / 2:
                    areas[key] = areas.get(key, 0.0) + mean * step_s
            for key, value in before.items():
                if value and key not in gauges:
                    areas[key] = areas.get(key, 0.0) + value / 2 * step_s
            self._covered_s += step_s
        self._gauges = gauges
        self._read_at_s = at_s

    def close(
        self, at_s: float, found: Mapping[str, BackendLine], latencies: Mapping[Key, Latency]
    ) -> tuple[BackendSecond, ...]:
        """End the second with a whole reading and return it; empty for the first reading ever, which has no before.

        A second that took longer than 1.5 s (the balancer did not answer) is given as counts per second.

        Args:
            at_s: Time of the reading.
            found: All backends.
            latencies: By (backend, server), from the log; empty without one.
        """
        self.note(at_s, {(b.name, s.name): s.in_flight for b in found.values() for s in b.servers if s.in_flight})
        before, span_s = self._before, at_s - self._closed_at_s
        seconds: tuple[BackendSecond, ...] = ()
        if before is not None and span_s > 0:
            share = 1.0 if span_s <= _LONGEST_SECOND_S else 1.0 / span_s
            seconds = tuple(
                self._second(at_s, share, before.get(name), backend, latencies) for name, backend in found.items()
            )
        self._before, self._closed_at_s = found, at_s
        self._areas, self._covered_s = {}, 0.0
        return seconds

    def _second(
        self,
        at_s: float,
        share: float,
        before: BackendLine | None,
        now: BackendLine,
        latencies: Mapping[Key, Latency],
    ) -> BackendSecond:
        whole, at_servers = traffic(before, now)
        rows = tuple(
            self._row(now.name, server, own, share, latencies.get((now.name, server.name)))
            for server, own in zip(now.servers, at_servers, strict=True)
            if server.state is not ServerState.EMPTY or server.in_flight or own.ended
        )
        serving = [row for row in rows if row.state is ServerState.SERVING]
        ended_at_servers = sum(own.ended for own in at_servers)
        return BackendSecond(
            name=now.name,
            at_s=at_s,
            arrivals=whole.arrivals * share,
            completions=sum(row.completions or 0.0 for row in serving),
            given_up=max(0, whole.ended - ended_at_servers) * share,
            in_flight=sum(row.in_flight or 0.0 for row in serving),
            queued=float(waiting(now)),
            errors=whole.errors * share,
            servers=rows,
        )

    def _row(
        self, backend: str, server: ServerLine, own: Traffic, share: float, latency: Latency | None
    ) -> ServerSecond:
        in_flight = self._mean((backend, server.name), server.in_flight)
        ended = own.ended * share
        mean_s = latency.mean_s if latency is not None else (in_flight / ended if ended > 0 else None)
        return ServerSecond(
            name=server.name,
            address=server.address,
            state=server.state,
            in_flight=in_flight,
            queued=float(server.queued),
            completions=ended,
            errors=own.errors * share,
            latency_mean_s=mean_s,
            latency_p95_s=None if latency is None else latency.p95_s,
            limit=server.limit,
        )

    def _mean(self, key: Key, last: int) -> float:
        return self._areas.get(key, 0.0) / self._covered_s if self._covered_s > 0 else float(last)
