"""The scaler and its rivals on the same loads: late requests, cost and calm.

    python -m bench.scaler                                   # everything that is not up to date, two cells at a time
    python -m bench.scaler --quick                           # short loads, start time 60 s
    python -m bench.scaler --traces nasa,conv --policies steady,HPA --start 60,180 --seeds 1-3

Writes bench/results/scaler.json (every cell, the command, the commit), bench/results/scaler.md (the table) and
docs/scaler.svg. Ctrl-C keeps what is done; a cell is run again only when a file that it depends on has changed. Rivals
are re-made from their documentation, Knative is its own Go package where Go is at hand; targets and slots are the same.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.scaler.cells import OURS, POLICIES, ROOT, SEED, STARTS_S, Cell, checks, plan, run
from bench.scaler.chart import draw
from bench.scaler.rivals import prepare
from bench.scaler.store import RESULTS, Store
from bench.scaler.table import LEGEND, as_list, as_markdown, as_table, rows
from bench.scaler.targets import Verdict, verdicts
from bench.scaler.workloads import WORKLOADS
from berthmaster.local.progress import Silent

CHART = ROOT / "docs" / "scaler.svg"
QUICK_START_S = 60
SURGE_START_S = 30
LOG_WIDTH = 160
KEEP_EVERY = 10


def main() -> None:
    given = _arguments()
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    knative = prepare(Silent())
    console.print(knative)
    store = Store(given.out)
    cells = _wanted(given)
    missing = [cell for cell in cells if given.again or not store.has(cell)]
    console.print(f"{len(cells)} cells, {len(cells) - len(missing)} of them up to date")
    command = " ".join(["python -m bench.scaler", *sys.argv[1:]])

    def keep() -> list[Verdict]:
        found = verdicts(store.current())
        store.write(command, knative, [_as_json(verdict) for verdict in found])
        return found

    is_whole = _fill(store, missing, given.jobs, console, keep)
    keys = {cell.key for cell in cells}
    is_all = not (given.quick or given.traces or given.policies or given.start or given.seeds)
    if is_whole and is_all:
        store.prune(keys)
    columns, lines = rows(result for key, result in store.cells.items() if key in keys)
    found = keep()
    console.print(as_table(columns, lines))
    speeds = [cell["times_real_time"] for key, cell in store.cells.items() if key in keys and cell["policy"] in OURS]
    if speeds:
        console.print(f"ours ran at {statistics.median(speeds):,.0f} x real time on one core (median of its cells)")
    if found:
        console.print(as_list(found))
    if is_whole and is_all:
        text = f"{LEGEND}. {knative}.\n\n{as_markdown(columns, lines)}"
        given.out.with_suffix(".md").write_text(text, encoding="utf-8")
        draw(store.cells, CHART)
    sys.exit(0 if is_whole else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", help=f"comma list of {', '.join(WORKLOADS)}")
    parser.add_argument("--policies", help=f"comma list of {', '.join(POLICIES)}")
    parser.add_argument("--start", help="comma list of start times, seconds")
    parser.add_argument("--seeds", help="FROM-TO or one")
    parser.add_argument("--quick", action="store_true", help="short loads at one start time")
    parser.add_argument("--again", action="store_true", help="run cells that are up to date, too")
    parser.add_argument("--jobs", type=int, default=2, help="cells side by side")
    parser.add_argument("--out", type=Path, default=RESULTS, help="results file")
    given = parser.parse_args()
    for name, known in (("traces", WORKLOADS), ("policies", POLICIES)):
        unknown = set((getattr(given, name) or "").split(",")) - set(known) - {""}
        if unknown:
            parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return given


def _wanted(given: argparse.Namespace) -> list[Cell]:
    policies = given.policies.split(",") if given.policies else list(POLICIES)
    starts_s = [int(start) for start in given.start.split(",")] if given.start else list(STARTS_S)
    first, _, last = (given.seeds or str(SEED)).partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if given.quick:
        short = [trace for trace, work in WORKLOADS.items() if not work.is_long and not work.is_surge]
        return plan(short, policies, [QUICK_START_S], seeds)
    if given.traces:
        return plan(given.traces.split(","), policies, starts_s, seeds)
    main_traces = [trace for trace, work in WORKLOADS.items() if not work.is_check and not work.is_surge]
    surge = [Cell(trace="surge", policy=policy, start_s=SURGE_START_S) for policy in policies if policy in OURS]
    return [*surge, *plan(main_traces, policies, starts_s, seeds), *checks(policies)]


def _fill(store: Store, missing: list[Cell], jobs: int, console: Console, keep: Callable[[], object]) -> bool:
    """Run cells and keep them as they are done; return whether all were: none failed, none was interrupted."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    is_whole = True
    with bar, ProcessPoolExecutor(jobs, initializer=_leave_interrupts) as pool:
        task = bar.add_task("cells", total=len(missing))
        running = {pool.submit(run, cell): cell for cell in missing}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    cell = running.pop(future)
                    if failure := future.exception():
                        is_whole = False
                        bar.update(task, advance=1)
                        console.print(f"[red]{cell.key} failed:[/] {failure}")
                        continue
                    result = future.result()
                    store.add(cell, result)
                    if len(running) % KEEP_EVERY == 0:
                        keep()
                    bar.update(task, advance=1, description=f"{cell.key} {result['took_s']:.1f} s")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            return False
    return is_whole


def _leave_interrupts() -> None:
    """Let the parent alone answer Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_json(verdict: Verdict) -> dict[str, str]:
    outcome = "reached" if verdict.is_reached else "missed"
    return {"what": verdict.what, "target": verdict.target, "measured": verdict.measured, "outcome": outcome}


if __name__ == "__main__":
    main()
