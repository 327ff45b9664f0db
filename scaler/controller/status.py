"""What is told of an autoscaler: its status and its annotations. Pure."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fleet import labels
from fleet.condition import LONGEST_TEXT, dated, stamp
from scaler.controller.conditions import Picture, conditions_of
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Kept
from scaler.controller.objects import ToldObject
from scaler.decision import Need
from scaler.forecast.outlook import as_status

_DIGITS = 4


def status_of(picture: Picture, *, now_s: float, wall_s: float, forecast: str = "") -> dict[str, Any]:
    """Return the whole status, without what is not known.

    Args:
        picture: What is known.
        now_s: Monotonic time of now.
        wall_s: The same moment since the epoch: times are told on that clock.
        forecast: The forecast's minutes as `kept_text` writes them; they change slowly and cost time to write.
    """
    autoscaler, endpoint = picture.autoscaler, picture.endpoint
    status: dict[str, Any] = {
        "observedGeneration": autoscaler.generation,
        "conditions": dated(conditions_of(picture), autoscaler.told.conditions or (), autoscaler.generation, wall_s),
    }
    if endpoint is None:
        return status
    epoch_s = wall_s - now_s
    fleet, kept = endpoint.census.fleet, endpoint.kept()
    status |= {
        "currentReplicas": fleet.replicas,
        "readyReplicas": fleet.ready,
        "load": _load(endpoint),
        "target": _target(endpoint, epoch_s),
        "startTime": {
            "planningSeconds": _short(endpoint.starts.planning_s),
            "schedulingSeconds": None if endpoint.starts.scheduling_s is None else _short(endpoint.starts.scheduling_s),
            "seconds": [_short(duration_s) for duration_s in kept.start_times_s[-16:]],
        },
        "serviceSeconds": None if kept.service_s is None else _short(kept.service_s),
        "nextReady": _next_ready(endpoint, epoch_s),
    }
    if endpoint.decision is not None:
        decision = endpoint.decision
        status |= {
            "desiredReplicas": decision.desired,
            "lastDecision": {
                "at": stamp(decision.at_s + epoch_s),
                "reason": decision.reason.value,
                "message": decision.text[:LONGEST_TEXT],
                "numbers": {name: _short(value) for name, value in decision.numbers.items()},
            },
            "need": _needs(decision.needs, epoch_s),
        }
    if endpoint.change is not None:
        change = endpoint.change
        status["lastChange"] = {
            "at": stamp(change.at_s + epoch_s),
            "from": change.before,
            "to": change.after,
            "reason": change.reason,
            "message": change.text[:LONGEST_TEXT],
        }
    if endpoint.outlook is not None:
        report = endpoint.report.text if endpoint.report.minutes else ""
        status["forecast"] = as_status(endpoint.outlook, report)
        status["forecast"]["history"] = forecast or None
    return _known(status)


def kept_text(endpoint: Endpoint) -> str:
    """Return the forecast's minutes for the status; empty where nothing was seen."""
    return base64.b64encode(endpoint.kept_forecast()).decode()


def kept_in(status: ToldObject) -> Kept:
    """Return what a status keeps of an earlier process; what cannot be read counts as nothing kept."""
    seconds = status.start_time.seconds if status.start_time else None
    history = status.forecast.history if status.forecast else None
    try:
        forecast = base64.b64decode(history, validate=True) if isinstance(history, str) else b""
    except (binascii.Error, ValueError):
        forecast = b""
    return Kept(
        learnt=_number(status.target.learnt) if status.target else None,
        validated=_number(status.target.validated) if status.target else None,
        service_s=_number(status.service_seconds),
        start_times_s=tuple(
            number for value in (seconds if isinstance(seconds, list) else ()) if (number := _number(value)) is not None
        ),
        forecast=forecast,
    )


def annotations_of(endpoint: Endpoint) -> dict[str, str | None]:
    """Return the annotations that the exporter beside the balancer and other controllers read; None = to be removed."""
    sizing = endpoint.sizing
    canary = endpoint.lesson.canary if endpoint.lesson else None
    return {
        labels.TARGET_CONCURRENCY: f"{sizing.target:.3g}",
        labels.CONCURRENCY_LIMIT: None if sizing.slots is None else str(max(1, math.floor(sizing.slots + 1e-9))),
        labels.CANARY_REPLICA: endpoint.servers.get(canary, canary) if canary else None,
    }


def _load(endpoint: Endpoint) -> dict[str, Any]:
    load = endpoint.load
    named = {"inFlight": load.in_flight, "queued": load.queued, "rate": load.rate_rps}
    known: dict[str, Any] = {name: _short(value) for name, value in named.items() if value is not None}
    parts = [
        f"{_short(load.in_flight, 3):g} in flight" if load.in_flight is not None else "",
        f"{_short(load.queued, 3):g} queued" if load.queued else "",
        f"{_short(load.rate_rps, 3):g}/s" if load.rate_rps is not None else "",
    ]
    return known | {"summary": ", ".join(part for part in parts if part) or "unknown"}


def _target(endpoint: Endpoint, epoch_s: float) -> dict[str, Any]:
    sizing, lesson, kept = endpoint.sizing, endpoint.lesson, endpoint.kept()
    make = endpoint.learning.make
    target: dict[str, Any] = {
        "concurrency": _short(sizing.target),
        "limit": None if sizing.slots is None else _short(sizing.slots),
        "learnt": None if kept.learnt is None else _short(kept.learnt),
        "validated": None if kept.validated is None else _short(kept.validated),
        "version": (make.version or None) if make else None,
        "hardware": (make.hardware or None) if make else None,
    }
    if lesson is None:
        return target | {"summary": f"{_short(sizing.target, 3):g}"}
    return target | {
        "summary": f"{_short(sizing.target, 3):g} ({lesson.confidence_ratio:.0%})",
        "at": stamp(lesson.at_s + epoch_s),
        "confidence": _short(lesson.confidence_ratio, 2),
        "canary": lesson.canary,
        "reason": lesson.reason.value,
        "message": lesson.text[:LONGEST_TEXT],
        "numbers": {name: _short(value) for name, value in lesson.numbers.items()},
    }


def _needs(needs: Sequence[Need], epoch_s: float) -> list[dict[str, Any]]:
    return [
        {"replicas": need.replicas, "by": stamp(need.by_s + epoch_s), "confidence": _short(need.confidence_ratio, 2)}
        for need in needs
    ]


def _next_ready(endpoint: Endpoint, epoch_s: float) -> str | None:
    since = endpoint.census.fleet.starting_since_s
    return stamp(since[0] + endpoint.starts.planning_s + epoch_s) if since else None


def _known(part: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None: the API takes no null where a number is wanted."""
    return {
        name: _known(value) if isinstance(value, Mapping) else value
        for name, value in part.items()
        if value is not None
    }


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON allows integers of any length
        return None
    return number if math.isfinite(number) and number > 0 else None


def _short(value: float, digits: int = _DIGITS) -> float:
    """Return a number with a few significant digits: a status is read by people, and equal ones need no write."""
    return float(f"{value:.{digits}g}")
