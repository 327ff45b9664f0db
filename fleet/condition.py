"""Conditions as they stand in the status of objects, and times as the API writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

LONGEST_TEXT = 1024  # of a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition without its time.

    Attributes:
        holds: None = unknown.
    """

    kind: str
    holds: bool | None
    reason: str
    text: str


class Told(Protocol):
    """A condition as it was read."""

    @property
    def type(self) -> str:
        """Return its kind."""

    @property
    def status(self) -> str:
        """Return "True", "False" or "Unknown"."""

    @property
    def last_transition_time(self) -> str | None:
        """Return since when."""


def stamp(epoch_s: float) -> str:
    """Return a time as the API writes it."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dated(
    conditions: Sequence[Condition], told: Iterable[Told], generation: int, wall_s: float
) -> list[dict[str, Any]]:
    """Return conditions as they are written; one whose status has not changed keeps its time.

    Args:
        conditions: As they are now.
        told: As they stand there.
        generation: Of the object that they were drawn from.
        wall_s: Now, seconds since the epoch.
    """
    before = {one.type: one for one in told}
    found = []
    for condition in conditions:
        status = {True: "True", False: "False", None: "Unknown"}[condition.holds]
        known = before.get(condition.kind)
        since = known.last_transition_time if known is not None and known.status == status else None
        found.append(
            {
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.text,
                "lastTransitionTime": since or stamp(wall_s),
                "observedGeneration": generation,
            }
        )
    return found
