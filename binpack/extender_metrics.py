"""The extender's metrics; names follow the Prometheus conventions, units in the name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from binpack.extender import Outcome

# Fine around the 0.1 to 5 ms in which a Filter call should end; the rest is there to show that something is wrong.
_SECONDS = (
    *(0.00005, 0.0001, 0.00015, 0.0002, 0.0003, 0.0004, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the extender holds now; a value for each gauge.

    Attributes:
        silence_s: Seconds since the quietest watch last heard from the API server; NaN before all have.
    """

    is_synced: bool
    silence_s: float
    nodes: int
    contested_nodes: int
    promises: int
    warnings: int


class ExtenderMetrics:
    """Everything the extender counts; one instance per process."""

    def __init__(self, sizes: Callable[[], Sizes]) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "berthmaster_extender_seconds",
            "Time inside the handler, decoding and encoding included, by verb",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        filtered = Counter(
            "berthmaster_extender_filter_total", "Filter calls, by how they ended", ["outcome"], registry=self.registry
        )
        self.filtered = {outcome: filtered.labels(outcome=outcome.value) for outcome in Outcome}
        self.refused = Counter(
            "berthmaster_extender_unusable_total",
            "Requests that could not be used, by verb and HTTP status",
            ["verb", "status"],
            registry=self.registry,
        )
        self.waits = Counter(
            "berthmaster_extender_watch_waits_total",
            "Refusals held back until the watch had caught up with the scheduler's, by whether it did",
            ["caught_up"],
            registry=self.registry,
        )
        self.malformed = Counter(
            "berthmaster_extender_malformed_total",
            "Objects of the cluster that could not be read and were skipped",
            ["kind"],
            registry=self.registry,
        )
        self.registry.register(_Gauges(sizes))


class _Gauges(Collector):
    """Read when scraped, so that they can never lag behind what they count."""

    def __init__(self, sizes: Callable[[], Sizes]) -> None:
        self._sizes = sizes

    def collect(self) -> Iterable[GaugeMetricFamily]:
        sizes = self._sizes()
        silence_s = sizes.silence_s if math.isfinite(sizes.silence_s) else math.nan
        for name, text, value in (
            ("synced", "1 once the ledger holds the whole cluster", float(sizes.is_synced)),
            ("watch_silence_seconds", "Since the quietest watch last heard from the API server", silence_s),
            ("nodes", "Nodes in the ledger", sizes.nodes),
            ("contested_nodes", "Nodes on which pods that are not bound yet hold something", sizes.contested_nodes),
            ("promises", "Candidates kept for pods until they are seen bound", sizes.promises),
            ("ledger_warnings", "Records that the ledger could not make sense of", sizes.warnings),
        ):
            yield GaugeMetricFamily(f"berthmaster_extender_{name}", text, value=value)
