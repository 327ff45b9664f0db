"""docs/operate.md names every event that the planner writes on objects."""

from __future__ import annotations

import re
from pathlib import Path

from binpack.controller.repair import RepairReason
from binpack.relocation.steps import Stage
from binpack.relocation.ways import NoWay

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8") + (ROOT / "docs" / "metrics.md").read_text("utf-8")


def test_every_event_is_explained() -> None:
    written = (
        {reason.value for reason in RepairReason} | {stage.value for stage in Stage} | {why.value for why in NoWay}
    )
    for path in (ROOT / "binpack" / "controller").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        written |= set(re.findall(r'reason=?\s*=\s*"([A-Z][A-Za-z]+)"', text))
        written |= set(re.findall(r'reason = "([A-Z][A-Za-z]+)" if .* else "[A-Z][A-Za-z]+"', text))
        written |= set(re.findall(r'reason = "[A-Z][A-Za-z]+" if .* else "([A-Z][A-Za-z]+)"', text))
    silent = {"Placed", "PreemptionByScheduler"}  # reasons of conditions, which say nothing that must be explained
    assert {"DevicesClosed", "DevicesDoubtful", "NodeSpare", "Moving", "Preempted"} <= written
    assert not [name for name in sorted(written - silent) if f"`{name}`" not in PAGES]
