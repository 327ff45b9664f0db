"""The exporter's loop: ten readings a second, one second of samples, then the limits. It reads and carries out only."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from fleet.clock import Clock
from fleet.errors import DecodeError
from scaler.balancer.latency import LatencyBook
from scaler.balancer.limits import Allowance, settings
from scaler.balancer.metrics import ExporterMetrics, Totals
from scaler.balancer.seconds import Meter
from scaler.balancer.socket import RuntimeSocket, SocketError
from scaler.balancer.stat import BackendLine, backends, gauges
from scaler.balancer.wire import Journal

_log = logging.getLogger(__name__)

READINGS = 10
_STEP_S = 1.0 / READINGS
_STALE_AFTER_S = 3.0


class Exporter:
    """Reads one balancer.

    Args:
        runtime: Its runtime socket.
        clock: Time; seconds end on its monotonic clock, one second apart.
        allowances: What replicas may hold now, by backend.
        names: Backends to report; none = all.
        balancers: How many balancers share the replicas.
    """

    def __init__(
        self,
        runtime: RuntimeSocket,
        clock: Clock,
        *,
        allowances: Callable[[], Mapping[str, Allowance]] = dict,
        names: frozenset[str] = frozenset(),
        balancers: int = 1,
    ) -> None:
        self.book = LatencyBook()
        self._totals = Totals()
        self.metrics = ExporterMetrics(
            self._totals, lambda: {"unreadable": self.book.unreadable, "too many": self.book.dropped}
        )
        self._runtime = runtime
        self._clock = clock
        self._allowances = allowances
        self._names = names
        self._balancers = balancers
        self._meter = Meter()
        self._journal = Journal(secrets.token_hex(8))
        self._read_at_s = float("-inf")
        self._failure = "nothing was read yet"
        self._is_failing = False

    def samples(self, since: int) -> bytes:
        """Return the encoded answer to a question for samples."""
        return self._journal.answer(since, self._clock.monotonic_s())

    def not_ready(self) -> str:
        """Return why there are no fresh samples, "" = there are."""
        return self._failure if self._clock.monotonic_s() - self._read_at_s > _STALE_AFTER_S else ""

    async def run(self) -> None:
        """Read until cancelled. A balancer that does not answer costs samples, never the loop."""
        start_s = self._clock.monotonic_s()
        number = 0
        await self._tried(self.close_second(0))  # what the first second is counted from
        while True:
            # Seconds that passed while the balancer kept silent leave out their numbers.
            number = max(number + 1, math.floor(self._clock.monotonic_s() - start_s) + 1)
            for step in range(1, READINGS):
                ahead_s = start_s + number - 1 + step * _STEP_S - self._clock.monotonic_s()
                if ahead_s > 0:
                    await self._clock.sleep(ahead_s)
                    await self._tried(self.read_gauges())
            await self._clock.sleep(start_s + number - self._clock.monotonic_s())
            await self._tried(self.close_second(number))

    async def _tried(self, reading: Awaitable[None]) -> None:
        try:
            await reading
        except (SocketError, DecodeError) as error:
            self._failed(error)

    async def read_gauges(self) -> None:
        """Take one reading of requests in progress."""
        asked_at_s = self._clock.monotonic_s()
        text = await self._runtime.statistics(with_empty=False)
        self._meter.note((asked_at_s + self._clock.monotonic_s()) / 2, gauges(text))

    async def close_second(self, seq: int) -> None:
        """Take a whole reading, keep the second that it ends, and bring the limits to what is published."""
        asked_at_s = self._clock.monotonic_s()
        text = await self._runtime.statistics(with_empty=True)
        at_s = (asked_at_s + self._clock.monotonic_s()) / 2
        found = {
            name: backend
            for name, backend in backends(text).items()
            if backend.servers and (not self._names or name in self._names)
        }
        seconds = self._meter.close(at_s, found, self.book.close())
        if seconds:
            self._journal.add(seq, at_s, [replace(second, at_s=0.0) for second in seconds])
            self._totals.add(seconds)
        if self._is_failing:
            _log.info("the balancer at %s answers again", self._runtime.path)
        self._read_at_s, self._is_failing = at_s, False
        await self._apply(found)

    async def _apply(self, found: Mapping[str, BackendLine]) -> None:
        wanted = settings(found.values(), self._allowances(), self._balancers)
        commands = [command for setting in wanted for command in setting.commands()]
        if not commands:
            return
        complaints = await self._runtime.tell(commands)
        self.metrics.settings.labels("sent").inc(len(commands))
        if complaints:
            self.metrics.settings.labels("refused").inc(len(complaints))
            _log.warning("the balancer refused %d of %d settings: %s", len(complaints), len(commands), complaints[0])

    def _failed(self, error: SocketError | DecodeError) -> None:
        kind = error.kind if isinstance(error, SocketError) else "unreadable"
        self.metrics.failed.labels(kind).inc()
        if not self._is_failing:
            _log.warning("the balancer cannot be read: %s", error)
        self._failure, self._is_failing = str(error), True
