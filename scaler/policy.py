"""What a person says about one endpoint: bounds, targets, promises and the mission's constants.

Everything else in the scaler is an internal mechanism: its constants stand beside the rule they belong to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# Beyond these a value is a slip of the pen, and some would cost every other endpoint: windows are memory, and a count
# of replicas has 32 bits in the API.
MOST_REPLICAS: Final = 2**31 - 1
LONGEST_S: Final = 86_400.0
LONGEST_LOOK_BACK_UP_S: Final = 3600.0
LEAST_TARGET: Final = 1e-3
MOST_TARGET: Final = 1e6
_MOST_RATIO: Final = 1e6


class Mode(StrEnum):
    """Whether decisions are carried out or only told."""

    OBSERVE = "observe"
    ACT = "act"


class ForecastMode(StrEnum):
    """Whether the forecast is computed, and whether it may raise the replica count."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


class Style(StrEnum):
    """Steady: few reversals and late requests. Thrifty: cheaper, at two to four times the reversals."""

    STEADY = "steady"
    THRIFTY = "thrifty"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetBounds:
    """Requests in progress wanted per replica.

    Attributes:
        initial: Where it starts, and where it stays unless learnt.
        minimum: Lowest that is learnt.
        maximum: Highest that is learnt.
        is_learnt: Whether the vertical axis may move it.
        limit: Hard bound of requests in progress per replica where the person knows one; None = unknown.
    """

    initial: float
    minimum: float = 1.0
    maximum: float = 1000.0
    is_learnt: bool = True
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What requests are promised (SLO).

    Attributes:
        queue_wait_s: Longest wait for a replica's slot; a request that waits longer is late.
        latency_s: 95th percentile of the time in a replica; None = no limit was set, the knee alone decides.
        error_ratio: Share of requests that may fail.
    """

    queue_wait_s: float = 2.0
    latency_s: float | None = None
    error_ratio: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """The constants of the mission.

    Attributes:
        style: Steady or thrifty.
        period_s: Between two decisions.
        look_back_up_s: Window of the base rule for growing.
        look_back_down_s: Shortest time that a lower need must have lasted before shrinking.
        growth_ratio: The most replicas after one decision, as a multiple of those before it.
        growth_replicas: Replicas that one decision may always add.
        shrink_ratio: Largest share of the replicas that one decision removes; at least one replica always may go.
        to_zero_after_s: Time without a request after which the last replicas go, where the minimum is 0.
        start_time_s: From order to Ready, until it has been measured.
    """

    style: Style = Style.STEADY
    period_s: float = 5.0
    look_back_up_s: float = 20.0
    look_back_down_s: float = 300.0
    growth_ratio: float = 4.0
    growth_replicas: int = 4
    shrink_ratio: float = 1.0
    to_zero_after_s: float = 300.0
    start_time_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraSignal:
    """A second signal that can ask for replicas beside the requests: need = value / target, the largest counts.

    Attributes:
        name: As in the samples.
        target: Value wanted per replica.
    """

    name: str
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that was said about one endpoint; valid only while `problems` is empty.

    Attributes:
        min_replicas: Fewest; 0 lets it sleep.
        max_replicas: Most.
        target: Requests in progress per replica.
        promise: What requests are promised.
        behavior: The mission's constants.
        extra: Further signals that can ask for replicas.
        forecast: Whether the forecast runs, and whether it may act.
        mode: Whether decisions are carried out.
    """

    min_replicas: int
    max_replicas: int
    target: TargetBounds
    promise: Promise = field(default_factory=Promise)
    behavior: Behavior = field(default_factory=Behavior)
    extra: tuple[ExtraSignal, ...] = ()
    forecast: ForecastMode = ForecastMode.OBSERVE
    mode: Mode = Mode.ACT

    def problems(self) -> tuple[str, ...]:
        """Return what contradicts itself or cannot be, naming field, bound and value; empty = valid."""
        return tuple(self._bounds() + self._targets() + self._behaviors() or self._extremes())

    def _bounds(self) -> list[str]:
        found = []
        if self.min_replicas < 0:
            found.append(f"minReplicas must be at least 0, got {self.min_replicas}")
        if self.max_replicas < 1:
            found.append(f"maxReplicas must be at least 1, got {self.max_replicas}")
        if self.min_replicas > self.max_replicas:
            found.append(
                f"minReplicas {self.min_replicas} is above maxReplicas {self.max_replicas}: min <= max must hold"
            )
        return found

    def _targets(self) -> list[str]:
        target = self.target
        found = [
            f"{name} must be above 0, got {value:g}"
            for name, value in (
                ("targetConcurrency.initial", target.initial),
                ("targetConcurrency.min", target.minimum),
                ("targetConcurrency.limit", math.inf if target.limit is None else target.limit),
                *((f"signals.extra[{extra.name}].target", extra.target) for extra in self.extra),
            )
            if not value > 0
        ]
        if target.minimum > target.maximum:
            found.append(f"targetConcurrency.min {target.minimum:g} is above targetConcurrency.max {target.maximum:g}")
        elif target.is_learnt and not target.minimum <= target.initial <= target.maximum:
            found.append(
                f"targetConcurrency.initial {target.initial:g} must lie between min {target.minimum:g} "
                f"and max {target.maximum:g}"
            )
        return found

    def _behaviors(self) -> list[str]:
        behavior, promise = self.behavior, self.promise
        found = list(
            _positive(
                ("behavior.periodSeconds", behavior.period_s),
                ("behavior.scaleUp.lookBackSeconds", behavior.look_back_up_s),
                ("behavior.scaleDown.lookBackSeconds", behavior.look_back_down_s),
                ("behavior.startTimeSeconds", behavior.start_time_s),
                ("slo.queueWaitSeconds", promise.queue_wait_s),
                ("slo.latencySeconds", math.inf if promise.latency_s is None else promise.latency_s),
            )
        )
        if behavior.growth_ratio < 1:
            found.append(f"behavior.scaleUp.maxRatio must be at least 1, got {behavior.growth_ratio:g}")
        if behavior.growth_replicas < 1:
            found.append(f"behavior.scaleUp.maxReplicas must be at least 1, got {behavior.growth_replicas}")
        if not 0 < behavior.shrink_ratio <= 1:
            found.append(f"behavior.scaleDown.maxRatio must be above 0 and at most 1, got {behavior.shrink_ratio:g}")
        if behavior.to_zero_after_s < 0:
            found.append(f"behavior.toZeroAfterSeconds must be at least 0, got {behavior.to_zero_after_s:g}")
        if not 0 < promise.error_ratio < 1:
            found.append(f"slo.errorRatio must lie between 0 and 1, got {promise.error_ratio:g}")
        return found

    def _extremes(self) -> list[str]:
        """Return what is beyond any use; every value is known to be above 0 where it must be."""
        behavior, promise, target = self.behavior, self.promise, self.target
        bounds = (
            ("maxReplicas", self.max_replicas, 1, MOST_REPLICAS),
            ("targetConcurrency.initial", target.initial, LEAST_TARGET, MOST_TARGET),
            ("targetConcurrency.min", target.minimum, LEAST_TARGET, MOST_TARGET),
            ("targetConcurrency.max", target.maximum, LEAST_TARGET, MOST_TARGET),
            ("targetConcurrency.limit", target.limit, LEAST_TARGET, MOST_TARGET),
            *((f"signals.extra[{one.name}].target", one.target, 1e-9, 1e15) for one in self.extra),
            ("behavior.periodSeconds", behavior.period_s, 1e-3, LONGEST_S),
            ("behavior.scaleUp.lookBackSeconds", behavior.look_back_up_s, 0, LONGEST_LOOK_BACK_UP_S),
            ("behavior.scaleDown.lookBackSeconds", behavior.look_back_down_s, 0, LONGEST_S),
            ("behavior.startTimeSeconds", behavior.start_time_s, 0, LONGEST_S),
            ("behavior.scaleUp.maxRatio", behavior.growth_ratio, 1, _MOST_RATIO),
            ("behavior.scaleUp.maxReplicas", behavior.growth_replicas, 1, MOST_REPLICAS),
            ("slo.queueWaitSeconds", promise.queue_wait_s, 1e-3, LONGEST_S),
            ("slo.latencySeconds", promise.latency_s, 1e-6, LONGEST_S),
        )
        return [
            f"{name} must lie between {low:g} and {high:g}, got {value:g}"
            for name, value, low, high in bounds
            if value is not None and not low <= value <= high
        ]


def _positive(*named: tuple[str, float]) -> Iterable[str]:
    return (f"{name} must be above 0, got {value:g}" for name, value in named if not value > 0)
