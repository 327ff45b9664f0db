"""Seconds of several exporters put on one time line, by the receiver's clock and their own numbers.

A sample counts from when it was received; the sender may number its seconds and say how old they are, never stamp them
(knative/serving#3601: a clock a minute slow kept a service asleep).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.balancer.wire import SamplesAnswer
from scaler.seen import usable

# One second of a silent exporter is waited for this long; then the others' seconds go on without it, as partial.
_PATIENCE_S = 2.0
_OLDEST_S = 60.0
_LARGEST_DRIFT_S = 3.0
# An answer cannot tell of more seconds than there were: what would lie further ahead of the clock than this is not one.
_MOST_AHEAD_S = 5.0
_LARGEST_SEQ = 2**53
_MOST_REQUESTS = 1e9  # in one second, or at once; more is a broken counter, not traffic
_COUNTS = ("arrivals", "completions", "given_up", "in_flight", "queued", "errors")
_SERVER_COUNTS = ("in_flight", "queued", "completions", "errors")
_PREFERENCE = (ServerState.SERVING, ServerState.DRAINING, ServerState.DOWN, ServerState.EMPTY)


@dataclass(slots=True)
class _Sender:
    """What is known of one exporter.

    Attributes:
        run: Its random name of this run.
        base: Tick of its second 0.
        seen: Highest number taken.
        last: Highest tick it told of; None = none yet.
    """

    run: str = ""
    base: int = 0
    seen: int = 0
    last: int | None = None


@dataclass(slots=True)
class Counts:
    """What the line met, since the start.

    Attributes:
        gaps: Seconds that an exporter never saw or that were lost on the way.
        restarts: Runs that ended.
        repeated: Seconds that came twice.
        late: Seconds that came after the others had gone on.
        ahead: Seconds that cannot have been yet.
        unusable: Numbers that were not finite, below 0, or larger than any traffic.
    """

    gaps: int = 0
    restarts: int = 0
    repeated: int = 0
    late: int = 0
    ahead: int = 0
    unusable: int = 0


@dataclass(slots=True)
class Timeline:
    """Joins the seconds of `senders` exporters of the same backends.

    Attributes:
        senders: How many there are.
        counts: What was met.
    """

    senders: int
    counts: Counts = field(default_factory=Counts)
    _known: dict[int, _Sender] = field(default_factory=dict)
    _ticks: dict[int, dict[int, tuple[BackendSecond, ...]]] = field(default_factory=dict)
    _told: int | None = None

    def since(self, sender: int) -> int:
        """Return the number to ask that exporter from."""
        known = self._known.get(sender)
        return known.seen if known else 0

    def take(self, sender: int, answer: SamplesAnswer, received_s: float) -> None:
        """Put one answer on the line.

        Args:
            sender: Number of the exporter, from 0.
            answer: Decoded.
            received_s: When, on the receiver's clock.
        """
        known = self._known.setdefault(sender, _Sender())
        if known.run != answer.exporter:
            self.counts.restarts += bool(known.run)
            known.run, known.seen, known.base = answer.exporter, 0, 0
        for second in answer.seconds:
            age_s = second.age_s if usable(second.age_s) and second.age_s <= _OLDEST_S else 0.0
            at_s = received_s - age_s
            if second.seq <= known.seen:
                self.counts.repeated += 1
                continue
            if second.seq > _LARGEST_SEQ:
                self.counts.unusable += 1
                continue
            if not known.seen or abs(known.base + second.seq - at_s) > _LARGEST_DRIFT_S:
                # A new run's first second may round to the last tick of the run before: no tick is told twice.
                tick = round(at_s)
                known.base = (tick if known.last is None else max(tick, known.last + 1)) - second.seq
            elif second.seq > known.seen + 1:
                self.counts.gaps += second.seq - known.seen - 1
            known.seen = second.seq
            if known.base + second.seq > at_s + _MOST_AHEAD_S:
                # Taken, it would push this line ahead of its own clock for ever, and the others' seconds out of it.
                self.counts.ahead += 1
                known.base = round(at_s) - second.seq
                continue
            known.last = known.base + second.seq
            self._put(sender, known.last, at_s, second.backends)

    def _put(self, sender: int, tick: int, at_s: float, backends: Iterable[BackendSecond]) -> None:
        if self._told is not None and tick <= self._told:
            self.counts.late += 1
            return
        self._ticks.setdefault(tick, {})[sender] = tuple(replace(self._clean(one), at_s=at_s) for one in backends)

    def ready(self, now_s: float) -> list[BackendSecond]:
        """Return, in order, the seconds that every exporter has told of, or that were waited for long enough."""
        out: list[BackendSecond] = []
        for tick in sorted(self._ticks):
            told = self._ticks[tick]
            is_whole = len(told) >= self.senders
            if not is_whole and now_s - tick < _PATIENCE_S:
                break
            out += _merged(list(told.values()), is_partial=not is_whole)
            del self._ticks[tick]
            self._told = tick
        return out

    def _clean(self, second: BackendSecond) -> BackendSecond:
        return replace(
            second,
            arrivals=self._usable(second.arrivals),
            completions=self._usable(second.completions),
            given_up=self._usable(second.given_up),
            in_flight=self._usable(second.in_flight),
            queued=self._usable(second.queued),
            errors=self._usable(second.errors),
            servers=tuple(
                replace(
                    server,
                    in_flight=self._usable(server.in_flight),
                    queued=self._usable(server.queued),
                    completions=self._usable(server.completions),
                    errors=self._usable(server.errors),
                    latency_mean_s=self._usable(server.latency_mean_s),
                    latency_p95_s=self._usable(server.latency_p95_s),
                )
                for server in second.servers
            ),
        )

    def _usable(self, value: float | None) -> float | None:
        if value is None or (usable(value) and value <= _MOST_REQUESTS):
            return value
        self.counts.unusable += 1
        return None


def _merged(told: Sequence[tuple[BackendSecond, ...]], *, is_partial: bool) -> list[BackendSecond]:
    by_name: dict[str, list[BackendSecond]] = {}
    for seconds in told:
        for second in seconds:
            by_name.setdefault(second.name, []).append(second)
    return [_sum(seconds, is_partial=is_partial) for seconds in by_name.values()]


def _sum(seconds: Sequence[BackendSecond], *, is_partial: bool) -> BackendSecond:
    first = seconds[0]
    if len(seconds) == 1:
        return replace(first, is_partial=is_partial)
    return BackendSecond(
        name=first.name,
        at_s=max(second.at_s for second in seconds),
        **{name: _added([getattr(second, name) for second in seconds]) for name in _COUNTS},
        servers=_servers(seconds),
        is_partial=is_partial,
    )


def _servers(seconds: Sequence[BackendSecond]) -> tuple[ServerSecond, ...]:
    """Return one row per replica: two balancers know the same one by its address, whatever the slot is called."""
    by_address: dict[str, list[ServerSecond]] = {}
    for second in seconds:
        for server in second.servers:
            by_address.setdefault(server.address or server.name, []).append(server)
    return tuple(_replica(rows) for rows in by_address.values())


def _replica(rows: Sequence[ServerSecond]) -> ServerSecond:
    if len(rows) == 1:
        return rows[0]
    timed = [(row.latency_mean_s, row.completions or 0.0) for row in rows if row.latency_mean_s is not None]
    weight = sum(share for _, share in timed)
    slowest = [row.latency_p95_s for row in rows if row.latency_p95_s is not None]
    limits = [row.limit for row in rows]
    return ServerSecond(
        name=rows[0].name,
        address=rows[0].address,
        state=min((row.state for row in rows), key=_PREFERENCE.index),
        **{name: _added([getattr(row, name) for row in rows]) for name in _SERVER_COUNTS},
        latency_mean_s=sum(mean_s * share for mean_s, share in timed) / weight if weight > 0 else None,
        latency_p95_s=max(slowest, default=None),
        limit=None if None in limits else 0 if 0 in limits else sum(limit or 0 for limit in limits),
    )


def _added(values: Sequence[float | None]) -> float | None:
    return None if None in values else sum(value or 0.0 for value in values)
