"""What is seen of one endpoint: one sample a second, and the replicas there are.

Missing is not zero: None says that nothing came, 0.0 that there was nothing. Age is counted from the receiver's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SignalState(StrEnum):
    """Four different things that a reader of a signal must tell apart."""

    VALUE = "value"
    ZERO = "zero"
    MISSING = "missing"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A reading with its age.

    Attributes:
        value: Last usable value; None = there never was one.
        age_s: Seconds since it was received; inf = never.
        stale_after_s: Age from which it no longer counts.
    """

    value: float | None
    age_s: float
    stale_after_s: float

    @property
    def state(self) -> SignalState:
        """Return which of the four it is."""
        if self.value is None:
            return SignalState.MISSING
        if self.age_s > self.stale_after_s:
            return SignalState.STALE
        return SignalState.ZERO if self.value == 0 else SignalState.VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One second at the balancer, draining replicas left out; None = not known.

    Attributes:
        at_s: When it was received, seconds on the receiver's clock; the sender's stamps never age a sample.
        arrivals: Requests that came.
        completions: Requests that ended, however they ended.
        in_flight: Requests in progress on serving replicas, time average over the second.
        queued: Requests waiting for a slot, or held while there is no replica, at the end of the second.
        errors: Requests that failed.
        extra: Value of each further signal, summed over the serving replicas.
        is_partial: Somebody who knows of more was silent: all counts are lower bounds, and nobody may go for them.
    """

    at_s: float
    arrivals: float | None = None
    completions: float | None = None
    in_flight: float | None = None
    queued: float | None = None
    errors: float | None = None
    extra: Mapping[str, float | None] = field(default_factory=dict)
    is_partial: bool = False


class Phase(StrEnum):
    """Where a replica stands."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica, for choosing which goes.

    Attributes:
        name: Of the pod.
        phase: Where it stands.
        since_s: When it was ordered.
        in_flight: Requests in progress on it; None = not known.
        unscheduled: Whether it still waits for a node.
        is_replaced: Whether another one serves in its stead already: it was moved.
    """

    name: str
    phase: Phase
    since_s: float
    in_flight: float | None = None
    unscheduled: bool = False
    is_replaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The replicas of an endpoint as counts.

    Attributes:
        ready: Serving.
        starting_since_s: When each that is not Ready yet was ordered, oldest first.
        draining: Finishing what they have; neither capacity nor pulled back.
        failed: Neither serving nor starting.
    """

    ready: int
    starting_since_s: tuple[float, ...] = ()
    draining: int = 0
    failed: int = 0

    @property
    def starting(self) -> int:
        """Return how many were ordered and are not Ready."""
        return len(self.starting_since_s)

    @property
    def replicas(self) -> int:
        """Return n of the rules: ready and starting; an order is never repeated."""
        return self.ready + len(self.starting_since_s)


def usable(value: float | None) -> bool:
    """Return whether a number can be a count or a load: known, finite, not negative."""
    return value is not None and math.isfinite(value) and value >= 0
