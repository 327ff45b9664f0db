"""Our rule on a demand: one pool per goal, sized minute by minute by what was learnt until then."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.warmpool.demand import DAY_MIN, Demand
from bench.warmpool.leads import Leads
from warmpool.size.contest import Contest, Rule
from warmpool.size.decide import decide, is_enough
from warmpool.size.evidence import Evidence
from warmpool.size.leads import LeadTimes
from warmpool.size.pool import Pool
from warmpool.values import HitRate

SCORED_FROM_MIN = 2 * DAY_MIN
MOST = 140


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one goal came to, days 1 and 2 not counted.

    Attributes:
        goal_ratio: Asked for.
        draws: Scored.
        hit_ratio: Reached.
        idle_h: Warm, unclaimed node-hours.
        ordered_h: Node-hours on order.
        wait_p50_s: For a node; 0 at a hit.
        wait_p99_s: Likewise.
        shadows_ratio: Part of the time in which the shadows acted, not the Poisson law.
        is_enough: Whether it said of itself that it had seen enough for the goal.
        targets: Per minute.
    """

    goal_ratio: float
    draws: int
    hit_ratio: float
    idle_h: float
    ordered_h: float
    wait_p50_s: float
    wait_p99_s: float
    shadows_ratio: float
    is_enough: bool
    targets: NDArray[np.int64]


class _Goal:
    def __init__(self, goal_ratio: float, lead_s: float, seed: int) -> None:
        self.objective = HitRate(goal_ratio=goal_ratio)
        self.contest = Contest(0.0)
        self.pool = Pool(2, 0.0)
        self.leads = Leads(lead_s, seed, 2, round(1000 * goal_ratio))
        self.target = 2
        self.targets: list[int] = []
        self.waits_s: list[float] = []
        self.shadows_min = 0
        self.before = (0, 0, 0.0, 0.0)

    def minute(self, minute: int, draws_s: tuple[float, ...], warmed: list[tuple[float, float]]) -> list[bool]:
        """Live a minute and return which draws hit; nodes that will be warm are noted with their lead times."""
        pool, now_s = self.pool, 60.0 * minute
        pool.advance(now_s)
        if minute == SCORED_FROM_MIN:
            self.before = (pool.draws, pool.missed, pool.idle_s, pool.ordered_s)
            self.waits_s.clear()
        for _ in range(pool.missing(self.target)):
            self._order(now_s, warmed)
        hits = []
        for at_s in draws_s:
            lead_s = self.leads.next()
            hits.append(pool.draw(at_s, lead_s))
            warmed.append((at_s + lead_s, lead_s))
            self.waits_s.append(0.0 if hits[-1] else lead_s)
        self.targets.append(self.target)
        return hits

    def _order(self, now_s: float, warmed: list[tuple[float, float]]) -> None:
        lead_s = self.leads.next()
        self.pool.order(now_s + lead_s)
        warmed.append((now_s + lead_s, lead_s))

    def decide(self, evidence: Evidence) -> None:
        actor = self.contest.actor
        self.target = decide(evidence, actor, self.objective, least=0, most=MOST).target
        self.shadows_min += actor.rule is Rule.SHADOWS

    def outcome(self, minutes: int, evidence: Evidence) -> Outcome:
        pool = self.pool
        pool.advance(60.0 * minutes)
        draws, missed, idle_s, ordered_s = self.before
        scored = pool.draws - draws
        waits_s = np.array(self.waits_s or [0.0])
        return Outcome(
            goal_ratio=self.objective.goal_ratio,
            draws=scored,
            hit_ratio=1.0 - (pool.missed - missed) / max(1, scored),
            idle_h=(pool.idle_s - idle_s) / 3600.0,
            ordered_h=(pool.ordered_s - ordered_s) / 3600.0,
            wait_p50_s=float(np.quantile(waits_s, 0.5)),
            wait_p99_s=float(np.quantile(waits_s, 0.99)),
            shadows_ratio=self.shadows_min / minutes,
            is_enough=is_enough(evidence, self.objective),
            targets=np.array(self.targets),
        )


def run(
    work: Demand, lead_s: float, seed: int, goals: tuple[float, ...]
) -> tuple[list[Outcome], NDArray[np.float64], int]:
    """Return the outcomes, the forecast of each minute (draws within the window) and the window in minutes."""
    learnt = LeadTimes()
    evidence = Evidence(MOST, 0, learnt)
    pools = [_Goal(goal, lead_s, seed) for goal in goals]
    coming: list[tuple[float, float]] = []
    forecasts = np.empty(work.minutes)
    for minute, draws_s in enumerate(work.draws_s):
        forecasts[minute] = evidence.forecast
        hits = []
        for place, pool in enumerate(pools):
            warmed: list[tuple[float, float]] = []
            hits.append(pool.minute(minute, draws_s or (), warmed))
            if place == 0:  # the nodes of one pool teach the lead time
                for one in warmed:
                    heapq.heappush(coming, one)
        while coming and coming[0][0] <= 60.0 * (minute + 1):
            learnt = learnt.seen(heapq.heappop(coming)[1])
        in_use = None if work.in_use is None or draws_s is None else float(work.in_use[minute])
        evidence.see(draws_s, float(work.freed[minute]), in_use, learnt)
        if draws_s is None:
            continue
        for pool, hit in zip(pools, hits, strict=True):
            pool.contest.see(draws_s, hit, evidence, learnt, pool.objective)
            pool.contest.turn(evidence, learnt, pool.objective)
            pool.decide(evidence)
    return [pool.outcome(work.minutes, evidence) for pool in pools], forecasts, evidence.window_min
