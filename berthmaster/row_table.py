"""Tables of `top`: one row for each object of ours, those that are not well in yellow. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Column, Table

from berthmaster.autoscaler_words import age


def row_table(
    what: str, numbers: Sequence[str], words: Sequence[str], rows: Sequence[tuple[tuple[str, ...], bool]], most: int
) -> Table:
    """Return the first `most` rows as a table; its caption tells how many more there are.

    Args:
        what: Heads the column of names.
        numbers: Head the columns of numbers.
        words: Head the columns of words behind them; the age of the last decision is the last column.
        rows: Cells, and whether the object is well.
        most: How many to show.
    """
    made = Table(
        Column(what, overflow="fold"),
        *(Column(word, justify="right") for word in numbers),
        *words,
        Column("age", justify="right"),
        box=None,
        header_style="bold",
        caption=f"and {len(rows) - most} more" if len(rows) > most else None,
        caption_justify="left",
    )
    for cells, is_well in rows[:most]:
        made.add_row(*cells, style="" if is_well else "yellow")
    return made


def reason_cell(reason: str, mode: str) -> str:
    """Return a reason, with the mode where nothing is carried out."""
    said = reason or "-"
    return escape(said if mode == "act" else f"{said} ({mode})")


def age_cell(age_s: float | None, old_s: float) -> str:
    """Return how old a decision is, in red from `old_s` on: its controller does not answer any more."""
    is_old = age_s is not None and age_s > old_s
    return f"[red]{age(age_s)}[/]" if is_old else age(age_s)
