"""One warm pool in words with numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from berthmaster.autoscaler_object import seconds_of
from berthmaster.autoscaler_words import Part, age, named, number
from berthmaster.warmpool_object import PoolNode, WarmPool

_MOST_NODES = 40


def explained_pool(pool: WarmPool, nodes: Sequence[PoolNode], now_s: float) -> tuple[Part, ...]:
    """Return the parts, in the order a person asks: what, how many and why, what came of it, what would be better."""
    parts = (
        Part(title=pool.name, lines=_what(pool)),
        Part(title="size", lines=_size(pool, now_s)),
        Part(title="draws", lines=_draws(pool)),
        Part(title="one node more", lines=_marginal(pool)),
        Part(title="nodes", lines=_nodes(nodes)),
        Part(title="conditions", lines=_conditions(pool)),
    )
    return tuple(part for part in parts if part.lines)


def objective(pool: WarmPool) -> str:
    """Return what the size is chosen by, for people."""
    spec = pool.field
    static, miss, goal = spec("objective.static"), spec("objective.missCost"), spec("objective.hitRate")
    if static is not None:
        return f"always {number(static)}"
    if miss is not None:
        return f"a miss costs {number(miss)}, an idle node-hour {number(spec('objective.idleCost'))}"
    return f"{_percent(goal if isinstance(goal, int | float) else 0.99)} of draws find a warm node"


def _what(pool: WarmPool) -> tuple[str, ...]:
    spec = pool.field
    devices = spec("shape.devices.count")
    model = spec("shape.devices.model") or spec("shape.devices.resource") or "devices"
    shape = [str(spec("shape.instanceType"))] if spec("shape.instanceType") else []
    shape += [f"{number(devices)} x {model}"] if devices else []
    images = spec("images") if isinstance(spec("images"), list) else []
    names = [str(image.get("reference")) for image in images if isinstance(image, dict)]
    mode = "act" if spec("mode") == "act" else "observe: it tells, and changes nothing"
    return (
        f"nodes of {', '.join(shape) or 'one shape'}, made by {spec('provider.kind')}; "
        f"between {number(spec('size.min') or 0)} and {number(spec('size.max'))}; mode {mode}",
        f"images: {', '.join(names) or 'none are asked for'}",
        f"goal: {objective(pool)}",
    )


def _size(pool: WarmPool, now_s: float) -> tuple[str, ...]:
    status = pool.status
    lines = [
        f"{number(status.wanted)} wanted warm and unclaimed; {number(status.warm)} are, {number(status.coming)} are "
        f"coming, {number(status.claimed)} claimed, {number(status.serving)} serving, {number(status.leaving)} leaving"
    ]
    decision = status.last_decision
    if decision is None:
        why = "the conditions say why" if status.conditions else "is the warm pool's controller running?"
        return (*lines, f"no decision was told yet: {why}")
    at_s = seconds_of(decision.at)
    when = "at an unknown time" if at_s is None else f"{age(now_s - at_s)} ago"
    lines.append(f"decision {when}: {decision.reason}{_colon(decision.message)}")
    if decision.numbers:
        lines.append(f"numbers: {', '.join(named(name, value) for name, value in decision.numbers.items())}")
    if status.plan is not None:
        lines.append(f"plan: {status.plan.reason}{_colon(status.plan.message)}")
    if status.forecast is not None:
        lines.append(f"draws within {age(status.forecast.horizon_seconds)}: {status.forecast.summary or 'no opinion'}")
    if status.lead_time is not None:
        lines.append(f"from order to warm: {status.lead_time.summary}")
    return tuple(lines)


def _draws(pool: WarmPool) -> tuple[str, ...]:
    hits, idle, starts = pool.status.hit_rate, pool.status.idle, pool.status.starts
    lines: list[str] = []
    if hits is not None:
        ratio = "none yet" if hits.realised is None else f"{_percent(hits.realised)} found a warm node"
        goal = "" if hits.goal is None else f", the goal is {_percent(hits.goal)}"
        lines.append(
            f"{number(hits.draws)} draws in {age(hits.since_seconds)}: {ratio}{goal}; {number(hits.misses)} missed"
        )
    if idle is not None:
        cost = "" if idle.day_cost is None else f", which cost {number(idle.day_cost)}"
        lines.append(
            f"idle: {number(idle.day_node_hours)} node-hours in the last day{cost}; {number(idle.node_hours)} in all"
        )
    if starts is not None and starts.summary:
        lines.append(f"starts: {starts.summary}")
    return tuple(lines)


def _marginal(pool: WarmPool) -> tuple[str, ...]:
    told = pool.status.marginal
    return () if told is None or not told.message else (told.message,)


def _nodes(nodes: Sequence[PoolNode]) -> tuple[str, ...]:
    lines = [_node(node) for node in nodes[:_MOST_NODES]]
    return (*lines, f"and {len(nodes) - _MOST_NODES} more") if len(nodes) > _MOST_NODES else tuple(lines)


def _node(node: PoolNode) -> str:
    reason, message = node.told
    claim = node.claim
    words = f"{reason or 'nothing is told of it yet'}{_colon(message)}"
    if claim is not None:
        words += f"; {claim.kind} claim for {len(claim.pods)} pods"
    elif node.is_open:
        words += "; open to draws"
    return f"{node.metadata.name}: {words}"


def _conditions(pool: WarmPool) -> tuple[str, ...]:
    return tuple(
        f"{condition.type} {condition.status}: {condition.reason}{_colon(condition.message)}"
        for condition in pool.status.conditions
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.4g} %"


def _colon(text: str) -> str:
    return f": {text}" if text else ""
