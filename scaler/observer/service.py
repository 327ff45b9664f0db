"""The observer's process: looks at the devices of its node every few seconds and serves what it saw."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fleet.clock import Clock, SystemClock
from fleet.loop import Rhythm, every
from fleet.telemetry import Counts, serve_probes
from scaler.observer.exposition import families
from scaler.observer.nvml import Nvml, load
from scaler.observer.pods import NodePods
from scaler.observer.readings import DeviceReading
from scaler.observer.watch import Watcher
from scaler.signals.metrics_values import PodKey

PORT = 9400  # DCGM exporter's
_PERIOD_S = 5.0
# A driver can hang for minutes in a device's reset: three looks later nothing is known any more.
_STALE_PERIODS = 3.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at one moment.

    Attributes:
        at_s: When the look ended, on the monotonic clock; -inf = never.
        readings: Devices and instances.
        pods: By host pid.
        errors: NVML's refusals since the start, by what was asked and the reason.
    """

    at_s: float = float("-inf")
    readings: tuple[DeviceReading, ...] = ()
    pods: Mapping[int, PodKey] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], float] = field(default_factory=dict)


class Window(Collector):
    """Shows the newest look while it is fresh; afterwards its series are absent, because nothing is known."""

    def __init__(self, hostname: str, clock: Clock, stale_after_s: float) -> None:
        self._hostname = hostname
        self._clock = clock
        self._stale_after_s = stale_after_s
        self.look = Look()

    @property
    def is_fresh(self) -> bool:
        """Return whether the newest look still counts."""
        return self._clock.monotonic_s() - self.look.at_s <= self._stale_after_s

    def not_ready(self) -> str:
        """Return why this process shows nothing, "" if it does."""
        if not self.is_fresh:
            return "no look at the devices has ended lately"
        return "" if self.look.readings else "no device can be read"

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the newest look, and how many devices and instances it saw."""
        seen = self.look.readings if self.is_fresh else ()
        yield from families(seen, self.look.pods, self._hostname)
        yield GaugeMetricFamily("berthmaster_observer_devices", "Devices and MIG instances that can be read", len(seen))


async def run_observer(
    *,
    host: str = "",
    port: int = PORT,
    hostname: str,
    period_s: float = _PERIOD_S,
    clock: Clock | None = None,
    nvml: Nvml | None = None,
    pods: NodePods | None = None,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve /metrics, /healthz and /readyz until cancelled.

    Args:
        host: To listen on; "" = every interface, for Prometheus to reach.
        port: To listen on; 0 = any free one.
        hostname: Of the node, for the label Hostname.
        period_s: Between two looks; GPM ratios are averages over it.
        clock: Time; the machine's own by default.
        nvml: Where to read; the driver's by default.
        pods: Whose processes they are; this node's files by default.
        started: Told the port listened on.

    Raises:
        ConfigError: nvidia-ml-py is not installed.
        OSError: The address cannot be listened on.
    """
    clock = clock or SystemClock()
    pods = pods or NodePods()
    watcher = Watcher(nvml or load())
    window = Window(hostname, clock, _STALE_PERIODS * period_s)
    registry = CollectorRegistry()
    registry.register(window)
    registry.register(
        Counts(
            "berthmaster_observer_nvml_errors",
            "What NVML refused, without what a device does not support",
            ["asked", "reason"],
            lambda: dict(window.look.errors.items()),
        )
    )

    def look() -> Look:
        readings = watcher.look()
        owners = pods.of(pid for reading in readings for pid in reading.processes)
        return Look(at_s=clock.monotonic_s(), readings=readings, pods=owners, errors={**watcher.errors})

    async def turn() -> None:
        # In a thread, because a hanging driver must not keep the probes from answering.
        window.look = await asyncio.to_thread(look)

    async with serve_probes(host, port, registry, window.not_ready) as listening:
        _log.info("observer listens", extra={"port": listening})
        started(listening)
        await every(Rhythm(period_s=period_s, jitter_ratio=0.0), turn, clock, name="observer")
