"""The results as a table, one line a demand and goal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from bench.warmpool.cells import BUFFERS, GOALS
from bench.warmpool.demand import MADE_UP, TRACES, title
from bench.warmpool.targets import Cells, Verdict, spread, values

HEADINGS = (
    "demand", "goal", "draws", "hit %", "idle node-h", "/ static", "/ fc+Poisson", "/ schedule", "static's hit %",
    "Poisson's hit %", "shadows act", "enough seen",
)  # fmt: skip
LEGEND = (
    "/ static: our idle node-hours over those of the best fixed N, chosen in hindsight, at our hit rate. "
    "/ fc+Poisson: over the same forecast with a Poisson quantile whose knob was chosen in hindsight. "
    "/ schedule: over sizes per hour of the week fitted on the other weeks. -: that rival never reaches our hit rate. "
    "static's hit: of the best fixed N at our idle node-hours. Means over the seeds ± one standard error; days 1 and 2 "
    "are not counted."
)


def rows(cells: Cells, lead_s: float) -> list[tuple[str, ...]]:
    """Return the lines of a lead time."""
    found = []
    for name in (*MADE_UP, *TRACES):
        for goal in GOALS:

            def get(pick: str, name: str = name, goal: float = goal) -> list[float]:
                return values(cells, name, lead_s, goal, pick)

            if not get("hit_ratio"):
                continue
            found.append(
                (
                    title(name),
                    f"{100 * goal:g}",
                    spread(get("draws"), 1, 0).partition(" ")[0],
                    spread(get("hit_ratio"), 100, 1),
                    spread(get("idle_h"), 1, 0),
                    spread(get("over_static")),
                    spread(get("over_forecast_poisson")),
                    spread(get("over_schedule")),
                    spread(get("static_hit_at_equal_idle"), 100, 1),
                    spread(get("poisson_hit_ratio"), 100, 1),
                    spread(get("shadows_ratio"), 100, 0) + " %",
                    "yes" if all(get("is_enough")) else "no",
                )
            )
    return found


def buffer_rows(cells: Cells, lead_s: float) -> list[tuple[str, ...]]:
    """Return what buffers of a share of the nodes in use came to: hit rate and idle node-hours, first seed."""
    found = []
    for name in TRACES:
        cell = next((one for one in cells.values() if one["name"] == name and one["lead_s"] == lead_s), None)
        if cell is not None:
            told = [cell["buffers"][f"{ratio:g}"] for ratio in BUFFERS]
            found.append((title(name), *(f"{100 * hit:.1f} % at {idle_h:.0f} h" for hit, idle_h in told)))
    return found


def as_table(heading: str, columns: Iterable[str], lines: Iterable[tuple[str, ...]]) -> Table:
    """Return a table for a terminal."""
    table = Table(title=heading, box=None, header_style="bold", title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right")
    for line in lines:
        table.add_row(*line)
    return table


def as_markdown(columns: Iterable[str], lines: Iterable[tuple[str, ...]]) -> str:
    """Return a table for a file."""
    names = tuple(columns)
    told = [names, ("---", *("--:" for _ in names[1:])), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in told) + "\n"


def verdict_rows(verdicts: Iterable[Verdict]) -> list[tuple[str, ...]]:
    """Return one line a target."""
    return [(one.what, one.target, one.measured, one.word) for one in verdicts]
