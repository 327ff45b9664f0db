"""Both axes of one autoscaler in words with numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from berthmaster.autoscaler_object import Autoscaler, seconds_of
from berthmaster.reasons import Meaning, meaning

_UNITS = (
    ("_rps", " requests/s"),
    ("_bytes", " bytes"),
    ("_replicas", " replicas"),
    ("_ms", " ms"),
    ("_s", " s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the answer: its name and its lines."""

    title: str
    lines: tuple[str, ...]


def explained(autoscaler: Autoscaler, now_s: float) -> tuple[Part, ...]:
    """Return the parts, in the order a person asks: what, how many and why, how much each, what else."""
    parts = (
        Part(title=autoscaler.key, lines=_what(autoscaler)),
        Part(title="replicas", lines=_horizontal(autoscaler, now_s)),
        Part(title="requests per replica", lines=_vertical(autoscaler, now_s)),
        Part(title="forecast", lines=_forecast(autoscaler)),
        Part(title="conditions", lines=_conditions(autoscaler)),
    )
    return tuple(part for part in parts if part.lines)


def number(value: object) -> str:
    """Return a number with three digits, - where it is not known: a spec may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    try:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    except OverflowError:  # JSON allows integers of any length
        return "-"


def age(seconds: float | None) -> str:
    """Return how long ago, in the largest unit that says enough; - where it is not known."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"


def named(name: str, value: float) -> str:
    """Return one of the rule's numbers with its unit, which its name carries."""
    if name.endswith("_ratio"):
        return f"{_plain(name.removesuffix('_ratio'))} {value:.1%}"
    for suffix, unit in _UNITS:
        if name.endswith(suffix):
            return f"{_plain(name.removesuffix(suffix))} {number(value)}{unit}"
    return f"{_plain(name)} {number(value)}"


def _plain(name: str) -> str:
    return name.replace("_", " ").strip()


def _numbers(numbers: Mapping[str, float]) -> list[str]:
    return [f"numbers: {', '.join(named(name, value) for name, value in numbers.items())}"] if numbers else []


def _meaning(found: Meaning | None) -> list[str]:
    return [] if found is None else [f"this means: {found.says}", f"what would change it: {found.helps}"]


def _what(autoscaler: Autoscaler) -> tuple[str, ...]:
    spec = autoscaler.field
    mode = "observe: it tells, and changes nothing" if spec("mode") == "observe" else "act"
    return (
        f"scales {spec('targetRef.kind')} {spec('targetRef.name')} between {spec('minReplicas')} and "
        f"{spec('maxReplicas')} replicas; mode {mode}; behavior {spec('behavior.mode') or 'steady'}",
    )


def _horizontal(autoscaler: Autoscaler, now_s: float) -> tuple[str, ...]:
    status = autoscaler.status
    lines = [_counts(autoscaler, now_s)]
    load = status.load
    if (load.in_flight, load.queued, load.rate) != (None, None, None):
        lines.append(
            f"seen: {number(load.in_flight)} requests in progress, {number(load.queued)} queued, "
            f"{number(load.rate)} requests/s"
        )
    decision = status.last_decision
    if decision is None:
        why = "the conditions say why" if status.conditions else "is the scaler running?"
        return (*lines, f"no decision was told yet: {why}")
    lines.append(f"decision {_ago(decision.at, now_s)}: {decision.reason}{_colon(decision.message)}")
    lines += _numbers(decision.numbers)
    lines += _meaning(meaning(decision.reason))
    change = status.last_change
    if change is not None:
        lines.append(
            f"last change {_ago(change.at, now_s)}: {number(change.before)} -> {number(change.after)}, "
            f"{change.reason}{_colon(change.message)}"
        )
    for need in status.need:
        by_s = seconds_of(need.by)
        when = "now" if by_s is None or by_s <= now_s else f"in {age(by_s - now_s)}"
        sure = "" if need.confidence is None else f", {need.confidence:.0%} sure that no more are"
        lines.append(f"needed {when}: {need.replicas}{sure}")
    started = status.start_time
    if started is not None and started.planning_seconds is not None:
        seen = f"; {len(started.seconds)} starts are remembered" if started.seconds else "; none was measured yet"
        lines.append(f"start time: {number(started.planning_seconds)} s from order to Ready are planned with{seen}")
    return tuple(lines)


def _counts(autoscaler: Autoscaler, now_s: float) -> str:
    status = autoscaler.status
    told = f"{number(status.ready_replicas)} ready, {number(autoscaler.starting)} starting"
    next_s = seconds_of(status.next_ready)
    if autoscaler.starting and next_s is not None:
        told += f" (the next is {f'Ready in {age(next_s - now_s)}' if next_s > now_s else 'overdue'})"
    return f"{told}, {number(status.desired_replicas)} desired"


def _vertical(autoscaler: Autoscaler, now_s: float) -> tuple[str, ...]:
    learnt = autoscaler.status.target
    spec = autoscaler.field
    if learnt is None:
        initial = spec("targetConcurrency.initial")
        return (f"{initial} in progress are aimed at, as the spec says; nothing was learnt yet",)
    lines = [
        f"{number(learnt.concurrency)} in progress are aimed at"
        + (f", the balancer admits {number(learnt.limit)}" if learnt.limit is not None else "")
    ]
    if learnt.learnt is not None:
        sure = "" if learnt.confidence is None else f"; confidence {learnt.confidence:.0%}"
        version = f", version {learnt.version}" if learnt.version else ""
        held = f", {number(learnt.validated)} really were without errors" if learnt.validated is not None else ""
        lines.append(f"learnt: {number(learnt.learnt)} can be held{held}{sure}{version}")
    if learnt.canary:
        lines.append(f"canary: {learnt.canary} carries the whole of it, the others the target")
    if not learnt.reason:
        return (*lines, "no lesson yet")
    lines.append(f"lesson {_ago(learnt.at, now_s)}: {learnt.reason}{_colon(learnt.message)}")
    lines += _numbers(learnt.numbers)
    lines += _meaning(meaning(learnt.reason))
    return tuple(lines)


def _forecast(autoscaler: Autoscaler) -> tuple[str, ...]:
    mode = autoscaler.field("forecast.mode") or "observe"
    told = autoscaler.status.forecast
    if mode == "off" or told is None:
        return (f"mode {mode}",) if mode == "off" else ()
    acts = "" if mode == "act" else "; it changes nothing in this mode"
    report = [told.report] if told.report else []
    return (f"mode {mode}{acts}", f"{told.standing}{_colon(told.message)}", *report)


def _conditions(autoscaler: Autoscaler) -> tuple[str, ...]:
    return tuple(
        f"{condition.type} {condition.status}: {condition.reason}{_colon(condition.message)}"
        for condition in autoscaler.status.conditions
    )


def _ago(at: str, now_s: float) -> str:
    at_s = seconds_of(at)
    return "at an unknown time" if at_s is None else f"{age(now_s - at_s)} ago"


def _colon(text: str) -> str:
    return f": {text}" if text else ""
