"""What the learnt curve says about a smaller fleet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """How much each replica that stays can hold; None = nothing known limits it.

    Attributes:
        latency_limit_target: Most requests in progress per replica at which p95 stays in the promise.
        memory_limit_target: The same for memory under 90 %.
    """

    latency_limit_target: float | None = None
    memory_limit_target: float | None = None
