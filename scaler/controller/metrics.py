"""What Prometheus is shown of the controller."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from scaler.decision import Decision

_AGES_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0)


class ScalerMetrics:
    """Counts of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "berthmaster_scaler_"
        self.is_leader = Gauge(f"{prefix}leader", "1 while this replica leads.", registry=registry)
        self.endpoints = Gauge(f"{prefix}endpoints", "Autoscalers with a valid spec.", registry=registry)
        self.decisions = Counter(f"{prefix}decisions", "Decisions by reason.", ["reason"], registry=registry)
        self.age_s = Histogram(
            f"{prefix}decision_age_seconds",
            "From the end of the second that a decision was taken on to the decision.",
            buckets=_AGES_S,
            registry=registry,
        )
        self.round_s = Histogram(
            f"{prefix}round_seconds",
            "One balancer asked, and all its endpoints fed.",
            buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
            registry=registry,
        )
        self.faults = Counter(f"{prefix}faults", "Turns of an endpoint that failed by a bug.", registry=registry)
        self.malformed = Counter(
            f"{prefix}malformed_objects", "Objects that could not be read.", ["kind"], registry=registry
        )

    def decided(self, decision: Decision, age_s: float) -> None:
        """Count a decision; one on nothing seen yet has no age."""
        self.decisions.labels(decision.reason.value).inc()
        if math.isfinite(age_s):
            self.age_s.observe(age_s)
