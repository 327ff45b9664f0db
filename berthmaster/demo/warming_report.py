"""What the third act tells when it ends."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from berthmaster.demo.warming import TIME_SCALE, WARM_NODES, Outcome, middle_s


def closing_table(outcome: Outcome) -> RenderableType:
    """Return the closing table."""
    table = Table(title="Nodes that are warm before they are needed", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row(
        "proven warm", f"{WARM_NODES} nodes within {outcome.warm_s:.0f} s, in a cloud {TIME_SCALE}x as fast as real"
    )
    table.add_row("found one", _starts(outcome.hits_s))
    table.add_row("found none", _starts(outcome.misses_s))
    if outcome.drawn_by_scaler:
        table.add_row(
            "drawn by the traffic", f"{outcome.drawn_by_scaler} replicas of the scaled endpoint found a warm node"
        )
    return table


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the same as JSON."""
    return {
        "time_scale": TIME_SCALE,
        "proven_warm_s": outcome.warm_s,
        "hits_s": list(outcome.hits_s),
        "misses_s": list(outcome.misses_s),
        "drawn_by_scaler": outcome.drawn_by_scaler,
    }


def _starts(times_s: tuple[float, ...]) -> str:
    middle = middle_s(times_s)
    if middle is None:
        return "0 pods"
    return f"{len(times_s)} pods, on their node after {middle:.1f} s (the slowest {times_s[-1]:.1f} s)"
