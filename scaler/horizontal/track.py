"""One endpoint's memory: fed one sample a second, read by decisions."""

from __future__ import annotations

import math
from typing import Final

from scaler.decision import Sizing
from scaler.horizontal.arrivals import Arrivals
from scaler.horizontal.bounds import room
from scaler.horizontal.horizon import hold_s
from scaler.horizontal.service import ServiceTime
from scaler.horizontal.shadow import ShadowFleets
from scaler.horizontal.window import Window
from scaler.policy import Policy
from scaler.seen import Fleet, Sample, usable

_CALM_S: Final = 30
_MOST_AHEAD_S: Final = 10.0
_LONGEST_GAP_S: Final = 5.0
_MOST_REQUESTS: Final = 1e9  # in one second, or at once; more is a broken counter, not traffic
_REBASE_RATIO: Final = 1.25


class Track:
    """Mutable sums of what was seen; `decide` only reads them. About 40 KB at 100 shadow sizes.

    Attributes:
        arrivals: Counts by window.
        service: S.
        shadow: Imaginary fleets.
        demand: F + Q over the look-back of the base rule.
        waits: Q per Ready replica over the last 30 s; inf = somebody waits and nobody serves.
        extra: Further signals, by name, over the look-back.
        held: Requests that wait now; None = unknown.
        in_flight: Requests in progress now; None = unknown.
        busy_s: Last second that was not known to be without a request.
        at_s: Time of the last sample.
        known_s: Time of the last one whose requests in progress were known.
        resumed_s: Time of the last such one that came after a gap: what was seen before it is no part of a window.
        bounded_s: Time of the last sample that only was a lower bound; -inf = there was none.
        expected: Names of the signals that came at least once.
        rejected: Values that were not a number, infinite, negative, absurd, or out of time.
    """

    def __init__(self, policy: Policy, started_at_s: float, service_s: float | None = None) -> None:
        """Begin without memory; `service_s` is S as persisted, if it was."""
        self._policy = policy
        self._unit_slots = room(policy.target.initial, policy.target.limit)
        look_back = round(policy.behavior.look_back_up_s)
        self.arrivals = Arrivals()
        self.service = ServiceTime(service_s)
        self.shadow = self._new_shadow()
        self.demand = Window(look_back)
        self.waits = Window(_CALM_S)
        self.extra: dict[str, Window] = {extra.name: Window(look_back) for extra in policy.extra}
        self.held: float | None = None
        self.in_flight: float | None = None
        self.busy_s = started_at_s
        self.started_at_s = started_at_s
        self.at_s = started_at_s
        self.known_s = started_at_s
        self.resumed_s = started_at_s
        self.bounded_s = -math.inf
        self.expected: set[str] = set()
        self.rejected = 0

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Take the sample of one second.

        A sample counts from when it was received. A gap is filled with unknown seconds; a sample more than 10 s before
        the last one, or that far ahead of the clock because too many come, is rejected.
        """
        step = sample.at_s - self.at_s
        if not math.isfinite(step) or step < -_MOST_AHEAD_S:
            self.rejected += 1
            return
        gap = min(round(step) - 1, self._longest_gap()) if step > 1.5 else 0
        for _ in range(gap):
            self._live(None, None, None, None, fleet)
            for window in self.extra.values():
                window.add(None)
        # At least one second passes with every sample; what runs ahead by it is made up by the next gap.
        self.at_s = sample.at_s if step > 0.5 else self.at_s + 1.0
        arrivals = self._clean(sample.arrivals, "arrivals", _MOST_REQUESTS)
        completions = self._clean(sample.completions, "completions", _MOST_REQUESTS)
        in_flight = self._clean(sample.in_flight, "in_flight", _MOST_REQUESTS)
        queued = self._clean(sample.queued, "queued", _MOST_REQUESTS)
        self._live(arrivals, completions, in_flight, queued, fleet)
        for name, window in self.extra.items():
            window.add(self._clean(sample.extra.get(name), name, math.inf))
        if in_flight is not None:
            if self.at_s - self.known_s > max(_LONGEST_GAP_S, self._policy.behavior.period_s):
                # Decisions notice a gap while it lasts, unless they stood still as well: a process that was stopped.
                self.resumed_s = self.at_s
            self.known_s = self.at_s
        if sample.is_partial:
            self.bounded_s = self.at_s
        is_idle = in_flight == 0 and self._is_none(queued, "queued") and self._is_none(arrivals, "arrivals")
        if gap or sample.is_partial or not is_idle:
            self.busy_s = self.at_s

    def resize(self, policy: Policy, sizing: Sizing | None = None) -> None:
        """Go on under another policy, or with another size of replica, keeping what was seen."""
        look_back = round(policy.behavior.look_back_up_s)
        self.demand = self.demand.resized(look_back)
        empty = Window(look_back)
        self.extra = {e.name: self.extra.get(e.name, empty).resized(look_back) for e in policy.extra}
        size = sizing or Sizing(target=policy.target.initial, slots=policy.target.limit)
        unit = room(size.target, size.slots)
        before, self._policy = self._policy, policy
        moved = max(unit / self._unit_slots, self._unit_slots / unit)
        if moved > _REBASE_RATIO or policy.max_replicas != before.max_replicas:
            self._unit_slots = unit
            self.shadow.rebase(unit, policy.max_replicas)

    def _live(
        self,
        arrivals: float | None,
        completions: float | None,
        in_flight: float | None,
        queued: float | None,
        fleet: Fleet,
    ) -> None:
        self.arrivals.add(arrivals)
        if in_flight is not None and completions is not None:
            self.service.add(in_flight, completions)
        service_s = self.service.seconds
        if arrivals is not None and service_s is not None:
            self.shadow.step(arrivals, service_s, self._policy.promise.queue_wait_s)
        self.demand.add(None if in_flight is None else in_flight + (queued or 0.0))
        self.held, self.in_flight = queued, in_flight
        if queued is None:
            self.waits.add(None)
        else:
            self.waits.add(queued / fleet.ready if fleet.ready else math.inf if queued > 0 else 0.0)

    def _clean(self, value: float | None, name: str, most: float) -> float | None:
        if value is None:
            return None
        if usable(value) and value <= most:
            self.expected.add(name)
            return value
        self.rejected += 1
        return None

    def _is_none(self, value: float | None, name: str) -> bool:
        """Return whether a count is known to be 0, or was never told at all."""
        return value == 0 or (value is None and name not in self.expected)

    def _longest_gap(self) -> int:
        return round(self._policy.behavior.look_back_down_s)

    def _new_shadow(self) -> ShadowFleets:
        behavior = self._policy.behavior
        return ShadowFleets(self._unit_slots, self._policy.max_replicas, hold_s(behavior, behavior.start_time_s))
