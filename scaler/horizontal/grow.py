"""What asks for more replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scaler.decision import Reason
from scaler.horizontal.backlog import drain_replicas, drain_time_s, left_over
from scaler.horizontal.bounds import whole
from scaler.horizontal.evidence import Evidence
from scaler.horizontal.record import margin_ratio, with_margin
from scaler.policy import Policy, Style
from scaler.seen import Fleet

_DRAIN_CAP: Final = {Style.STEADY: 3.0, Style.THRIFTY: 1.0}  # 8 gained 0.2 to 1.1 points for 10 to 29 % more cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Replicas that one rule asks for.

    Attributes:
        reason: The rule.
        replicas: In all.
        text: Why, with the numbers.
    """

    reason: Reason
    replicas: int
    text: str


def wants(evidence: Evidence, fleet: Fleet, policy: Policy, now_s: float) -> tuple[Want, ...]:
    """Return what each rule for growing asks for; an answer not above the present count is none.

    Starting replicas are part of the present count, so an order is never repeated (vllm-project/aibrix#2670).
    """
    lasting = (*_demand(evidence, fleet), *_shadow(evidence, policy))
    drain = _backlog(evidence, fleet, policy, now_s, max((want.replicas for want in lasting), default=0))
    return tuple(want for want in (*lasting, *drain) if want.replicas > fleet.replicas)


def waking(evidence: Evidence) -> Want | None:
    """Return the replicas for the requests that wait right now, where there are none; None = nobody waits.

    replicas = max(1, ceil((F + Q) / target)) of the last second: remembered load starts a replica for nobody
    (ray-project/ray#33416).
    """
    waiting = (evidence.held or 0.0) + (evidence.in_flight or 0.0)
    if waiting <= 0:
        return None
    replicas = max(1, whole(waiting / evidence.target))
    return Want(reason=Reason.WAKE, replicas=replicas, text=f"{waiting:g} requests wait and no replica is there")


def _demand(evidence: Evidence, fleet: Fleet) -> Iterator[Want]:
    """Need = work / target; grow to ceil(need), if need > n (1 + b)."""
    need = evidence.need
    if need is None or need <= fleet.replicas * (1 + evidence.band_ratio) + 1e-9:
        return
    if evidence.work is None or need > evidence.work / evidence.target:
        yield Want(
            reason=Reason.EXTRA_SIGNAL, replicas=whole(need), text=f"a further signal asks for {need:.2f} replicas"
        )
        return
    source = f"{evidence.work:.1f} requests in progress and waiting"
    if evidence.rate_rps is not None:
        total = evidence.rate_rps + evidence.growth_rps + evidence.foreseen_rps
        source = f"{total:.2f} requests/s of {evidence.service_s:.3g} s"
    without = evidence.work - evidence.foreseen_rps * (evidence.service_s or 0.0)
    is_foreseen = whole(without / evidence.target) < whole(need) and evidence.foreseen_rps > 0
    yield Want(
        reason=Reason.FORECAST if is_foreseen else Reason.DEMAND,
        replicas=whole(need),
        text=f"{source} at {evidence.target:g} a replica need {need:.2f}",
    )


def _shadow(evidence: Evidence, policy: Policy) -> Iterator[Want]:
    """The smallest imaginary fleet that was late for at most 1 % of the last 300 s, and the margin for a record."""
    if evidence.up is None:
        return
    replicas = with_margin(evidence.up, evidence.room, evidence.drift_ratio, policy.behavior.style)
    yield Want(
        reason=Reason.SHADOW,
        replicas=replicas,
        text=f"a fleet of {evidence.up.slots / evidence.room:.1f} would have kept the promise, "
        f"{replicas} with the margin of {margin_ratio(evidence.up, evidence.drift_ratio, policy.behavior.style):.0%}",
    )


def _backlog(evidence: Evidence, fleet: Fleet, policy: Policy, now_s: float, lasting: int) -> Iterator[Want]:
    """If Q S / (slots ready) > promise / 2: ceil(n_drain - 0.5), at most (1 + 3) x what demand and shadow ask for."""
    wait_s, service_s, held = evidence.wait_now_s, evidence.service_s, evidence.held
    if wait_s is None or service_s is None or held is None or wait_s <= policy.promise.queue_wait_s / 2:
        return
    style, start_s, slots = policy.behavior.style, evidence.start_time_s, evidence.room
    inflow = ((evidence.rate_rps or 0.0) + evidence.growth_rps) * service_s
    arriving = [since + start_s for since in fleet.starting_since_s]
    left = left_over(held * service_s, inflow, slots, fleet.ready, arriving, now_s, now_s + start_s)
    drain_s = drain_time_s(start_s, service_s, style is Style.THRIFTY)
    cap = (1 + _DRAIN_CAP[style]) * max(evidence.need or 0.0, lasting)
    replicas = min(math.ceil(drain_replicas(inflow, left, slots, drain_s) - 0.5), whole(cap))
    yield Want(
        reason=Reason.BACKLOG,
        replicas=replicas,
        text=f"{left / service_s:.0f} of {held:.0f} waiting requests will still wait in {start_s:.0f} s; "
        f"{replicas} replicas drain them in {drain_s:.1f} s more",
    )
