"""The results file: cells are added as they are done; what a change of code left as it was is not run again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.measured import commit, machine
from bench.openb.cells import ROOT, Cell, sources

RESULTS = ROOT / "bench" / "results"
FILE = RESULTS / "openb.json"
_TIMES = ("cpu_ms_per_decision", "sources")


class Store:
    """Cells by key; every `write` leaves a whole file behind.

    Attributes:
        cells: Result of each cell by its key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.cells = json.loads(path.read_text("utf-8"))["cells"]

    def has(self, cell: Cell) -> bool:
        """Return whether a cell is there and no file that may decide it has changed since."""
        return self.cells.get(cell.key, {}).get("sources") == sources(cell.column)

    def add(self, cell: Cell, result: dict[str, Any]) -> None:
        """Keep a result."""
        self.cells[cell.key] = result

    def confirm(self, missing: Iterable[Cell], run: Callable[[Cell], dict[str, Any]]) -> list[Cell]:
        """Run one stale cell per group and return what must still be run.

        Where it comes out equal to the digit, the code that changed does not decide this group's figures, and its
        other cells stand.
        """
        left = list(missing)
        groups: dict[str, list[Cell]] = defaultdict(list)
        for cell in left:
            if cell.key in self.cells:
                groups[cell.group].append(cell)
        for first, *others in groups.values():
            before, now = self.cells[first.key], run(first)
            self.add(first, now)
            if _figures(before) == _figures(now):
                for cell in others:
                    self.cells[cell.key]["sources"] = sources(cell.column)
        return [cell for cell in left if not self.has(cell)]

    def write(self, command: str, verdicts: Sequence[dict[str, str]]) -> None:
        """Write everything, with what it was made by."""
        report = {
            "command": command,
            "commit": commit(),
            "machine": machine(),
            "verdicts": list(verdicts),
        }
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(cell)}" for key, cell in sorted(self.cells.items()))
        text = json.dumps(report, indent=1)[:-2] + f',\n "cells": {{\n{lines}\n }}\n}}\n'
        partial = self.path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path)


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _TIMES}
