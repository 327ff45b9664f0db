"""Every metric of every process, as it registers them."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from binpack.config import PlannerSettings
from binpack.controller.service import Planner
from binpack.extender_metrics import ExtenderMetrics, Sizes
from fleet.kube.credentials import Access, Connection
from scaler.balancer.exporter import Exporter
from scaler.balancer.socket import RuntimeSocket
from scaler.config import ScalerSettings, SourcesFile
from scaler.controller.service import Scaler
from tests.support.clock import ManualClock
from warmpool.config import WarmPoolSettings
from warmpool.controller.service import WarmPools

NO_SIZES = Sizes(is_synced=False, silence_s=0.0, nodes=0, contested_nodes=0, promises=0, warnings=0)


@dataclass(frozen=True)
class Metric:
    """One family as people meet it: the name with which a counter is asked for."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def registries() -> dict[str, CollectorRegistry]:
    """Return what each process shows, by its name."""
    clock = ManualClock()
    connection = Connection(lambda: Access(base_url="http://127.0.0.1:9"), clock)
    planner, scaler, pools = CollectorRegistry(), CollectorRegistry(), CollectorRegistry()
    Planner(connection, clock, PlannerSettings(), planner)
    Scaler(connection, clock, ScalerSettings(), SourcesFile(""), scaler)
    WarmPools(connection, clock, WarmPoolSettings(), pools)
    return {
        "Planner": planner,
        "Extender": ExtenderMetrics(lambda: NO_SIZES).registry,
        "Scaler": scaler,
        "Exporter": Exporter(RuntimeSocket("nowhere"), clock).metrics.registry,
        "Warm pool": pools,
    }


def metrics(registry: CollectorRegistry) -> list[Metric]:
    """Return the metrics of a process by name."""
    found = []
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", ())
            name = f"{family.name}_total" if family.type == "counter" else family.name
            text = family.documentation.rstrip(".")
            found.append(Metric(name=name, kind=family.type, labels=tuple(labels), text=text))
    return sorted(found, key=lambda metric: metric.name)


def tables() -> str:
    """Return the tables of docs/metrics.md."""
    found = []
    for process, registry in registries().items():
        rows = [
            f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels)} | {m.text} |"
            for m in metrics(registry)
        ]
        found.append(
            "\n".join([f"## {process}", "", "| metric | kind | labels | what it tells |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(found)


if __name__ == "__main__":
    print(tables())
