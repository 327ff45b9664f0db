"""The table for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.openb.cells import FGD, GIVEN, LEARNT, MOVED
from bench.openb.published import RIVALS
from bench.openb.summary import CLASSES, Figures, Row
from bench.openb.targets import Verdict

LEGEND = (
    "Unallocated GPU in % of the capacity when the arrived GPU demand reaches 100 %; mean of seeds 42..51, +- spread "
    "between seeds. Columns of ours: the mix learnt from what has arrived; the mix given; learnt and up to 5 % of the "
    "placed pods moved when an arrival fails (seeds 42..44, on default, gpuspec33 and gpushare100 all ten; in brackets "
    "how many pods moved). FGD re-made: on our very sequences. Published: the authors' files, mean of their ten "
    "shuffles. Bound: no method can leave less, refusing and moving at will. Gap: ours above the bound, in % of what "
    "the published FGD is above it; learnt / moved"
)
HEADINGS = (
    "trace", "ours, learnt", "worst", "given", "5 % moved", "FGD re-made", *(f"{name}, published" for name in RIVALS),
    "bound", "gap",
)  # fmt: skip
CLASS_LEGEND = (
    "Pods that found no place within 100 % of arrivals: ours (mix learnt) / FGD re-made / arrived, means of the seeds. "
    "! = ours fails more of this class than FGD by over 2 % of its arrivals"
)
CLASS_HEADINGS = ("trace", *CLASSES)
VERDICT_HEADINGS = ("target", "promised", "measured", "")


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells of the table, a line per trace."""
    return [
        (
            row.trace,
            _spread(row.ours.get(LEARNT)),
            _number(row.ours[LEARNT].worst if LEARNT in row.ours else None),
            _number(row.ours[GIVEN].percent if GIVEN in row.ours else None),
            _moved(row.ours.get(MOVED)),
            _spread(row.ours.get(FGD)),
            *(_number(row.published.get(name)) for name in RIVALS),
            _number(row.bound),
            " / ".join(
                f"{100 * ratio:.0f}" for column in (LEARNT, MOVED) if (ratio := row.gap_ratio(column)) is not None
            ),
        )
        for row in rows
    ]


def class_lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return failed pods by class, a line per trace that was run for both."""
    return [
        (row.trace, *(_class(row, kind) for kind in CLASSES)) for row in rows if LEARNT in row.ours and FGD in row.ours
    ]


def verdict_lines(found: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """Return the targets with what came out."""
    return [(one.what, one.target, one.measured, "reached" if one.is_reached else "MISSED") for one in found]


def as_table(title: str, headings: Sequence[str], found: Sequence[Sequence[str]]) -> Table:
    """Return a table for the terminal."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 or headings is VERDICT_HEADINGS else "right")
    for line in found:
        table.add_row(*line)
    return table


def as_markdown(headings: Sequence[str], found: Sequence[Sequence[str]]) -> str:
    """Return a table for a page."""
    head = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in found)]) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _spread(figures: Figures | None) -> str:
    return "" if figures is None else f"{figures.percent:.2f} +- {figures.sd:.2f}"


def _moved(figures: Figures | None) -> str:
    return "" if figures is None else f"{figures.percent:.2f} ({figures.moves:.0f})"


def _class(row: Row, kind: str) -> str:
    ours, fgd = row.ours[LEARNT], row.ours[FGD]
    if not ours.arrived[kind]:
        return ""
    mark = " !" if kind in row.worse else ""
    return f"{ours.failed[kind]:.1f} / {fgd.failed[kind]:.1f} / {ours.arrived[kind]:.0f}{mark}"
