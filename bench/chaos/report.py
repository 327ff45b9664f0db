"""What was seen, in numbers and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.chaos.accidents import Accidents
from bench.chaos.load import Load
from bench.chaos.referee import STUCK_S, Verdict

_SHOWN = 20


def result(verdict: Verdict, accidents: Accidents, load: Load) -> dict[str, Any]:
    """Return everything as JSON."""
    return {
        "accidents": dict(sorted(Counter(name for _, name in accidents.done).items())),
        "timeline": [f"{at_s:.1f} {name}" for at_s, name in accidents.done],
        "pods": {"created": load.created, "gangs": load.gangs, "made_anew": load.replaced},
        "counts": dict(sorted(verdict.counts.items())),
        "created_to_bound_s": quantiles(verdict.created_to_bound_s),
        "nobody_led_s": quantiles(accidents.takeovers_s),
        "longest_wait_with_room_s": dict(sorted(verdict.longest_fitting_s.items())),
        "most_allowed_s": STUCK_S,
        "found": {
            "over-allocated": len(verdict.over_allocated),
            "stuck": len(verdict.stuck),
            "torn gangs": len(verdict.torn),
            "lost pods": len(verdict.lost),
        },
        "found_first": {
            "over-allocated": verdict.over_allocated[:_SHOWN],
            "stuck": verdict.stuck[:_SHOWN],
            "torn gangs": verdict.torn[:_SHOWN],
            "lost pods": verdict.lost[:_SHOWN],
        },
        "is_sound": verdict.is_sound,
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return count, p50, p99 and the largest."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 2),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 2),
        "max": round(ordered[-1], 2),
    }


def table(found: dict[str, Any]) -> str:
    """Return the run as text."""
    lines = [
        f"{found['ran_s']:.0f} s on {found['script']['nodes']} nodes, seed {found['script']['seed']}: "
        f"{sum(found['accidents'].values())} accidents, {found['pods']['created']} pods, "
        f"{found['pods']['gangs']} gangs",
        *(f"  {count:4} x {name}" for name, count in found["accidents"].items()),
        "counted: " + ", ".join(f"{count} {name}" for name, count in found["counts"].items()),
        f"created to bound, s: {found['created_to_bound_s']}; nobody led, s: {found['nobody_led_s']}",
        "longest wait with room, s: "
        + ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in found["longest_wait_with_room_s"].items()),
        *(f"{count:5} {name}" for name, count in found["found"].items()),
        *(f"      {text}" for texts in found["found_first"].values() for text in texts),
        "sound" if found["is_sound"] else "NOT SOUND",
    ]
    return "\n".join(lines)
