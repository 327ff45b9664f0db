"""The warm pool's size and its rivals on the same draws: hit rates, idle node-hours, and what was promised.

    python -m bench.warmpool                       # everything that is not up to date
    python -m bench.warmpool --only nasa,batch8    # demands whose name holds one of these
    python -m bench.warmpool --again

Writes bench/results/warmpool.json (every cell, the command, the commit), bench/results/warmpool.md and
docs/warmpool.svg. One core, some ten minutes; Ctrl-C keeps what is done. A cell is run again when the code has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.measured import commit, machine
from bench.warmpool import load, peak
from bench.warmpool.cells import GOALS, LEADS_S, SEEDS, measure, plan
from bench.warmpool.chart import draw
from bench.warmpool.table import HEADINGS, LEGEND, as_markdown, as_table, buffer_rows, rows, verdict_rows
from bench.warmpool.targets import verdicts

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "warmpool.json"
CHART = ROOT / "docs" / "warmpool.svg"
_WIDTH = 190
_VERDICTS = ("demand", "target", "measured", "")
_BUFFERS = ("demand", "10 % of the nodes in use", "20 %")


def main() -> None:
    given = _arguments()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    kept = {} if given.again or not RESULTS.exists() else json.loads(RESULTS.read_text("utf-8"))
    sources = _sources()
    is_same = kept.get("sources") == sources
    report: dict[str, Any] = {
        "command": " ".join(["python -m bench.warmpool", *sys.argv[1:]]),
        "commit": commit(),
        "sources": sources,
        "machine": machine(),
        "seconds": kept.get("seconds", 0.0) if is_same else 0.0,
        "load": kept.get("load", {}) if is_same else {},
        "peaks": kept.get("peaks", []) if is_same else [],
        "cells": kept.get("cells", {}) if is_same else {},
    }
    wanted = [cell for cell in plan() if not given.only or any(part in cell.name for part in given.only.split(","))]
    missing = [cell for cell in wanted if cell.key not in report["cells"]]
    console.print(f"{len(wanted)} cells, {len(wanted) - len(missing)} of them up to date")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, disable=not sys.stdout.isatty()) as progress:
            task = progress.add_task("warm pool", total=len(missing))
            for cell in missing:
                progress.update(task, description=cell.key)
                begin = perf_counter()
                report["cells"][cell.key] = measure(cell)
                report["seconds"] = round(report["seconds"] + perf_counter() - begin, 1)
                progress.advance(task)
                if not sys.stdout.isatty():
                    console.print(f"{cell.key}: {perf_counter() - begin:.1f} s", style="dim")
    except KeyboardInterrupt:
        console.print("stopped; what is done is kept")
    else:
        if not given.only and not report["peaks"]:
            report["peaks"] = [peak.measure(LEADS_S[0], goal, seed) for goal in GOALS for seed in SEEDS]
            report["load"] = load.measure()
    found = verdicts(report["cells"], report["peaks"], report["load"])
    lines = verdict_rows(found)
    report["verdicts"] = [dict(zip(("what", "target", "measured", "verdict"), line, strict=True)) for line in lines]
    _write(RESULTS, json.dumps(report, indent=1) + "\n")
    _show(console, report, lines)
    counted = {word: sum(one.word == word for one in found) for word in ("reached", "missed", "too short")}
    console.print(f"targets: {counted}; cells took {report['seconds']:.0f} s of one core")
    if not given.only and {cell.key for cell in plan()} <= set(report["cells"]):
        draw(report["cells"], CHART)


def _show(console: Console, report: dict[str, Any], lines: list[tuple[str, ...]]) -> None:
    text = ["# The warm pool's size\n", f"`{report['command']}`, commit {report['commit']}.\n", f"{LEGEND}\n"]
    for lead_s in LEADS_S:
        found = rows(report["cells"], lead_s)
        if found:
            console.print(as_table(f"A node takes {lead_s:g} s to be warm", HEADINGS, found))
            text += [f"## A node takes {lead_s:g} s to be warm\n", as_markdown(HEADINGS, found)]
    spare = buffer_rows(report["cells"], LEADS_S[0])
    text += ["## Buffers: hit rate at idle node-hours\n", as_markdown(_BUFFERS, spare)]
    text += ["## What was promised\n", as_markdown(_VERDICTS, lines)]
    console.print(LEGEND, style="dim")
    console.print(as_table("Buffers: hit rate at idle node-hours", _BUFFERS, spare))
    console.print(as_table("What was promised", _VERDICTS, lines))
    _write(RESULTS.with_suffix(".md"), "\n".join(text))


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _sources() -> str:
    """Return a fingerprint of all that the cells depend on."""
    told = hashlib.sha256()
    files = sorted([*(ROOT / "warmpool" / "size").glob("*.py"), *Path(__file__).parent.glob("*.py")])
    for path in files:
        if path.name not in ("__main__.py", "chart.py", "load.py", "peak.py", "table.py", "targets.py"):
            told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()[:16]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of names of demands, with commas between")
    parser.add_argument("--again", action="store_true", help="run what is up to date as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
