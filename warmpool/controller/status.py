"""What is told of a pool: its status. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.condition import LONGEST_TEXT, dated, stamp
from warmpool.controller.book import Book, by_state
from warmpool.controller.conditions import Picture, conditions_of
from warmpool.controller.ledger import DAY_HOURS, HOUR_S, Sums
from warmpool.nodes.reconcile import PoolPlan
from warmpool.sizing import Size
from warmpool.values import HitRate, Mode, NodeState, PoolSpec

_DIGITS = 4


def status_of(picture: Picture, *, wall_s: float, sized_wall_s: float | None = None) -> dict[str, Any]:
    """Return the whole status, without what is not known.

    Args:
        picture: What is known.
        wall_s: Time since the epoch.
        sized_wall_s: When the size was decided, on the same clock; None = now.
    """
    pool, book = picture.pool, picture.book
    status: dict[str, Any] = {
        "observedGeneration": pool.generation,
        "conditions": dated(conditions_of(picture), pool.told.conditions or (), pool.generation, wall_s),
    }
    if book is None:
        return status
    status |= counts_of(book)
    if book.size is not None:
        status |= _size(book.size, wall_s if sized_wall_s is None else sized_wall_s)
    if book.plan is not None:
        status["plan"] = _plan(book.plan, book.spec.pool, book.backlog)
    status["leadTime"] = _lead(book)
    if picture.starts:
        status["starts"] = {"summary": picture.starts}
    everything, day = book.ledger.sums(wall_s), book.ledger.sums(wall_s, DAY_HOURS)
    status["hitRate"] = _hits(everything, book.spec.pool)
    status["idle"] = _idle(everything, day, book.spec.pool.idle_hour_cost)
    return _known(status)


def counts_of(book: Book) -> dict[str, Any]:
    """Return how many nodes there are of what, and how many are wanted."""
    counts = by_state(book.nodes)
    ordered = counts.get(NodeState.ORDERED, 0)
    plan = book.plan
    return {
        "wanted": plan.target if plan else None,
        "warm": book.warm,
        "coming": book.coming,
        "ordered": ordered,
        "provisioning": book.coming - ordered,
        "claimed": counts.get(NodeState.CLAIMED, 0),
        "serving": counts.get(NodeState.SERVING, 0),
        "leaving": counts.get(NodeState.RELEASING, 0),
        "failed": book.failed,
        "nodes": len(book.nodes) - counts.get(NodeState.RELEASED, 0),
        "position": plan.position if plan else None,
    }


def _size(size: Size, wall_s: float) -> dict[str, Any]:
    told: dict[str, Any] = {
        "lastDecision": {
            "at": stamp(wall_s),
            "reason": size.reason,
            "message": size.text[:LONGEST_TEXT],
            "numbers": {name: _short(value) for name, value in size.numbers.items() if math.isfinite(value)},
        }
    }
    if size.quantiles:
        shown = ", ".join(f"p{100 * probability:g} {draws:.3g}" for probability, draws in size.quantiles)
        told["forecast"] = {
            "summary": shown,
            "horizonSeconds": None if size.horizon_s is None else _short(size.horizon_s),
            "quantiles": [
                {"probability": _short(probability), "draws": _short(draws)} for probability, draws in size.quantiles
            ],
        }
    if size.saves is not None:
        misses, hours = size.saves
        told["marginal"] = {
            "message": f"one node more would have saved {misses:.3g} misses and idled {hours:.3g} node-hours more",
            "missesSaved": _short(misses),
            "idleNodeHours": _short(hours),
        }
    return told


def _plan(plan: PoolPlan, pool: PoolSpec, backlog: int) -> dict[str, Any]:
    orders = sum(count for _, count in plan.orders)
    would = "would order" if pool.mode is Mode.OBSERVE else "orders"
    parts = [f"{plan.position} of {plan.target} wanted are warm or coming"]
    if orders:
        parts.append(f"{would} {orders}")
    if backlog:
        parts.append(f"{backlog} for pods that missed")
    if plan.closes:
        parts.append(f"gives up {len(plan.closes)}")
    if plan.short:
        parts.append(f"{plan.short} short")
    return {
        "reason": plan.reason.value,
        "message": ", ".join(parts),
        "orders": orders,
        "closes": len(plan.closes),
        "short": max(0, plan.short),
    }


def _lead(book: Book) -> dict[str, Any] | None:
    leads_s = sorted(book.times.leads_s)
    if not leads_s:
        return None
    mean_s = sum(leads_s) / len(leads_s)
    p50_s, p90_s, p99_s = (_quantile(leads_s, share) for share in (0.5, 0.9, 0.99))
    return {
        "summary": f"p50 {p50_s:.0f} s, p90 {p90_s:.0f} s of {len(leads_s)}",
        "count": len(leads_s),
        "meanSeconds": _short(mean_s),
        "p50Seconds": _short(p50_s),
        "p90Seconds": _short(p90_s),
        "p99Seconds": _short(p99_s),
    }


def _hits(sums: Sums, pool: PoolSpec) -> dict[str, Any]:
    goal = pool.objective.goal_ratio if isinstance(pool.objective, HitRate) else None
    ratio = sums.hit_ratio
    aim = f" of {100 * goal:g} %" if goal is not None else ""
    summary = f"no draws{aim and f' (goal{aim[3:]})'}" if ratio is None else f"{100 * ratio:.1f} %{aim}"
    return {
        "summary": summary,
        "realised": None if ratio is None else _short(ratio, 5),
        "goal": goal,
        "draws": sums.draws,
        "misses": sums.misses,
        "sinceSeconds": round(sums.watched_s),
    }


def _idle(sums: Sums, day: Sums, hour_cost: float) -> dict[str, Any]:
    hours, day_hours = sums.idle_s / HOUR_S, day.idle_s / HOUR_S
    cost = f", {day_hours * hour_cost:.4g}" if hour_cost else ""
    return {
        "summary": f"{day_hours:.1f} h{cost}",
        "nodeHours": _short(hours),
        "cost": _short(hours * hour_cost) if hour_cost else None,
        "dayNodeHours": _short(day_hours),
        "dayCost": _short(day_hours * hour_cost) if hour_cost else None,
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _known(part: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None: the API takes no null where a number is wanted."""
    return {
        name: _known(value) if isinstance(value, Mapping) else value
        for name, value in part.items()
        if value is not None
    }


def _short(value: float, digits: int = _DIGITS) -> float:
    """Return a number with a few significant digits: a status is read by people, and equal ones need no write."""
    return float(f"{value:.{digits}g}")
