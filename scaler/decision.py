"""What is decided, why, and with which numbers: the reason is part of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """Why the replica count is what it is."""

    # Growing.
    DEMAND = "Demand"  # rate x service time / target
    SHADOW = "ShadowFleet"  # a smaller fleet would have been late
    BACKLOG = "Backlog"  # what will still wait when new capacity is Ready
    FORECAST = "Forecast"
    EXTRA_SIGNAL = "ExtraSignal"
    WAKE = "RequestWaiting"  # from zero
    MINIMUM = "MinReplicas"
    # Shrinking.
    EXCESS = "Excess"
    BACKLOG_GONE = "BacklogGone"
    IDLE = "Idle"  # to zero
    MAXIMUM = "MaxReplicas"
    # Holding.
    FITS = "Fits"
    NO_DATA = "NoData"
    PARTIAL_DATA = "PartialData"  # one signal unknown: growing only
    LATE = "LateRequests"
    HOLD_WINDOW = "HoldWindow"  # the window before a shrink has not passed
    REVERSAL_WINDOW = "ReversalWindow"
    RESTARTED = "RestartedRecently"
    SURVIVORS_LATE = "SurvivorsTooFew"
    SURVIVORS_LATENCY = "SurvivorsTooSlow"
    SURVIVORS_MEMORY = "SurvivorsOutOfMemory"
    BEFORE_FIRST_READY = "BeforeFirstReady"
    REQUEST_IN_FLIGHT = "RequestInFlight"
    GROWTH_CAP = "GrowthCap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What will be needed, for whoever provides nodes.

    Attributes:
        replicas: Wanted in all.
        by_s: When, seconds on the decision's clock.
        confidence_ratio: Probability that no more are needed then, 0..1.
    """

    replicas: int
    by_s: float
    confidence_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One answer of the horizontal axis.

    Attributes:
        at_s: When it was taken.
        current: Ready and starting replicas it was taken on.
        desired: Replicas wanted, within the bounds.
        reason: The rule that bound.
        numbers: What the rule saw, by name with units; finite values only.
        text: One line for people.
        needs: Soonest first; the first is the present one.
    """

    at_s: float
    current: int
    desired: int
    reason: Reason
    numbers: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    needs: tuple[Need, ...] = ()


class TargetReason(StrEnum):
    """Why the learnt target is what it is."""

    FIXED = "Fixed"  # not learnt
    IDLE = "TooFewRequests"  # idle is no evidence
    SHIFTED = "WorkloadShifted"
    ERRORS_TIED_TO_LOAD = "ErrorsTiedToLoad"
    ERRORS_TRIAL = "ErrorsUnderTrial"
    ERRORS_NOT_TIED = "ErrorsNotTiedToLoad"
    MEMORY = "Memory"
    RESOURCE = "Resource"  # GPU memory bandwidth, I/O wait and the like at their threshold
    UNREACHABLE = "LatencyLimitUnreachable"
    AT_KNEE = "AtTheKnee"
    RAISED = "Raised"
    CUT = "Cut"
    AT_BOUND = "AtBound"
    CONFIRMING = "Confirming"  # a raise is asked for once more before it is made
    NOT_EXERCISED = "NotExercised"  # no replica was busy enough to prove more
    HELD_STARTING = "HeldWhileStarting"
    HELD_LATE = "HeldWhileLate"
    HELD_ROLLOUT = "HeldAfterRollout"
    LATENCY = "LatencyLimit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What one replica may hold, as the vertical axis says or the person did.

    Attributes:
        target: Requests in progress per replica that the horizontal axis aims at; > 0.
        slots: Hard bound per replica; None = none is known.
    """

    target: float
    slots: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One answer of the vertical axis.

    Attributes:
        at_s: When it was taken.
        learnt: L, requests in progress per replica that are known or believed good.
        validated: Highest part of L that a replica really held without errors.
        sizing: What follows for the horizontal axis and the balancer.
        canary: Replica that should run at L while the others run at the target; None = none.
        confidence_ratio: 0 = nothing is known, 1 = fitted, exercised and stable.
        reason: The rule that bound.
        numbers: What it saw: fitted curve, knee, limits; finite values only.
        text: One line for people.
    """

    at_s: float
    learnt: float
    validated: float
    sizing: Sizing
    canary: str | None
    confidence_ratio: float
    reason: TargetReason
    numbers: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
