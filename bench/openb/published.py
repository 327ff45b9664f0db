"""What others measured on the same traces, and the limits proved by `python -m bench.openb_bounds`."""

from __future__ import annotations

import json
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published.json"
BOUNDS = Path(__file__).parents[1] / "results" / "openb_bounds.json"
RIVALS = ("fgd", "best-fit", "packing", "clustering", "dot-product", "random")


def at_100() -> dict[str, dict[str, float]]:
    """Return what was unallocated at 100 % of arrivals by trace and policy, %, mean of the authors' ten seeds."""
    published = json.loads(PUBLISHED.read_text("utf-8"))
    column = published["arrived_percent"].index(100)
    return {
        trace: {policy: figures[column] for policy, figures in policies.items()}
        for trace, policies in published["unallocated_percent"].items()
    }


def bounds() -> dict[str, float]:
    """Return the least unallocated share that any method could reach, %, by trace; empty where none was computed."""
    if not BOUNDS.exists():
        return {}
    found = json.loads(BOUNDS.read_text("utf-8"))["traces"]
    return {trace: row["bound_percent"] for trace, row in found.items()}
