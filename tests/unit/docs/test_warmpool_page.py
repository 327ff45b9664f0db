"""What the page on warm pools names exists: fields, conditions, metrics, labels, commands, reasons."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from fleet import labels
from fleet.draw import MissReason
from fleet.plan import Reason
from warmpool.controller import conditions
from warmpool.controller.metrics import WarmPoolMetrics
from warmpool.resource import spec_of
from warmpool.starts.parts import Part

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/warmpool.md").read_text()


def test_the_example_is_a_pool():
    block, *parts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    pool = yaml.safe_load(block)
    for part in parts:
        pool["spec"] |= yaml.safe_load(part)
    del pool["spec"]["images"][0]["digest"]  # shortened for people
    spec = spec_of(pool["metadata"]["name"], pool["spec"])
    assert spec.pool.objective.goal_ratio == 0.99
    assert spec.serves.namespaces == ("models",)


def test_every_label_named_is_ours():
    known = {value for value in vars(labels).values() if isinstance(value, str)}
    for name in re.findall(r"berthmaster\.dev/(?!v1)[\w-]*\w", PAGE):
        assert name in known, name


def test_every_metric_named_is_there():
    registry = CollectorRegistry()
    WarmPoolMetrics(registry)
    names = set(re.findall(r"\bberthmaster_[a-z_]+", PAGE))
    assert names
    assert names <= {metric.name for metric in registry.collect()}


def test_every_condition_named_is_told():
    known = {value for value in vars(conditions).values() if isinstance(value, str)}
    for name in ("AgentsTolerate", "ImagesPullable", "CapacityAvailable", "HistorySuffices"):
        assert name in PAGE
        assert name in known


def test_reasons_and_parts_are_the_ones_that_are_written():
    assert f"`{Reason.NO_WARM_NODE.value}`" in PAGE
    assert f"`{MissReason.NO_ROOM.value}`" in PAGE
    rows = [line.split("|")[1].strip(" `") for line in PAGE.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row in list(Part)] == [part.value for part in Part]


def test_every_command_named_is_there():
    commands = ROOT / "berthmaster/commands"
    for first, second in re.findall(r"berthmaster (explain|pools) (\w+)", PAGE):
        assert (commands / first / f"{second}.py").exists(), f"{first} {second}"
