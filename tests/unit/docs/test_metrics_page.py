"""docs/metrics.md lists every metric of every process in the words of the code, and what their labels can say."""

from __future__ import annotations

import re
from enum import Enum
from itertools import takewhile
from pathlib import Path

import pytest

from binpack.controller.repair import RepairReason
from binpack.controller.writer import Outcome
from binpack.extender import Outcome as FilterOutcome
from binpack.relocation.steps import Stage
from binpack.relocation.ways import NoWay
from binpack.repack.values import MoveReason, Verdict
from binpack.spare import SpareReason
from fleet.plan import SolveStatus, Source
from tests.support.metrics import tables

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
TABLES, _, VALUES = PAGE[PAGE.index("## Planner") :].partition("\n## Values of labels\n")


def test_every_metric_stands_there_as_it_is_shown() -> None:
    assert tables() + "\n" == TABLES, "python -m tests.support.metrics prints them"


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("patches_total", Outcome),
        ("plans_total", Source),
        ("solves_total", SolveStatus),
        ("repairs_total", RepairReason),
        ("moves_proposed_total", MoveReason),
        ("move_searches_total", Verdict),
        ("moves_total", Stage),
        ("moves_total", NoWay),
        ("pool_nodes_weighed", SpareReason),
        ("extender_filter_total", FilterOutcome),
    ],
)
def test_every_value_of_a_label_is_explained(metric: str, values: type[Enum]) -> None:
    first, *others = VALUES[VALUES.index(f"`{metric}`") :].splitlines()
    own = [first, *takewhile(lambda row: row.startswith("| |"), others)]
    told = {name for row in own for name in re.findall(r"`([^`]+)`", row.rsplit("|", 2)[0])}
    assert {value.value for value in values} <= told
