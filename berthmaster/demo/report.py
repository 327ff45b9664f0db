"""What the demo shows while it runs and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from berthmaster.demo.board import Standings, quantile
from berthmaster.demo.replay import Replay

_SAID_AT_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Everything the closing table says.

    Attributes:
        fragmented_ratio: Idle GPU that the demand mix cannot use where it lies, of all GPU capacity.
        filter_s: p50 and p99 inside the extender's Filter handler; None where it was never called.
    """

    trace: str
    replay: Replay
    fragmented_ratio: float
    filter_s: tuple[float | None, float | None]


def progress(standings: Standings, total: int, elapsed_s: float) -> RenderableType:
    """Return the live picture."""
    table = Table.grid(padding=(0, 1))
    for title, done in (("created", standings.created), ("placed", standings.bound)):
        table.add_row(title, ProgressBar(total=total, completed=done, width=40), f"{done:,} of {total:,}")
    waiting = sum(standings.waiting.values())
    rate = standings.bound / elapsed_s if elapsed_s > 0 else 0.0
    return Group(table, Text(f"{waiting:,} waiting with a reason, {rate:.0f} pods/s, {elapsed_s:.0f} s", style="dim"))


def line(standings: Standings, total: int, elapsed_s: float) -> str:
    """Return the progress as one line, where there is no terminal."""
    waiting = sum(standings.waiting.values())
    return f"{elapsed_s:4.0f} s: {standings.created} of {total} created, {standings.bound} placed, {waiting} waiting"


def closing_table(closing: Closing) -> RenderableType:
    """Return the closing table, and under it whatever is wrong."""
    replay, truth = closing.replay, closing.replay.truth
    table = Table(title=f"Trace {closing.trace} on {truth.nodes:,} nodes", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    placed = replay.standings.bound
    table.add_row("placed", f"{placed:,} of {replay.standings.created:,} pods")
    for reason, count in replay.standings.waiting.items():
        table.add_row("waiting", f"{count:,} {reason}")
    for message in replay.messages[:_SAID_AT_MOST]:
        table.add_row("", Text(f"e.g. {message}", style="dim"))
    table.add_row("allocated", f"{truth.allocated_ratio:.2%} of {truth.gpu_capacity_milli / 1000:,.0f} GPUs")
    table.add_row("fragmented", f"{closing.fragmented_ratio:.2%} of all GPUs are idle and of no use to the demand mix")
    rate = placed / replay.seconds if replay.seconds > 0 else 0.0
    table.add_row("speed", f"{rate:.0f} pods/s, created to bound, in {replay.seconds:.0f} s")
    p50, p99 = (quantile(replay.latencies_s, q) for q in (0.5, 0.99))
    table.add_row("created to bound", f"p50 {_seconds(p50)}, p99 {_seconds(p99)}")
    table.add_row("Filter", f"p50 {_milli(closing.filter_s[0])}, p99 {_milli(closing.filter_s[1])} inside the handler")
    table.add_row("over-allocated", f"{len(truth.faults)} faults, recounted from the API objects by other code")
    faults = [Text(f"FAULT: {fault}", style="red") for fault in truth.faults[:20]]
    return Group(table, *faults)


def document(closing: Closing) -> dict[str, Any]:
    """Return the same as JSON."""
    replay, truth = closing.replay, closing.replay.truth
    return {
        "trace": closing.trace,
        "nodes": truth.nodes,
        "created_pods": replay.standings.created,
        "placed_pods": replay.standings.bound,
        "waiting_pods": replay.standings.waiting,
        "waiting_messages": list(replay.messages[:_SAID_AT_MOST]),
        "deleted_pods": replay.deleted,
        "allocated_ratio": truth.allocated_ratio,
        "fragmented_ratio": closing.fragmented_ratio,
        "seconds": replay.seconds,
        "pods_per_s": replay.standings.bound / replay.seconds if replay.seconds > 0 else None,
        "created_to_bound_s": {f"p{round(100 * q)}": quantile(replay.latencies_s, q) for q in (0.5, 0.99)},
        "filter_handler_s": {"p50": closing.filter_s[0], "p99": closing.filter_s[1]},
        "faults": list(truth.faults),
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _milli(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.2f} ms"
