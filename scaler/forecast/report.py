"""What the forecast would have changed: the account that `forecast.mode: observe` keeps. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scaler.forecast.outlook import Outlook

# Starts that take longer are judged as if they took so long.
_PENDING_MIN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """One minute as it was.

    Attributes:
        ready: Replicas that served.
        ordered: Ready and starting.
        requests: That came.
        late: Of these, that waited longer than was promised.
        service_s: Time of a request in a replica; None = not known.
        target: Requests in progress wanted per replica.
        max_replicas: Bound that no floor passes.
    """

    ready: int
    ordered: int
    requests: float
    late: float
    service_s: float | None
    target: float
    max_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The account so far.

    Attributes:
        minutes: Counted, with a forecast or without.
        raised_minutes: In which the floor stood above what was ordered.
        requests: That came in them.
        late: That waited longer than was promised.
        saved: Of these, how many the floor's replicas would have served in time, at most.
        extra_replica_s: What those replicas would have cost.
        pending: The outlooks of the last minutes, newest last: each is for a minute that may still have to come.
    """

    minutes: int = 0
    raised_minutes: int = 0
    requests: float = 0.0
    late: float = 0.0
    saved: float = 0.0
    extra_replica_s: float = 0.0
    pending: tuple[Outlook | None, ...] = ()

    @property
    def text(self) -> str:
        """Return one line for people."""
        share = self.saved / self.requests if self.requests > 0 else 0.0
        return (
            f"in {self.minutes / 60:.1f} hours it would have saved up to {self.saved:.0f} of {self.late:.0f} late "
            f"requests ({share:.2%} of all) for {self.extra_replica_s / 3600:.1f} replica-hours"
        )


def replicas_of(outlook: Outlook, minute: Minute) -> int:
    """Return what the need would have been: ceil(raised rate x service time / target), at most the maximum.

    The raised rate is the present one and, by its weight, what the forecast says beyond it; 0 where nothing was earned.
    """
    floor = outlook.floor
    if floor is None or outlook.present_rps is None or minute.service_s is None:
        return 0
    need = floor.raised(outlook.present_rps) * minute.service_s / minute.target
    return min(minute.max_replicas, math.ceil(need - 1e-9))


def account(report: Report, minute: Minute, outlook: Outlook | None) -> Report:
    """Return the report with one more minute.

    The floor's replicas above those ordered cost a minute each; those above the ready ones could have taken
    target / service time requests/s each, and no more than the late ones count as saved. Shrinking later than was
    done is left out on both sides.

    Args:
        report: So far.
        minute: What was.
        outlook: The newest, made as this minute began; None = there was none. The minute is judged by the one that
            was made a horizon earlier: a replica that is ordered now helps no sooner.
    """
    steps = 1 if outlook is None else min(_PENDING_MIN, max(1, round(outlook.horizon_s / 60.0)))
    pending = (*report.pending, outlook)[-_PENDING_MIN:]
    due = pending[-steps] if steps <= len(pending) else None
    floor = 0 if due is None else replicas_of(due, minute)
    extra = max(0, floor - minute.ordered)
    room = max(0, floor - minute.ready) * 60.0 * minute.target / minute.service_s if minute.service_s else 0.0
    return Report(
        minutes=report.minutes + 1,
        raised_minutes=report.raised_minutes + (extra > 0),
        requests=report.requests + minute.requests,
        late=report.late + minute.late,
        saved=report.saved + min(minute.late, room),
        extra_replica_s=report.extra_replica_s + 60.0 * extra,
        pending=pending,
    )
