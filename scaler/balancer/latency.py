"""Latency per server from the balancer's log lines, for the mean and the 95th percentile of a second.

The balancer writes, to a datagram socket, `log-format "bm1 %b %s %ST %Tw %Tc %Tr %Td %ts"`: a mark, backend, server,
status, then waiting, connecting, answering and transferring in ms, -1 where that was not reached (HAProxy 2.8
configuration manual, section 8.4). `log ... sample 1:10` keeps busy balancers from writing a line per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MARK = b"bm1 "
LOG_FORMAT = "bm1 %b %s %ST %Tw %Tc %Tr %Td %ts"
_MOST_PER_SECOND = 4096
_MOST_IN_ALL = 200_000  # 6 MB; a second may last until the balancer's runtime socket answers again


@dataclass(frozen=True, slots=True)
class Ended:
    """One logged request that reached a server and was answered.

    Attributes:
        backend: Name.
        server: Name.
        latency_s: Connection to last byte.
    """

    backend: str
    server: str
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of one server in one second.

    Attributes:
        requests: Lines it was computed from.
        mean_s: Mean.
        p95_s: Nearest rank.
    """

    requests: int
    mean_s: float
    p95_s: float


def ended_in(line: bytes) -> Ended | None:
    """Return the request that a line tells of; None = it has no latency: no server answered, or it is no request's.

    A balancer that logs all it does to the socket writes other lines too; they lack the mark.

    Raises:
        ValueError: The line is marked but not of this format.
        OverflowError: A number in it is larger than any.
    """
    mark = line.find(MARK)
    if mark < 0:
        return None
    parts = line[mark + len(MARK) :].split()
    if len(parts) != 8:
        raise ValueError(f"{len(parts)} fields instead of 8")
    connecting, answering, transferring = int(parts[4]), int(parts[5]), int(parts[6])
    if min(connecting, answering, transferring) < 0:
        return None
    return Ended(parts[0].decode(), parts[1].decode(), (connecting + answering + transferring) / 1000.0)


def summary(latencies_s: Sequence[float]) -> Latency | None:
    """Return mean and nearest-rank 95th percentile; None for none."""
    if not latencies_s:
        return None
    ranked = sorted(latencies_s)
    rank = -(-95 * len(ranked) // 100) - 1
    return Latency(requests=len(ranked), mean_s=sum(ranked) / len(ranked), p95_s=ranked[rank])


@dataclass(slots=True)
class LatencyBook:
    """Collects lines until the second ends.

    Attributes:
        unreadable: Lines so far that were not of the format.
        dropped: Lines so far beyond what a second keeps, of one server or of all.
    """

    unreadable: int = 0
    dropped: int = 0
    _found: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _kept: int = 0

    def add(self, line: bytes) -> None:
        """Take one line; one that cannot be read is counted."""
        try:
            ended = ended_in(line)
        except (ValueError, OverflowError):
            self.unreadable += 1
            return
        if ended is None:
            return
        if self._kept >= _MOST_IN_ALL:
            self.dropped += 1
            return
        of_server = self._found.setdefault((ended.backend, ended.server), [])
        if len(of_server) < _MOST_PER_SECOND:
            of_server.append(ended.latency_s)
            self._kept += 1
        else:
            self.dropped += 1

    def close(self) -> dict[tuple[str, str], Latency]:
        """Return the second's latencies by (backend, server), and begin the next second."""
        found, self._found, self._kept = self._found, {}, 0
        return {key: latency for key, values in found.items() if (latency := summary(values)) is not None}
