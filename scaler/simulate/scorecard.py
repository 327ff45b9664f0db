"""How a run is judged: late requests, cost and calm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scaler.simulate.curves import Ints
from scaler.simulate.run import Run

_RECOVERY_STEP_S: Final = 5
_SERVED_RATIO: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """The figures of one run, warm-up left out.

    Attributes:
        requests: That came.
        late: Of those, how many waited longer than the world's slo_s; unserved ones are late.
        violation_ratio: late / requests; 0 when none came.
        wait_p99_s: 99th percentile of the wait; inf where more were never served.
        replica_s: Replica-seconds of everything ordered: starting, ready and draining.
        ideal_replica_s: Sum of service times / target: what a fleet that follows exactly would cost.
        changes: Times that the wanted count moved.
        reversals: Times that it moved in the other direction than before.
        reversals_per_hour: The same per hour.
        starts: Replicas ordered, warm-up included.
        peak_replicas: Most that were ready and starting together.
        starved_ratio: Share of seconds with fewer ready replicas than the work in hand asks for.
    """

    requests: int
    late: int
    violation_ratio: float
    wait_p99_s: float
    replica_s: float
    ideal_replica_s: float
    changes: int
    reversals: int
    reversals_per_hour: float
    starts: int
    peak_replicas: int
    starved_ratio: float


def scorecard(run: Run, target: float) -> Scorecard:
    """Judge a run.

    Args:
        run: What happened.
        target: Requests in progress wanted per replica, for the ideal; > 0.
    """
    warmup_s = min(run.world.warmup_s, run.load.duration_s)
    counted = run.load.arrival_s >= warmup_s
    wait_s = run.wait_s[counted]
    late = int((wait_s > run.world.slo_s).sum())
    cost = run.ready[warmup_s:].sum() + run.starting[warmup_s:].sum() + run.draining_s[warmup_s:].sum()
    changes, reversals = moves(run.wanted[warmup_s:])
    hours = max(run.load.duration_s - warmup_s, 1) / 3600.0
    busy = run.in_flight[warmup_s:] + run.queued[warmup_s:]
    starved = busy > run.ready[warmup_s:] * run.world.slots - 1e-9
    return Scorecard(
        requests=int(wait_s.size),
        late=late,
        violation_ratio=late / wait_s.size if wait_s.size else 0.0,
        wait_p99_s=float(np.quantile(wait_s, 0.99, method="higher")) if wait_s.size else 0.0,
        replica_s=float(cost),
        ideal_replica_s=float(run.load.service_s[counted].sum()) / target,
        changes=changes,
        reversals=reversals,
        reversals_per_hour=reversals / hours,
        starts=run.starts,
        peak_replicas=int((run.ready + run.starting).max(initial=0)),
        starved_ratio=float((starved & (busy > 0)).mean()) if busy.size else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How long a jump of the rate was felt.

    Attributes:
        served_s: From the jump until at least 95 % of the requests that come within 5 s are matched by as many ends;
            None = never.
        in_time_s: From the jump until the last request came that waited too long, 0 = none did; None = some still wait
            at the end.
    """

    served_s: float | None
    in_time_s: float | None


def recovery(run: Run, jump_s: int) -> Recovery:
    """Return how long a jump of the rate at a whole second was felt."""
    came, _ = np.histogram(run.load.arrival_s, np.arange(jump_s, run.load.duration_s + 1))
    steps = np.arange(0, came.size, _RECOVERY_STEP_S)
    served = np.add.reduceat(run.completions[jump_s:], steps) >= _SERVED_RATIO * np.add.reduceat(came, steps)
    after = run.load.arrival_s >= jump_s
    late_s = run.load.arrival_s[after & (run.wait_s > run.world.slo_s)]
    last_s = float(late_s[-1]) - jump_s if late_s.size else 0.0
    return Recovery(
        served_s=float(min(_RECOVERY_STEP_S * (int(np.argmax(served)) + 1), came.size)) if served.any() else None,
        in_time_s=None if np.isinf(run.wait_s).any() else last_s,
    )


def moves(wanted: Ints) -> tuple[int, int]:
    """Return how often a count moved, and how often in the other direction than the move before."""
    steps = np.sign(np.diff(wanted))
    steps = steps[steps != 0]
    return int(steps.size), int((np.diff(steps) != 0).sum())
