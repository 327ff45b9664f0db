"""What the vertical axis remembers of one model version on one kind of hardware; about 7 KB."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scaler.policy import Policy
from scaler.vertical.bins import Bins
from scaler.vertical.curve import Curve
from scaler.vertical.errors import Errors
from scaler.vertical.memory import Line
from scaler.vertical.shift import Shift

TARGET_SHARE = 0.7  # the horizontal axis aims at this part of L: room for chance and for a burst
ONBOARDING_CYCLES = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learner:
    """State between two cycles.

    Attributes:
        limit: L, requests in progress per replica that are known or believed good.
        validated: Highest part of L that a replica held without errors.
        bins: What was seen at each concurrency.
        curve: Fitted in the last cycle that could.
        memory: Memory over concurrency.
        resources: Further resources over concurrency, by name.
        errors: What is remembered of failures.
        shift: How long latency has been off the curve.
        cycles: That had traffic.
        bin_cycles: Of them, those since the bins were last empty.
        asked: Times in a row that a slow raise was wanted.
        hold_cycles: Still without a raise, after errors or full memory.
        full_cuts: Cuts in a row because memory was full, with no line known.
        full_from: L before them.
        canary: Replica that runs at L.
        has_moved: Whether the last lesson changed a limit.
        quiet_cycles: With traffic since L moved last.
    """

    limit: float
    validated: float
    bins: Bins = field(default_factory=Bins.empty)
    curve: Curve | None = None
    memory: Line = field(default_factory=Line)
    resources: Mapping[str, Line] = field(default_factory=dict)
    errors: Errors = field(default_factory=Errors)
    shift: Shift = field(default_factory=Shift)
    cycles: int = 0
    bin_cycles: int = 0
    asked: int = 0
    hold_cycles: int = 0
    full_cuts: int = 0
    full_from: float = 0.0
    canary: str | None = None
    has_moved: bool = True
    quiet_cycles: int = 0

    @staticmethod
    def fresh(policy: Policy) -> Learner:
        """Return a learner that knows only what the person said."""
        start = bounded(policy.target.initial / TARGET_SHARE, policy)
        return Learner(limit=start, validated=start)

    @staticmethod
    def restored(policy: Policy, learnt: float, validated: float | None = None) -> Learner:
        """Return a learner of which only L was kept, as after a restart or for another version: its bins are empty.

        It is no longer onboarding. What was validated is kept beside L: a target that jumps to 0.7 L would take
        replicas away that nothing has shown to be too many.

        Args:
            policy: May have other bounds than before.
            learnt: L as published; anything that is not a positive number counts as nothing kept.
            validated: Its validated part; None or not a positive number = all of it.
        """
        if not (math.isfinite(learnt) and learnt > 0):
            return Learner.fresh(policy)
        start = bounded(learnt, policy)
        if validated is None or not (math.isfinite(validated) and validated > 0):
            validated = start
        return Learner(limit=start, validated=min(bounded(validated, policy), start), cycles=ONBOARDING_CYCLES)

    def within(self, policy: Policy) -> Learner:
        """Return the state under a policy that may have other bounds: L follows them at once."""
        limit = bounded(self.limit, policy)
        return replace(self, limit=limit, validated=min(bounded(self.validated, policy), limit))


def bounds(policy: Policy) -> tuple[float, float]:
    """Return the lowest and highest L: the target's bounds / 0.7, and never above the replica's own limit."""
    target = policy.target
    most = math.inf if target.limit is None else target.limit
    return min(target.minimum / TARGET_SHARE, most), min(target.maximum / TARGET_SHARE, most)


def bounded(limit: float, policy: Policy) -> float:
    """Return L within its bounds."""
    low, high = bounds(policy)
    return min(max(limit, low), high)
