"""What one decision knows: the track read once, as plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from scaler.decision import Sizing
from scaler.horizontal.bounds import band_ratio, room
from scaler.horizontal.drift import drift_ratio
from scaler.horizontal.floor import Floor
from scaler.horizontal.horizon import hold_s
from scaler.horizontal.rate import rate_rps
from scaler.horizontal.shadow import RECENT_S, Level
from scaler.horizontal.track import Track
from scaler.horizontal.trend import growth_rps
from scaler.policy import ForecastMode, Policy, Promise
from scaler.seen import Fleet

_LOWER_BOUND_S: Final = 5.0  # one silent second of a balancer is a moment's word, too
LATE_UP_RATIO: Final = 0.01
LATE_DOWN_RATIO: Final = 0.005  # half of it: hysteresis, without which Azure code flapped 60 to 160 times an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Measured values; None = not known.

    Attributes:
        target: Requests in progress wanted per replica.
        slots: Hard bound per replica; None = none is known.
        start_time_s: D.
        work: Requests in progress that the demand means: rate x S, or F + Q where rates are not known.
        extra_need: Replicas that further signals ask for.
        service_s: S.
        held: Requests that wait now.
        in_flight: Requests in progress now.
        is_partial: Whether a signal that came before, or that was asked for, is unknown.
        has_rates: Whether work comes from rates; else only the base rule applies.
        rate_rps: Present rate.
        growth_rps: What the trend adds by now + D.
        foreseen_rps: What the forecast adds to both.
        wait_s: Q S / (slots ready), longest of the last 30 s; inf = somebody waits and nobody serves.
        wait_now_s: The same of the last second.
        up: Shadow level for growing.
        down: Shadow level for shrinking, over the whole hold.
        down_recent: The same over 300 s.
        band_ratio: b.
        drift_ratio: Usual rise of the demand within D, as a share of it.
    """

    target: float
    slots: float | None
    start_time_s: float
    work: float | None
    extra_need: float | None
    service_s: float | None
    held: float | None
    in_flight: float | None
    is_partial: bool
    has_rates: bool = False
    rate_rps: float | None = None
    growth_rps: float = 0.0
    foreseen_rps: float = 0.0
    wait_s: float | None = None
    wait_now_s: float | None = None
    up: Level | None = None
    down: Level | None = None
    down_recent: Level | None = None
    band_ratio: float = 0.0
    drift_ratio: float = 0.0

    @property
    def need(self) -> float | None:
        """Return work / target, or what a further signal asks for if that is more; None = nothing is known."""
        if self.work is None:
            return self.extra_need
        return max(self.work / self.target, self.extra_need or 0.0)

    @property
    def room(self) -> float:
        """Return the slots per replica that shadow levels and backlog count with."""
        return room(self.target, self.slots)

    def is_late(self, promise: Promise) -> bool:
        """Return whether somebody waited longer than half of the promise in the last 30 s."""
        return self.wait_s is not None and self.wait_s > promise.queue_wait_s / 2


def read(
    track: Track,
    fleet: Fleet,
    sizing: Sizing,
    policy: Policy,
    now_s: float,
    start_time_s: float,
    floor: Floor | None,
) -> Evidence:
    """Return what is known now."""
    age_s = now_s - track.at_s
    is_current = age_s <= policy.behavior.look_back_up_s
    rate = rate_rps(track.arrivals) if is_current and track.arrivals.over(10)[1] > 0 else None
    service_s = track.service.seconds
    extra_need, is_extra_unknown = _extra(track, policy, age_s)
    has_begun = track.at_s - track.started_at_s > _LOWER_BOUND_S  # before, no window can be half known
    is_lost = rate is None and "arrivals" in track.expected and (has_begun or service_s is not None)
    is_queue_lost = is_current and track.held is None and "queued" in track.expected
    is_bounded = now_s - track.bounded_s < max(policy.behavior.period_s, _LOWER_BOUND_S)
    base = Evidence(
        target=sizing.target,
        slots=sizing.slots,
        start_time_s=start_time_s,
        work=track.demand.mean(age_s),
        extra_need=extra_need,
        service_s=service_s,
        held=track.held if is_current else None,
        in_flight=track.in_flight if is_current else None,
        is_partial=is_extra_unknown
        or is_lost
        or is_queue_lost
        or is_bounded
        or now_s - track.known_s >= policy.behavior.period_s,
    )
    if rate is None or service_s is None:
        return replace(base, is_partial=base.is_partial or base.work is None)
    growth = growth_rps(track.arrivals, rate, start_time_s)
    foreseen = 0.0
    if floor is not None and policy.forecast is ForecastMode.ACT:
        foreseen = floor.raised(rate + growth) - (rate + growth)
    capacity = room(sizing.target, sizing.slots)
    longest = track.waits.largest()
    return replace(
        base,
        work=(rate + growth + foreseen) * service_s,
        has_rates=True,
        rate_rps=rate,
        growth_rps=growth,
        foreseen_rps=foreseen,
        wait_s=None if longest is None else longest * service_s / capacity,
        wait_now_s=_wait_s(track.held, service_s, capacity * fleet.ready),
        up=track.shadow.level(RECENT_S, LATE_UP_RATIO),
        down=track.shadow.level(hold_s(policy.behavior, start_time_s), LATE_DOWN_RATIO),
        down_recent=track.shadow.level(RECENT_S, LATE_DOWN_RATIO),
        drift_ratio=drift_ratio(track.arrivals, start_time_s),
        band_ratio=band_ratio(sizing.target, sizing.slots, fleet.replicas, start_time_s),
    )


def _wait_s(held: float | None, service_s: float, slots: float) -> float | None:
    """Return Q S / slots; inf = somebody waits and nobody serves."""
    if held is None:
        return None
    if slots > 0:
        return held * service_s / slots
    return math.inf if held > 0 else 0.0


def _extra(track: Track, policy: Policy, age_s: float) -> tuple[float | None, bool]:
    """Return the largest need that a further signal asks for, and whether one of them is unknown."""
    values = [(extra, track.extra[extra.name].mean(age_s)) for extra in policy.extra if extra.name in track.extra]
    needs = [value / extra.target for extra, value in values if value is not None]
    return max(needs, default=None), len(needs) < len(policy.extra)
