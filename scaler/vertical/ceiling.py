"""How many requests a replica should hold at most, of all that limit it, and which of them binds."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.decision import TargetReason
from scaler.policy import Policy
from scaler.vertical.bins import Points
from scaler.vertical.curve import Curve
from scaler.vertical.errors import Errors
from scaler.vertical.knee import Knee, knee
from scaler.vertical.memory import Line
from scaler.vertical.thresholds import MEMORY_RATIO

UNDER_BAD_RATIO = 0.98  # of the lowest concurrency that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """K and what it is made of; None = not known.

    Attributes:
        k: K; None = nothing is known to limit, or no concurrency meets the latency limit.
        binds: What K is: the knee, memory or errors.
        knee: What the curve says.
        wall_k: The smaller of the memory and error limits: the hard bound of a replica's slots.
    """

    k: float | None
    binds: TargetReason
    knee: Knee | None
    wall_k: float | None


def wall(memory: Line, errors: Errors) -> tuple[float | None, TargetReason]:
    """Return min(k at 90 % memory, 0.98 x lowest failing k) and which of them it is."""
    found = [(memory_k, TargetReason.MEMORY)] if (memory_k := memory.reaches(MEMORY_RATIO)) is not None else []
    if errors.bad_k is not None:
        found.append((UNDER_BAD_RATIO * errors.bad_k, TargetReason.ERRORS_TIED_TO_LOAD))
    return min(found, default=(None, TargetReason.AT_KNEE))


def ceiling(curve: Curve | None, points: Points, memory: Line, errors: Errors, policy: Policy) -> Ceiling:
    """Return K = min(knee under the latency limit, k at 90 % memory, 0.98 x lowest failing k)."""
    wall_k, binds = wall(memory, errors)
    if curve is None:
        return Ceiling(k=wall_k, binds=binds, knee=None, wall_k=wall_k)
    found = knee(curve, points, policy.promise.latency_s)
    if found.k is None:
        return Ceiling(k=None, binds=TargetReason.UNREACHABLE, knee=found, wall_k=wall_k)
    if wall_k is not None and wall_k < found.k:
        return Ceiling(k=wall_k, binds=binds, knee=found, wall_k=wall_k)
    return Ceiling(k=found.k, binds=TargetReason.AT_KNEE, knee=found, wall_k=wall_k)
