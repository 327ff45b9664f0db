"""What was seen, in numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.warmpool_draws.kills import Kills
from tests.support.warm_watch import Life

RESULTS = Path(__file__).parent.parent / "results" / "warmpool_draws.json"
_LONGEST_BACK_MIN = 30.0


def starts_of(lives: Sequence[Life], namespace: str, kills: Kills, *, time_scale: float) -> dict[str, Any]:
    """Return counts and times of one workload's replicas: all, and those that no kill disturbed."""
    all_mine = [life for life in lives if life.namespace == namespace]
    mine = [life for life in all_mine if life.bound_s is not None]
    found: dict[str, Any] = {
        "replicas": len(mine),
        "gone_before_bound": sum(life.bound_s is None for life in all_mine),
        "of_these_drew": sum(life.bound_s is None and bool(life.outcome) for life in all_mine),
        "needed_no_draw": sum(not life.outcome for life in mine),
        "misses_why": dict(Counter(life.why for life in mine if life.outcome == "miss")),
    }
    for outcome in ("hit", "miss"):
        theirs = [life for life in mine if life.outcome == outcome]
        calm = [life for life in theirs if kills.is_calm(life.created_s, life.bound_s or 0.0)]
        found[outcome] = {
            "draws": len(theirs),
            "created_to_bound_s": _spread([_bound_s(life) for life in theirs]),
            "created_to_bound_calm_s": _spread([_bound_s(life) for life in calm]) | {"draws": len(calm)},
            "created_to_ready_s": _spread([life.ready_s - life.created_s for life in theirs if life.ready_s]),
        }
    middle_s = found["miss"]["created_to_bound_calm_s"].get("p50")
    if middle_s is not None:
        found["miss"]["cloud_s_p50"] = round(middle_s * time_scale)
    draws = found["hit"]["draws"] + found["miss"]["draws"]
    found["hit_ratio"] = round(found["hit"]["draws"] / draws, 4) if draws else None
    return found


def draws_told(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the pools themselves say of their draws."""
    return {
        name: {key: one.get(key) for key in ("draws", "misses", "realised", "goal") if one.get(key) is not None}
        for name, one in told.items()
    }


def kinds_of(names: Iterable[str]) -> dict[str, int]:
    """Return how often each comes."""
    return dict(sorted(Counter(names).items()))


def is_sound(found: Mapping[str, Any]) -> bool:
    """Return whether everything holds that was promised."""
    bill = found["after_peak"]
    is_back = bill is not None and bill["back_cloud_min"] is not None and bill["back_cloud_min"] <= _LONGEST_BACK_MIN
    is_clean = not (found["faults"] or found["leaked"] or found["orphan_taints"] or found["events_missed"])
    return is_clean and is_back and found["drew_s"] is not None


def _bound_s(life: Life) -> float:
    return (life.bound_s or 0.0) - life.created_s


def _spread(times_s: Sequence[float]) -> dict[str, float]:
    if not times_s:
        return {}
    ordered = sorted(times_s)
    return {
        name: round(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)], 3)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    } | {"most": round(ordered[-1], 3)}
