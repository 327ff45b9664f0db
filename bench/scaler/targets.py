"""What was promised, beside what was measured; a target whose cells were not run is not judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.scaler.cells import SEED, STARTS_S
from bench.scaler.workloads import WORKLOADS

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target.

    Attributes:
        what: The load and the start time.
        target: What was promised.
        measured: What came out.
        is_reached: Whether it holds.
    """

    what: str
    target: str
    measured: str
    is_reached: bool


def verdicts(cells: Mapping[str, Result]) -> list[Verdict]:
    """Return every target whose cells are there."""
    table = _Table(cells)
    judged = [
        _against(table, "step", 60, "steady", "spec", points=0.5, cost_ratio=0.12),
        _code(table),
        _absolute(table, "code", 60, "steady", most_percent=6.0),
        _nasa(table),
        *(
            _long(table, trace, start_s)
            for trace, work in WORKLOADS.items()
            if work.is_long and not work.is_check
            for start_s in STARTS_S
        ),
        *(_cost(table, "worldcup-8", start_s, "Knative", 1.15) for start_s in (60, 180)),
        *(
            _against(table, "servegen-mid-11", start_s, "steady", "HPA", points=0.1, cost_ratio=0.95)
            for start_s in (60, 180)
        ),
        _surge(table),
    ]
    return [verdict for verdict in judged if verdict is not None]


class _Table:
    def __init__(self, cells: Mapping[str, Result]) -> None:
        self._cells = cells

    def get(self, trace: str, start_s: int, *policies: str) -> list[Result] | None:
        """Return the cells of a line; None = not all are there."""
        found = [self._cells.get(f"{trace}/{policy}/{start_s}/{SEED}/0") for policy in policies]
        return [cell for cell in found if cell is not None] if all(found) else None


def _against(
    table: _Table, trace: str, start_s: int, ours: str, rival: str, *, points: float, cost_ratio: float
) -> Verdict | None:
    found = table.get(trace, start_s, ours, rival)
    if found is None:
        return None
    late = [100 * cell["violation_ratio"] for cell in found]
    cost = found[0]["replica_s"] / found[1]["replica_s"]
    return Verdict(
        what=f"{WORKLOADS[trace].title}, start {start_s} s, {ours}",
        target=f"violations <= {rival}'s + {points:g} points at <= {cost_ratio:g} x its cost",
        measured=f"{late[0]:.2f} % (it: {late[1]:.2f} %) at {cost:.2f} x",
        is_reached=late[0] <= late[1] + points and cost <= cost_ratio,
    )


def _code(table: _Table) -> Verdict | None:
    found = table.get("code", 60, "thrifty", "HPA")
    if found is None:
        return None
    late, cost = 100 * found[0]["violation_ratio"], found[0]["replica_s"] / found[1]["replica_s"]
    return Verdict(
        what=f"{WORKLOADS['code'].title}, start 60 s, thrifty",
        target="violations <= 7.5 % at <= 0.9 x HPA's cost",
        measured=f"{late:.2f} % at {cost:.2f} x",
        is_reached=late <= 7.5 and cost <= 0.9,
    )


def _absolute(table: _Table, trace: str, start_s: int, ours: str, *, most_percent: float) -> Verdict | None:
    found = table.get(trace, start_s, ours)
    if found is None:
        return None
    late = 100 * found[0]["violation_ratio"]
    return Verdict(
        what=f"{WORKLOADS[trace].title}, start {start_s} s, {ours}",
        target=f"violations <= {most_percent:g} %",
        measured=f"{late:.2f} %",
        is_reached=late <= most_percent,
    )


def _nasa(table: _Table) -> Verdict | None:
    found = table.get("nasa", 180, "steady", "Knative")
    if found is None:
        return None
    late, cost = 100 * found[0]["violation_ratio"], found[0]["replica_s"] / found[1]["replica_s"]
    return Verdict(
        what=f"{WORKLOADS['nasa'].title}, start 180 s, steady",
        target="violations <= 0.5 % at <= 0.2 x Knative's cost",
        measured=f"{late:.2f} % at {cost:.2f} x",
        is_reached=late <= 0.5 and cost <= 0.2,
    )


def _long(table: _Table, trace: str, start_s: int) -> Verdict | None:
    found = table.get(trace, start_s, "steady", "Knative", "HPA")
    if found is None:
        return None
    ours, *rivals = found
    late = 100 * ours["violation_ratio"]
    least = min(100 * rival["violation_ratio"] for rival in rivals)
    cost = ours["replica_s"] / min(rival["replica_s"] for rival in rivals)
    return Verdict(
        what=f"{WORKLOADS[trace].title}, start {start_s} s, steady",
        target="violations <= Knative's and HPA's + 0.1 points at <= 1.2 x the cheaper one's cost, <= 1.6 reversals/h",
        measured=f"{late:.2f} % (they: {least:.2f} %) at {cost:.2f} x, {ours['reversals_per_hour']:.1f}/h",
        is_reached=late <= least + 0.1 and cost <= 1.2 and ours["reversals_per_hour"] <= 1.6,
    )


def _cost(table: _Table, trace: str, start_s: int, rival: str, most_ratio: float) -> Verdict | None:
    found = table.get(trace, start_s, "steady", rival)
    if found is None:
        return None
    cost = found[0]["replica_s"] / found[1]["replica_s"]
    return Verdict(
        what=f"{WORKLOADS[trace].title}, start {start_s} s, steady",
        target=f"<= {most_ratio:g} x {rival}'s cost",
        measured=f"{cost:.2f} x",
        is_reached=cost <= most_ratio,
    )


def _surge(table: _Table) -> Verdict | None:
    found = table.get("surge", 30, "steady")
    if found is None:
        return None
    served_s, in_time_s = found[0]["served_s"], found[0]["in_time_s"]
    never = "not within the run"
    return Verdict(
        what=f"{WORKLOADS['surge'].title}, start 30 s, steady",
        target="served within 60 s",
        measured=f"served after {never if served_s is None else f'{served_s:.0f} s'}, "
        f"in time again after {never if in_time_s is None else f'{in_time_s:.0f} s'}",
        is_reached=served_s is not None and served_s <= 60,
    )
