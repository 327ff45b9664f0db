"""docs/metrics.md lists every metric of every process, in the words of the code."""

from __future__ import annotations

from pathlib import Path

from tests.support.metrics import tables

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_every_metric_stands_there_as_it_is_shown() -> None:
    assert PAGE[PAGE.index("## Planner") :] == tables() + "\n", "python -m tests.support.metrics prints them"
