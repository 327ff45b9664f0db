"""Every warm pool, one row each, for `top`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from berthmaster.autoscaler_object import seconds_of
from berthmaster.autoscaler_words import number
from berthmaster.row_table import age_cell, reason_cell, row_table
from berthmaster.warmpool_object import WarmPool

_OLD_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """One pool; None = not told.

    Attributes:
        hit_ratio: Share of draws that found a warm node.
        goal_ratio: That is aimed at; None also where the size is chosen otherwise.
        idle_hours: Warm unclaimed node-hours of the last day.
        age_s: Of the last decision.
        is_well: Whether its condition Ready is True.
    """

    pool: str
    wanted: int | None
    warm: int | None
    coming: int | None
    claimed: int | None
    serving: int | None
    draws: int | None
    hit_ratio: float | None
    goal_ratio: float | None
    idle_hours: float | None
    idle_cost: float | None
    reason: str
    plan: str
    mode: str
    age_s: float | None
    is_well: bool


def pool_rows(pools: Sequence[WarmPool], now_s: float) -> tuple[PoolRow, ...]:
    """Return a row for each: those that are not well or short of warm nodes first, then by name."""
    return tuple(sorted((_row(pool, now_s) for pool in pools), key=_order))


def pool_table(shown: Sequence[PoolRow], most: int) -> Table:
    """Return the first `most` rows as a table; its caption tells how many more there are."""
    words = ("wanted", "warm", "coming", "claimed", "serving", "draws", "hits", "goal", "idle h/day", "cost/day")
    found = [(_cells(row), row.is_well) for row in shown]
    return row_table("warm pool", words, ("wanted because", "plan"), found, most)


def _row(pool: WarmPool, now_s: float) -> PoolRow:
    status = pool.status
    decision, hits, idle = status.last_decision, status.hit_rate, status.idle
    at_s = None if decision is None else seconds_of(decision.at)
    mode = pool.field("mode")
    return PoolRow(
        pool=pool.name,
        wanted=status.wanted,
        warm=status.warm,
        coming=status.coming,
        claimed=status.claimed,
        serving=status.serving,
        draws=None if hits is None else hits.draws,
        hit_ratio=None if hits is None else hits.realised,
        goal_ratio=None if hits is None else hits.goal,
        idle_hours=None if idle is None else idle.day_node_hours,
        idle_cost=None if idle is None else idle.day_cost,
        reason="" if decision is None else decision.reason,
        plan="" if status.plan is None else status.plan.reason,
        mode=mode if isinstance(mode, str) else "observe",
        age_s=None if at_s is None else round(max(0.0, now_s - at_s), 1),
        is_well=any(told.type == "Ready" and told.status == "True" for told in status.conditions),
    )


def _order(row: PoolRow) -> tuple[bool, bool, str]:
    is_short = row.wanted is not None and row.warm is not None and row.warm < row.wanted
    return (row.is_well, not is_short, row.pool)


def _cells(row: PoolRow) -> tuple[str, ...]:
    counts = (row.wanted, row.warm, row.coming, row.claimed, row.serving, row.draws)
    ratios = ("-" if ratio is None else f"{ratio:.1%}" for ratio in (row.hit_ratio, row.goal_ratio))
    return (
        escape(row.pool),
        *(number(count) for count in counts),
        *ratios,
        number(row.idle_hours),
        number(row.idle_cost),
        reason_cell(row.reason, row.mode),
        escape(row.plan) or "-",
        age_cell(row.age_s, _OLD_S),
    )
