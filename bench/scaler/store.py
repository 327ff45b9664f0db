"""The results file: cells are added as they are done and looked up by what they depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.measured import commit, machine
from bench.scaler.cells import ROOT, Cell, sources

RESULTS = ROOT / "bench" / "results" / "scaler.json"


class Store:
    """Cells by key; every `add` leaves a whole file behind.

    Attributes:
        cells: Result of each cell by its key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.cells = json.loads(path.read_text("utf-8"))["cells"]

    def has(self, cell: Cell) -> bool:
        """Return whether a cell is there and nothing it depends on has changed since."""
        return self.cells.get(cell.key, {}).get("sources") == sources(cell.policy)

    def current(self) -> dict[str, dict[str, Any]]:
        """Return the cells of which nothing they depend on has changed since."""
        return {key: cell for key, cell in self.cells.items() if cell["sources"] == sources(cell["policy"])}

    def prune(self, keys: set[str]) -> None:
        """Let go of every other cell."""
        self.cells = {key: cell for key, cell in self.cells.items() if key in keys}

    def add(self, cell: Cell, result: dict[str, Any]) -> None:
        """Keep a result."""
        self.cells[cell.key] = result

    def write(self, command: str, knative: str, verdicts: list[dict[str, str]]) -> None:
        """Write everything, with what it was made by."""
        text = json.dumps(
            {
                "command": command,
                "commit": commit(),
                "machine": machine(),
                "knative": knative,
                "verdicts": verdicts,
                "cells": dict(sorted(self.cells.items())),
            },
            indent=1,
        )
        partial = self.path.with_suffix(".partial")
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(self.path)
