"""What `berthmaster simulate --lifetimes` writes and prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from binpack.lifetimes import LifeResult
from binpack.lifetimes.values import ARRIVAL, IN_TURN


def as_json(result: LifeResult, trace: str) -> dict[str, Any]:
    """Return the result as it is written: ratios to 1e-6, hours to 0.1."""
    setting = result.setting
    return {
        "policy": setting.policy,
        "seed": setting.seed,
        "trace": trace,
        "mix": setting.mix,
        "load_ratio": setting.load_ratio,
        "moves_ratio": setting.moves_ratio,
        "order": IN_TURN if setting.is_in_turn else ARRIVAL,
        "days": setting.days,
        "gpus": result.gpus,
        "arrived_pods": result.arrived,
        "offered_ratio": round(result.offered_ratio, 6),
        "unallocated_gpu_ratio": round(result.unallocated_gpu_ratio, 6),
        "pending_gpu_hours": _hours(result.pending_gpu_hours),
        "pending_gpu_hours_total": round(result.total_pending_gpu_hours, 1),
        "pending_pod_hours": _hours(result.pending_pod_hours),
        "stranded_gpu_hours": round(result.stranded_gpu_hours, 1),
        "wanted_gpu_hours": round(result.wanted_gpu_hours, 1),
        "moves": result.moves,
        "waiting_at_end": dict(result.waiting_at_end),
        "faults": list(result.faults),
        "wall_s": round(result.wall_s, 3),
        "ms_per_arrival": round(1000 * result.decision_s / max(1, result.arrived), 4),
    }


def _hours(by_class: Mapping[str, float]) -> dict[str, float]:
    return {name: round(hours, 1) for name, hours in by_class.items()}


def show(report: Mapping[str, Any]) -> None:
    """Print the report for people."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{report['policy']}[/] on {report['trace']}, seed {report['seed']}: {report['days']:g} days, "
        f"{report['arrived_pods']} pods arrived, {100 * report['offered_ratio']:.1f} % of the GPU time of "
        f"{report['gpus']} GPUs ({100 * report['load_ratio']:g} % asked for)"
    )
    table = Table("class", "GPU-hours pending", "pod-hours", "waiting at the end", box=None, header_style="bold")
    for name, hours in report["pending_pod_hours"].items():
        gpu_hours = f"{report['pending_gpu_hours'][name]:,.1f}"
        table.add_row(name, gpu_hours, f"{hours:,.1f}", str(report["waiting_at_end"].get(name, 0)))
    console.print(table)
    console.print(
        f"pending in all: {report['pending_gpu_hours_total']:,.0f} GPU-hours; free while a pod waited for GPU: "
        f"{report['stranded_gpu_hours']:,.0f} GPU-hours ({report['wanted_gpu_hours']:,.0f} of them wanted); "
        f"unallocated {100 * report['unallocated_gpu_ratio']:.2f} % on average"
    )
    if report["moves_ratio"]:
        console.print(f"{report['moves']} pods were moved, {report['moves'] / (24 * report['days']):.1f} an hour")
    if report["faults"]:
        console.print(f"[red]faults: {report['faults'][:5]}[/]")
    else:
        console.print("recount: nothing given twice, nobody waits who fits")
