"""Packing quality on the openb protocol: ours beside the published policies, the proven bound, and what was promised.

    python -m bench.openb                                         # everything that is not up to date
    python -m bench.openb --traces default,gpuspec33 --columns learnt,fgd
    python -m bench.openb --seeds 42-44 --again

Writes bench/results/openb.json (every cell, the command, the commit), openb.md (the tables) and openb.png. About half
an hour on one core from nothing; Ctrl-C keeps what is done. After a change of code one seed of each group is run again,
and where it comes out equal to the digit the group's other cells stand. Figures differ from the published ones by the
generator of the shuffles (Python's here, Go's there); FGD was re-made to run on the same sequences as ours.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.openb.cells import COLUMNS, Cell, plan, run
from bench.openb.chart import draw
from bench.openb.store import FILE, Store
from bench.openb.summary import rows
from bench.openb.table import (
    CLASS_HEADINGS,
    CLASS_LEGEND,
    HEADINGS,
    LEGEND,
    VERDICT_HEADINGS,
    as_markdown,
    as_table,
    class_lines,
    lines,
    verdict_lines,
)
from bench.openb.targets import Verdict, verdicts
from binpack.trace import traces

LOG_WIDTH = 200
KEEP_EVERY = 5


def main() -> None:
    given = _arguments()
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH, highlight=False)
    store = Store(FILE)
    cells = _wanted(given)
    missing = [cell for cell in cells if given.again or not store.has(cell)]
    console.print(f"{len(cells)} cells, {len(cells) - len(missing)} of them up to date")
    command = " ".join(["python -m bench.openb", *sys.argv[1:]])

    def keep() -> list[Verdict]:
        found = verdicts(rows(store.cells), store.cells)
        store.write(command, [verdict.as_json() for verdict in found])
        return found

    is_whole = False
    try:
        if not given.again:
            missing = store.confirm(missing, run)
        console.print(f"{len(missing)} cells to run")
        is_whole = _fill(store, missing, given.jobs, console, keep)
    except KeyboardInterrupt:
        console.print("stopped; what is done is kept")
    found = keep()
    _show(console, store, found, command)
    sys.exit(0 if is_whole else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="all", help=f"comma list, or all: {', '.join(traces())}")
    parser.add_argument("--columns", default=",".join(COLUMNS), help="comma list")
    parser.add_argument("--seeds", help="FROM-TO or one; default: all of the table")
    parser.add_argument("--again", action="store_true", help="run cells that are up to date, too")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side")
    given = parser.parse_args()
    for name, known in (("traces", (*traces(), "all")), ("columns", COLUMNS)):
        unknown = set(getattr(given, name).split(",")) - set(known)
        if unknown:
            parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return given


def _wanted(given: argparse.Namespace) -> list[Cell]:
    cells = plan(None if given.traces == "all" else given.traces.split(","), given.columns.split(","))
    if given.seeds:
        first, _, last = given.seeds.partition("-")
        cells = [cell for cell in cells if int(first) <= cell.seed <= int(last or first)]
    return cells


def _fill(store: Store, missing: list[Cell], jobs: int, console: Console, keep: Callable[[], object]) -> bool:
    """Run cells and keep them as they are done; return whether all were."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    is_whole = True
    with bar, ProcessPoolExecutor(jobs, initializer=_leave_interrupts) as pool:
        task = bar.add_task("cells", total=len(missing))
        running = {pool.submit(run, cell): cell for cell in missing}
        try:
            for number, future in enumerate(as_completed(running), start=1):
                cell = running[future]
                if failure := future.exception():
                    is_whole = False
                    console.print(f"[red]{cell.key} failed:[/] {failure}")
                else:
                    result: dict[str, Any] = future.result()
                    store.add(cell, result)
                    bar.update(task, description=f"{cell.key} {result['unallocated_percent']:.2f} %")
                bar.update(task, advance=1)
                if number % KEEP_EVERY == 0:
                    keep()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return is_whole


def _leave_interrupts() -> None:
    """Let the parent alone answer Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _show(console: Console, store: Store, found: list[Verdict], command: str) -> None:
    table = rows(store.cells)
    text = ["# Packing quality on the openb protocol\n", f"`{command}`\n"]
    for title, legend, headings, body in (
        ("Unallocated GPU, %", LEGEND, HEADINGS, lines(table)),
        ("Failed pods by class", CLASS_LEGEND, CLASS_HEADINGS, class_lines(table)),
        ("What was promised", "", VERDICT_HEADINGS, verdict_lines(found)),
    ):
        console.print(as_table(title, headings, body))
        console.print(legend, style="dim")
        text += [f"## {title}\n", f"{legend}.\n" if legend else "", as_markdown(headings, body)]
    FILE.with_suffix(".md").write_text("\n".join(part for part in text if part), encoding="utf-8")
    if len(table) == len(traces()):
        draw(table, FILE.with_suffix(".png"))
    reached = sum(verdict.is_reached for verdict in found)
    console.print(f"{reached} of {len(found)} targets reached; wrote {FILE.parent.name}/{FILE.stem}.json, .md, .png")


if __name__ == "__main__":
    main()
