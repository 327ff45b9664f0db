"""What is known of one endpoint besides its numbers second by second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What outlives the process, in the autoscaler's status; None or empty = nothing was kept.

    Attributes:
        learnt: L.
        validated: The part of L that was really held.
        service_s: S.
        start_times_s: From order to Ready, newest last.
        forecast: The minutes of the last days, as `forecast.stored` writes them.
    """

    learnt: float | None = None
    validated: float | None = None
    service_s: float | None = None
    start_times_s: tuple[float, ...] = ()
    forecast: bytes = b""


@dataclass(slots=True)
class Load:
    """The last second, for people; None = not known."""

    at_s: float = float("-inf")
    in_flight: float | None = None
    queued: float | None = None
    rate_rps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The last decision that changed the count."""

    at_s: float
    before: int
    after: int
    reason: str
    text: str


@dataclass(slots=True)
class Known:
    """What the controller knows besides load, as of now.

    Attributes:
        changed_at_s: When the pod template was seen to change; -inf = never.
        metrics: Ratios by pod and name.
    """

    changed_at_s: float = float("-inf")
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
