"""What was promised, beside what was measured; means over the seeds, +- one standard error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from bench.warmpool.cells import GOALS, LEADS_S
from bench.warmpool.demand import MADE_UP, TRACES, title

Cells = Mapping[str, Mapping[str, Any]]
STATIC_BARS = {
    **dict.fromkeys(MADE_UP, 1.05),
    "worldcup-ordinary": 0.95,
    "nasa-july": 0.95,
    "nasa-august": 0.95,
    "worldcup-tournament": 0.35,
    "servegen-large": 0.7,
    "servegen-mid": 0.7,
    "servegen-small": 0.7,
}
HIT_JUDGED = (*MADE_UP, "worldcup-ordinary", "worldcup-tournament", "worldcup-finals", "nasa-july", "nasa-august")
FORECAST_BAR = 1.05
BACK_MIN = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target.

    Attributes:
        what: Of which demand, lead time and goal.
        target: Promised.
        measured: Came out.
        is_reached: Whether it holds; None = the rule said itself that its history is too short for the goal.
    """

    what: str
    target: str
    measured: str
    is_reached: bool | None

    @property
    def word(self) -> str:
        """Return it in a word."""
        return "too short" if self.is_reached is None else "reached" if self.is_reached else "missed"


def values(cells: Cells, name: str, lead_s: float, goal: float, pick: str) -> list[float]:
    """Return one number of every seed; a rival that never gets there is left out."""
    found = [
        cell["goals"][f"{goal:g}"][pick] for cell in cells.values() if cell["name"] == name and cell["lead_s"] == lead_s
    ]
    return [float(one) for one in found if one is not None]


def spread(numbers: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """Return mean and standard error."""
    if not numbers:
        return "-"
    told = f"{scale * mean(numbers):.{digits}f}"
    return told if len(numbers) < 2 else f"{told} ±{scale * stdev(numbers) / len(numbers) ** 0.5:.{digits}f}"


def verdicts(cells: Cells, peaks: Sequence[Mapping[str, Any]], load: Mapping[str, float]) -> list[Verdict]:
    """Return all targets."""
    found: list[Verdict] = []
    for lead_s in LEADS_S:
        for goal in GOALS:
            for name in (*MADE_UP, *TRACES):
                found += _judged(cells, name, lead_s, goal)
    for goal in GOALS:
        minutes = [float(one) for peak in peaks if peak["goal_ratio"] == goal for one in peak["minutes"]]
        if minutes:
            found.append(
                Verdict(
                    what=f"after a peak of 120/h upon 6/h, goal {goal:g}",
                    target=f"back within 10 % (or one node) of the need in <= {BACK_MIN:g} min",
                    measured=f"median {sorted(minutes)[len(minutes) // 2]:.0f} min, longest {max(minutes):.0f} min",
                    is_reached=max(minutes) <= BACK_MIN,
                )
            )
    if load:
        found.append(
            Verdict(
                what="a decision on 500 pools",
                target="< 1 s, < 300 MB",
                measured=(
                    f"{load['round_median_s']:.2f} s (slowest {load['round_slowest_s']:.2f} s), {load['rss_mb']:.0f} MB"
                ),
                is_reached=load["round_slowest_s"] < 1.0 and load["rss_mb"] < 300.0,
            )
        )
    return found


def _judged(cells: Cells, name: str, lead_s: float, goal: float) -> list[Verdict]:
    def get(pick: str) -> list[float]:
        return values(cells, name, lead_s, goal, pick)

    hits = get("hit_ratio")
    if not hits:
        return []
    what = f"{title(name)}, {lead_s:g} s, goal {goal:g}"
    is_short = not all(get("is_enough"))
    found = []
    if name in HIT_JUDGED:
        off = abs(mean(hits) - goal) <= 0.0105
        found.append(
            Verdict(
                what=what,
                target="hit rate within 1 point",
                measured=f"{spread(hits, 100, 1)} %",
                is_reached=None if not off and is_short else off,
            )
        )
    if name == "worldcup-flash":
        ahead = [ours - theirs for ours, theirs in zip(hits, get("static_hit_at_equal_idle"), strict=True)]
        found.append(
            _bar(what, "hit rate >= best static N's at equal idle", ahead, lambda one: one >= 0, "points", 100)
        )
    if name in STATIC_BARS:
        bar = STATIC_BARS[name]
        found.append(_bar(what, f"idle / best static N <= {bar:g}", get("over_static"), lambda one: one <= bar + 0.005))
    found.append(
        _bar(
            what,
            f"idle / forecast + Poisson quantile, knob in hindsight <= {FORECAST_BAR:g}",
            get("over_forecast_poisson"),
            lambda one: one <= FORECAST_BAR + 0.005,
        )
    )
    return found


def _bar(
    what: str, target: str, numbers: list[float], holds: Callable[[float], bool], unit: str = "", scale: float = 1.0
) -> Verdict:
    if not numbers:
        return Verdict(what=what, target=target, measured="the rival never reaches our hit rate", is_reached=True)
    measured = f"{spread(numbers, scale, 1 if unit else 2)} {unit}".strip()
    return Verdict(what=what, target=target, measured=measured, is_reached=holds(mean(numbers)))
