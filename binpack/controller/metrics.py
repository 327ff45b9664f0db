"""The planner's metrics; names follow the Prometheus conventions, units in the name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class PlannerMetrics:
    """Everything the planner counts; one instance per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.placed = Counter("berthmaster_pods_placed_total", "Pods given a berth, by how", ["how"], registry=registry)
        self.patches = Counter(
            "berthmaster_patches_total", "Pod patches written, by outcome", ["outcome"], registry=registry
        )
        self.allotments = Counter(
            "berthmaster_claim_allocations_total",
            "Pods whose resource claims were to be allocated, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.plans = Counter(
            "berthmaster_plans_total", "Batches planned, by who made the plan", ["source"], registry=registry
        )
        self.solves = Counter("berthmaster_solves_total", "How the solver ended", ["status"], registry=registry)
        self.violations = Counter(
            "berthmaster_plan_violations_total",
            "Violations the verifier found in plans, by the cluster they were asked for; they were then not used",
            registry=registry,
        )
        self.stale = Counter(
            "berthmaster_placements_stale_total",
            "Berths that had gone when the solver was done, by what became of the pods at once",
            ["outcome"],
            registry=registry,
        )
        self.draws = Counter(
            "berthmaster_draws_total",
            "Pods that needed a warm node and were placed, by pool and outcome; lost: nodes that somebody else had",
            ["pool", "outcome"],
            registry=registry,
        )
        self.repairs = Counter(
            "berthmaster_repairs_total", "Pinned pods deleted, by reason", ["reason"], registry=registry
        )
        self.moves = Counter(
            "berthmaster_moves_total",
            "Moves of pods, by how they stand or how they ended",
            ["stage"],
            registry=registry,
        )
        self.moves_open = Gauge("berthmaster_moves_open", "Moves of pods that are under way", registry=registry)
        self.moves_proposed = Counter(
            "berthmaster_moves_proposed_total",
            "Moves that were proposed, by what they are for",
            ["reason"],
            registry=registry,
        )
        self.move_searches = Counter(
            "berthmaster_move_searches_total",
            "Searches for moves, by what came of them; Lost: no answer, Outdated: the cluster had gone on",
            ["outcome"],
            registry=registry,
        )
        self.move_search_s = Histogram(
            "berthmaster_move_search_seconds",
            "One search for moves, beside the planner's own work",
            buckets=_SECONDS,
            registry=registry,
        )
        self.move_objective = Gauge(
            "berthmaster_move_plan_objective_milli_gpu",
            "Cost of the last plan of moves, below 0 a gain; NaN before the first",
            registry=registry,
        )
        self.move_bound = Gauge(
            "berthmaster_move_plan_bound_milli_gpu",
            "Proven lower limit of that cost over the berths that were weighed; NaN where none was proven",
            registry=registry,
        )
        self.move_gap = Gauge(
            "berthmaster_move_plan_gap_ratio",
            "Relative difference of the two; NaN where no bound was proven",
            registry=registry,
        )
        self.show_moves(float("nan"), None, None)
        self.spare_marks = Counter(
            "berthmaster_spare_marks_total",
            "Marks on pools' nodes whose pods fit elsewhere, by what was done",
            ["how"],
            registry=registry,
        )
        self.spare_nodes = Gauge(
            "berthmaster_pool_nodes_weighed",
            "Pools' serving nodes by what the last look found: whether everything on them fits elsewhere",
            ["found"],
            registry=registry,
        )
        self.gangs = Counter(
            "berthmaster_gang_plans_total", "Gangs planned, by outcome", ["outcome"], registry=registry
        )
        self.preemptions = Counter(
            "berthmaster_preemptions_total",
            "Pods and gangs for which others go, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.evictions = Counter(
            "berthmaster_evictions_total", "Pods asked to go for others, by outcome", ["outcome"], registry=registry
        )
        self.seats_given_up = Counter(
            "berthmaster_seats_given_up_total", "Gangs and pods whose seats could not be kept", registry=registry
        )
        self.handed_over = Counter(
            "berthmaster_pods_handed_over_total", "Pods un-gated un-pinned for a node autoscaler", registry=registry
        )
        self.malformed = Counter(
            "berthmaster_malformed_total", "Objects that could not be read", ["kind"], registry=registry
        )
        self.faults = Counter(
            "berthmaster_faults_total", "Faults of the planner itself that were caught", ["where"], registry=registry
        )
        self.plan_s = Histogram(
            "berthmaster_plan_seconds", "Index, solver and verifier for one batch", buckets=_SECONDS, registry=registry
        )
        self.batch = Histogram(
            "berthmaster_batch_pods", "Pods planned together", buckets=(1, 4, 16, 64, 256, 512), registry=registry
        )
        self.wait_s = Histogram(
            "berthmaster_created_to_pinned_seconds",
            "From the pod's creation to its pin (API clock against ours)",
            buckets=_SECONDS,
            registry=registry,
        )
        self.is_leader = Gauge("berthmaster_leader", "1 while this process leads", registry=registry)
        self.gap = Gauge(
            "berthmaster_plan_gap_ratio",
            "Gap of the last plan that has a bound; NaN before the first",
            registry=registry,
        )
        self.gap.set(float("nan"))

    def show_moves(self, objective: float, bound: float | None, gap_ratio: float | None) -> None:
        """Show how good the last plan of moves is; None = nothing is proven."""
        self.move_objective.set(objective)
        self.move_bound.set(float("nan") if bound is None else bound)
        self.move_gap.set(float("nan") if gap_ratio is None else gap_ratio)

    def show_spare(self, found: Mapping[str, int]) -> None:
        """Show how many nodes of pools were found to be what."""
        self.spare_nodes.clear()
        for reason, count in found.items():
            self.spare_nodes.labels(reason).set(count)


class WaitingCollector(Collector):
    """berthmaster_pods_waiting{reason}: read when scraped, so that it can never lag behind the waiting room."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the gauge with one sample per reason."""
        family = GaugeMetricFamily(
            "berthmaster_pods_waiting", "Gated pods without a berth, by reason", labels=["reason"]
        )
        for reason, count in self._counts().items():
            family.add_metric([reason], count)
        return [family]
