"""What the exporter shows to Prometheus: the balancer's traffic as counters and gauges, and its own faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scaler.balancer.values import BackendSecond

PREFIX = "berthmaster_balancer"


class Totals:
    """Sums by backend since the exporter started; a restart of the balancer does not set them back."""

    def __init__(self) -> None:
        self.arrivals: dict[str, float] = {}
        self.completions: dict[str, float] = {}
        self.errors: dict[str, float] = {}
        self.last: tuple[BackendSecond, ...] = ()

    def add(self, seconds: tuple[BackendSecond, ...]) -> None:
        """Take one second of every backend."""
        self.last = seconds
        for second in seconds:
            for sums, value in (
                (self.arrivals, second.arrivals),
                (self.completions, second.completions),
                (self.errors, second.errors),
            ):
                sums[second.name] = sums.get(second.name, 0.0) + (value or 0.0)


class _Traffic(Collector):
    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        for name, text, sums in (
            ("arrivals", "Requests that came", self._totals.arrivals),
            ("completions", "Requests that ended on serving servers", self._totals.completions),
            ("errors", "Requests that failed", self._totals.errors),
        ):
            family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=["backend"])
            for backend, total in dict(sums).items():
                family.add_metric([backend], total)
            yield family
        yield self._gauge(
            "in_flight", "Requests in progress on serving servers, average of the last second", lambda s: s.in_flight
        )
        yield self._gauge("queued", "Requests waiting for a slot, or held while there is no server", lambda s: s.queued)
        limits = GaugeMetricFamily(
            f"{PREFIX}_server_limit", "Most requests in progress; 0 = no bound", labels=["backend", "server"]
        )
        load = GaugeMetricFamily(
            f"{PREFIX}_server_in_flight",
            "Requests in progress, average of the last second",
            labels=["backend", "server"],
        )
        for second in self._totals.last:
            for server in second.servers:
                limits.add_metric([second.name, server.name], float(server.limit or 0))
                load.add_metric([second.name, server.name], server.in_flight or 0.0)
        yield limits
        yield load

    def _gauge(self, name: str, text: str, of: Callable[[BackendSecond], float | None]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["backend"])
        for second in self._totals.last:
            value = of(second)
            if value is not None:
                family.add_metric([second.name], value)
        return family


class _Lines(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(
            f"{PREFIX}_log_lines_lost", "Log lines that could not be read, or were more than kept", labels=["why"]
        )
        for why, count in self._counts().items():
            family.add_metric([why], count)
        yield family


class ExporterMetrics:
    """Everything the exporter counts; one instance per process."""

    def __init__(self, totals: Totals, lines: Callable[[], Mapping[str, int]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Traffic(totals))
        self.registry.register(_Lines(lines))
        self.failed = Counter(
            f"{PREFIX}_reads_failed", "Readings of the runtime socket that failed", ["why"], registry=self.registry
        )
        self.settings = Counter(
            f"{PREFIX}_settings", "Limits and weights sent to the balancer", ["outcome"], registry=self.registry
        )
        self.refused = Counter(f"{PREFIX}_asks_refused", "Questions without the right token", registry=self.registry)
