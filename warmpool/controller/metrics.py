"""What Prometheus is shown of the controller."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from warmpool.starts.book import Entry

_LEADS_S = (15.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 420.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0)

_STARTS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1200.0)


class WarmPoolMetrics:
    """Counts of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "berthmaster_warmpool_"
        self.is_leader = Gauge(f"{prefix}leader", "1 while this replica leads.", registry=registry)
        self.nodes = Gauge(f"{prefix}nodes", "Nodes of a pool by state.", ["pool", "state"], registry=registry)
        self.wanted = Gauge(f"{prefix}wanted_nodes", "Warm unclaimed nodes wanted.", ["pool"], registry=registry)
        self.warm = Gauge(f"{prefix}warm_nodes", "Nodes that a draw would get now.", ["pool"], registry=registry)
        self.draws = Counter(
            f"{prefix}draws", "Replicas that needed a node of a pool.", ["pool", "outcome"], registry=registry
        )
        self.idle_s = Counter(
            f"{prefix}idle_node_seconds", "Node-seconds that were warm and unclaimed.", ["pool"], registry=registry
        )
        self.lead_s = Histogram(
            f"{prefix}lead_seconds", "From order to proven warm.", ["pool"], buckets=_LEADS_S, registry=registry
        )
        self.start_s = Histogram(
            f"{prefix}start_seconds",
            "Parts of replicas' starts, from creation to Ready, by what came of their draw (hit, miss; room = none).",
            ["pool", "outcome", "part"],
            buckets=_STARTS_S,
            registry=registry,
        )
        self.orders = Counter(f"{prefix}orders", "Nodes ordered.", ["pool"], registry=registry)
        self.refusals = Counter(f"{prefix}refusals", "Orders refused.", ["pool", "reason"], registry=registry)
        self.failures = Counter(f"{prefix}failures", "Nodes given up.", ["pool", "reason"], registry=registry)
        self.decisions = Counter(f"{prefix}decisions", "Sizes decided.", ["pool", "reason"], registry=registry)
        self.look_s = Histogram(
            f"{prefix}look_seconds",
            "One look at one pool, its writes included.",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0),
            registry=registry,
        )
        self.orphans = Gauge(f"{prefix}orphans", "Nodes of pools that are not there.", registry=registry)
        self.faults = Counter(f"{prefix}faults", "Looks at a pool that failed by a bug.", registry=registry)
        self.malformed = Counter(
            f"{prefix}malformed_objects", "Objects that could not be read.", ["kind"], registry=registry
        )
        self._of_pool = (self.wanted, self.warm)
        self._labelled = (
            self.nodes,
            self.draws,
            self.idle_s,
            self.lead_s,
            self.start_s,
            self.orders,
            self.refusals,
            self.failures,
            self.decisions,
        )

    def started(self, entry: Entry) -> None:
        """Show one start."""
        for part, value_s in entry.start.parts_s.items():
            self.start_s.labels(entry.pool, entry.outcome, part.value).observe(value_s)
        self.start_s.labels(entry.pool, entry.outcome, "total").observe(entry.start.total_s)

    def forget(self, pool: str) -> None:
        """Show nothing more of a pool that is gone."""
        for metric in (*self._of_pool, *self._labelled):
            for values in list(metric._metrics):  # the client has no public way to list label sets
                if values and values[0] == pool:
                    metric.remove(*values)
