"""Both axes of every autoscaler, one row each, for `top`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from berthmaster.autoscaler_object import Autoscaler, seconds_of
from berthmaster.autoscaler_words import number
from berthmaster.row_table import age_cell, reason_cell, row_table

# The scaler tells a steady endpoint's status again at least once a minute; older than three is nobody's word any more.
_OLD_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerRow:
    """One autoscaler; None = not told.

    Attributes:
        target: Requests in progress per replica that are aimed at.
        limit: That the balancer admits per replica.
        confidence_ratio: Of the target; None also where it is not learnt.
        age_s: Of the last decision.
        is_well: Whether its condition Ready is True.
    """

    autoscaler: str
    ready: int | None
    starting: int | None
    desired: int | None
    in_flight: float | None
    queued: float | None
    rate_rps: float | None
    target: float | None
    limit: float | None
    confidence_ratio: float | None
    reason: str
    lesson: str
    mode: str
    age_s: float | None
    is_well: bool


def rows(autoscalers: Sequence[Autoscaler], now_s: float) -> tuple[AutoscalerRow, ...]:
    """Return a row for each: those that are not well or not where they want to be first, then by name."""
    return tuple(sorted((_row(autoscaler, now_s) for autoscaler in autoscalers), key=_order))


def table(shown: Sequence[AutoscalerRow], most: int) -> Table:
    """Return the first `most` rows as a table; its caption tells how many more there are."""
    words = ("ready", "starting", "desired", "in flight", "queued", "requests/s", "per replica", "limit", "sure")
    found = [(_cells(row), row.is_well) for row in shown]
    return row_table("autoscaler", words, ("replicas because", "per replica because"), found, most)


def _row(autoscaler: Autoscaler, now_s: float) -> AutoscalerRow:
    status, learnt = autoscaler.status, autoscaler.status.target
    decision = status.last_decision
    at_s = None if decision is None else seconds_of(decision.at)
    target = None if learnt is None else learnt.concurrency
    return AutoscalerRow(
        autoscaler=autoscaler.key,
        ready=status.ready_replicas,
        starting=autoscaler.starting,
        desired=status.desired_replicas,
        in_flight=status.load.in_flight,
        queued=status.load.queued,
        rate_rps=status.load.rate,
        target=autoscaler.field("targetConcurrency.initial") if target is None else target,
        limit=None if learnt is None else learnt.limit,
        confidence_ratio=None if learnt is None else learnt.confidence,
        reason="" if decision is None else decision.reason,
        lesson="" if learnt is None else learnt.reason,
        mode=autoscaler.field("mode") or "act",
        age_s=None if at_s is None else round(max(0.0, now_s - at_s), 1),
        is_well=any(told.type == "Ready" and told.status == "True" for told in status.conditions),
    )


def _order(row: AutoscalerRow) -> tuple[bool, bool, bool, str]:
    return (row.is_well, not row.queued, row.desired == row.ready, row.autoscaler)


def _cells(row: AutoscalerRow) -> tuple[str, ...]:
    counts = (row.ready, row.starting, row.desired, row.in_flight, row.queued, row.rate_rps, row.target, row.limit)
    sure = "-" if row.confidence_ratio is None else f"{row.confidence_ratio:.0%}"
    return (
        escape(row.autoscaler),
        *(number(count) for count in counts),
        sure,
        reason_cell(row.reason, row.mode),
        escape(row.lesson) or "-",
        age_cell(row.age_s, _OLD_S),
    )
