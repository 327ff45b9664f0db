"""One Prometheus: load of endpoints by their own queries, and what their pods use, fetched beside the decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fleet.clock import Clock
from fleet.loop import Rhythm, every, together
from fleet.prom import Prometheus
from scaler.controller.endpoint import Endpoint
from scaler.controller.world import Key
from scaler.resource import Queries
from scaler.seen import Sample, SignalState
from scaler.signals.metrics import MetricsSource
from scaler.signals.metrics_endpoint import EndpointQueries, EndpointSource
from scaler.signals.metrics_values import PodKey, PodMetrics
from scaler.vertical.thresholds import THRESHOLDS

_LOAD = Rhythm(period_s=5.0, jitter_ratio=0.0, longest_backoff_s=5.0)
_PODS = Rhythm(period_s=15.0, jitter_ratio=0.1, longest_backoff_s=60.0)
_RATIOS = ("memory_ratio", *THRESHOLDS)

Endpoints = Callable[[], Iterable[Endpoint]]


class Meters:
    """What one Prometheus says.

    Attributes:
        load: Endpoints by their own queries.
        pods: Resources of pods.
    """

    def __init__(self, prometheus: Prometheus, clock: Clock, *, is_default: bool) -> None:
        """Prepare; nothing is asked yet.

        Args:
            prometheus: Where.
            clock: Time.
            is_default: Whether it also knows the pods of endpoints that name no Prometheus.
        """
        self.load = EndpointSource(prometheus, clock)
        self.pods = MetricsSource(prometheus, clock)
        self._name = prometheus.url
        self._clock = clock
        self._is_default = is_default
        self._watched: set[Key] = set()

    def watch(self, key: Key, queries: Queries) -> None:
        """Ask for an endpoint from the next poll on."""
        self._watched.add(key)
        self.load.watch(
            str(key),
            EndpointQueries(
                in_flight=queries.in_flight,
                queued=queries.queued,
                arrivals=queries.arrivals,
                completions=queries.completions,
                extra=dict(queries.extra),
            ),
        )

    def forget(self, key: Key) -> None:
        """Ask for an endpoint no more."""
        self._watched.discard(key)
        self.load.forget(str(key))

    def sample(self, key: Key, now_s: float) -> Sample:
        """Return what is known of an endpoint's load now."""
        return self.load.sample(str(key), now_s)

    def problems(self, key: Key) -> list[str]:
        """Return why parts of an endpoint's load are not known."""
        return [f"{name}: {problem}" for name, problem in self.load.problems(str(key)).items()]

    async def run(self, endpoints: Endpoints) -> None:
        """Ask until cancelled."""

        async def ask_pods() -> None:
            mine = [endpoint for endpoint in endpoints() if self._knows(endpoint)]
            pods: set[PodKey] = {(endpoint.key.namespace, name) for endpoint in mine for name in endpoint.census.pods}
            if not pods:
                return
            answered = await self.pods.poll(pods)
            for endpoint in mine:
                namespace = endpoint.key.namespace
                endpoint.known.metrics = {
                    name: ratios_of(answered[namespace, name])
                    for name in endpoint.census.pods
                    if (namespace, name) in pods
                }

        await together(
            {
                f"load from {self._name}": every(_LOAD, self.load.poll, self._clock, name=f"load from {self._name}"),
                f"pods from {self._name}": every(_PODS, ask_pods, self._clock, name=f"pods from {self._name}"),
            }
        )

    def _knows(self, endpoint: Endpoint) -> bool:
        if not endpoint.policy.target.is_learnt:
            return False
        return endpoint.key in self._watched or (self._is_default and endpoint.spec.queries is None)


def ratios_of(metrics: PodMetrics) -> Mapping[str, float]:
    """Return the readings that count now; what is missing or stale is left out, which is not zero."""
    found: dict[str, float] = {}
    for name in _RATIOS:
        signal = getattr(metrics, name)
        if signal.state in (SignalState.VALUE, SignalState.ZERO) and signal.value is not None:
            found[name] = signal.value
    return found
