"""The table: one line a load and start time, one column an autoscaler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.scaler.cells import JITTER_RATIO, POLICIES, SEED
from bench.scaler.targets import Verdict
from bench.scaler.workloads import WORKLOADS

LEGEND = "violations % / thousand replica-seconds / reversals per hour; in brackets the fluid ideal's replica-seconds"
Row = tuple[str, ...]


def rows(cells: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[Row]]:
    """Return the columns and, in the order of the workloads, the rows."""
    by_line: dict[tuple[str, int, int, float], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        line = (cell["trace"], cell["start_s"], cell["seed"], cell["jitter_ratio"])
        by_line.setdefault(line, {})[cell["policy"]] = cell
    policies = tuple(policy for policy in POLICIES if any(policy in line for line in by_line.values()))
    places = {trace: place for place, trace in enumerate(WORKLOADS)}
    ordered = sorted(by_line, key=lambda line: (line[3] > 0, line[2] != SEED, places[line[0]], line[1]))
    return ("load", "start s", *policies), [_row(line, by_line[line], policies) for line in ordered]


def as_markdown(columns: Row, lines: Iterable[Row]) -> str:
    """Return the table for a document."""
    head = [" | ".join(columns), "|".join("---" for _ in columns)]
    return "\n".join(f"|{line}|" for line in [*head, *(" | ".join(line) for line in lines)]) + "\n"


def as_table(columns: Row, lines: Iterable[Row]) -> Table:
    """Return the table for a terminal."""
    table = Table(caption=LEGEND, caption_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=place > 0)
    for line in lines:
        table.add_row(*line)
    return table


def as_list(verdicts: Iterable[Verdict]) -> Table:
    """Return what was promised beside what was measured."""
    table = Table("", "load", "measured", "target")
    for verdict in verdicts:
        outcome = "[green]reached[/]" if verdict.is_reached else "[red]missed[/]"
        table.add_row(outcome, verdict.what, verdict.measured, verdict.target)
    return table


def _row(line: tuple[str, int, int, float], cells: Mapping[str, Mapping[str, Any]], policies: Sequence[str]) -> Row:
    trace, start_s, seed, jitter_ratio = line
    ideal = next(iter(cells.values()))["ideal_replica_s"]
    notes = ([f"seed {seed}"] if seed != SEED else []) + ([f"start +-{JITTER_RATIO:.0%}"] if jitter_ratio else [])
    title = ", ".join([WORKLOADS[trace].title, *notes])
    return (f"{title} ({thousands(ideal)})", str(start_s), *(_figures(cells.get(policy)) for policy in policies))


def _figures(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    return f"{percent(cell['violation_ratio'])}/{thousands(cell['replica_s'])}/{cell['reversals_per_hour']:.1f}"


def percent(ratio: float) -> str:
    """Return a share in percent without the sign, with the digits that matter."""
    value = 100 * ratio
    return "0" if value < 0.005 else f"{value:.2f}" if value < 1 else f"{value:.1f}"


def thousands(value: float) -> str:
    """Return thousands, whole."""
    return f"{value / 1000:,.0f}"
