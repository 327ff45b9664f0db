"""When telling is worth a write: a thousand autoscalers must not hammer the API with numbers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.controller.conditions import Picture, conditions_of

# A new count or a broken condition is told at once; a new reason and new numbers can wait for each other.
_SOON_S, _REASON_S, _NUMBERS_S = 1.0, 10.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was last written, in three degrees of weight.

    Attributes:
        counts: What is told at once.
        reasons: What is told within 10 s.
        at_s: When.
    """

    counts: tuple[object, ...]
    reasons: tuple[object, ...]
    at_s: float


def is_due(told: Told | None, picture: Picture, now_s: float) -> bool:
    """Return whether the status is worth a write now."""
    if told is None:
        return True
    age_s = now_s - told.at_s
    if told.counts != counts_of(picture):
        return age_s >= _SOON_S
    if told.reasons != reasons_of(picture):
        return age_s >= _REASON_S
    return age_s >= _NUMBERS_S


def counts_of(picture: Picture) -> tuple[object, ...]:
    """Return what must be told at once when it changes."""
    endpoint = picture.endpoint
    conditions = tuple((condition.kind, condition.holds) for condition in conditions_of(picture))
    if endpoint is None:
        return (picture.autoscaler.generation, conditions)
    fleet = endpoint.census.fleet
    desired = endpoint.decision.desired if endpoint.decision else None
    return (picture.autoscaler.generation, conditions, fleet.ready, fleet.replicas, desired)


def reasons_of(picture: Picture) -> tuple[object, ...]:
    """Return what is told soon when it changes."""
    endpoint = picture.endpoint
    conditions = tuple((condition.reason, condition.text) for condition in conditions_of(picture))
    if endpoint is None:
        return (conditions,)
    lesson = endpoint.lesson
    return (
        conditions,
        endpoint.decision.reason if endpoint.decision else None,
        lesson.reason if lesson else None,
        float(f"{endpoint.sizing.target:.2g}"),
    )


def told(picture: Picture, now_s: float) -> Told:
    """Return what is remembered of a status that is written now."""
    return Told(counts=counts_of(picture), reasons=reasons_of(picture), at_s=now_s)
