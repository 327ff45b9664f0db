"""Many pools with given targets on the same draws at once: one column a pool, the same lead times for all."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.warmpool.demand import Demand
from bench.warmpool.leads import Leads
from bench.warmpool.ours import SCORED_FROM_MIN

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What each column came to, days 1 and 2 not counted.

    Attributes:
        hit_ratio: Shape (columns,).
        idle_h: Likewise.
        hourly_missed: Missed per hour from the beginning, shape (hours, columns).
        hourly_idle_h: Likewise.
        hourly_draws: Shape (hours,).
    """

    hit_ratio: Floats
    idle_h: Floats
    hourly_missed: Floats
    hourly_idle_h: Floats
    hourly_draws: Floats


class _Pools:
    def __init__(self, target: Floats, leads: Leads) -> None:
        self.warm = target.copy()
        self.position = target.copy()
        self.idle_s = np.zeros(len(target))
        self.missed = np.zeros(len(target))
        self.draws = 0
        self._leads = leads
        self._coming: dict[float, Floats] = {}
        self._due: list[float] = []
        self._now_s = 0.0

    def advance(self, to_s: float) -> None:
        while self._due and self._due[0] <= to_s:
            due_s = heapq.heappop(self._due)
            self._pass(due_s)
            self.warm += self._coming.pop(due_s)
        self._pass(to_s)

    def _pass(self, to_s: float) -> None:
        if to_s > self._now_s:
            self.idle_s += self.warm * (to_s - self._now_s)
            self._now_s = to_s

    def order(self, now_s: float, nodes: Floats) -> None:
        due_s = now_s + self._leads.next()
        if due_s in self._coming:
            self._coming[due_s] += nodes
        else:
            self._coming[due_s] = nodes.astype(np.float64)
            heapq.heappush(self._due, due_s)

    def aim(self, now_s: float, target: Floats) -> bool:
        """Order what is missing, give back what is warm and too much, and return whether all is as it should be."""
        self.advance(now_s)
        need = np.maximum(0.0, target - self.position)
        self.position += need
        while need.any():
            part = np.ceil(need / 4.0)
            self.order(now_s, part)
            need = need - part
        over = np.minimum(self.warm, np.maximum(0.0, self.position - target))
        self.warm -= over
        self.position -= over
        return bool((self.position == target).all())

    def draw(self, at_s: float, target: Floats) -> None:
        self.advance(at_s)
        hit = self.warm > 0
        self.warm -= hit
        self.position -= hit
        self.draws += 1
        self.missed += ~hit
        again = hit & (self.position < target)
        self.order(at_s, again)
        self.position += again


def columns(work: Demand, targets: Floats, lead_s: float, seed: int) -> Columns:
    """Return what pools with these targets would have done.

    Args:
        work: What is drawn.
        targets: Shape (columns,), or (minutes, columns) where they move.
        lead_s: Mean of the true lead times.
        seed: Of these.
    """
    fixed = targets.ndim == 1
    pools = _Pools((targets if fixed else targets[0]).astype(np.float64), Leads(lead_s, seed, 3))
    hours = -(-work.minutes // 60)
    missed, idle_s, draws = np.zeros((hours + 1, targets.shape[-1])), np.zeros((hours + 1, targets.shape[-1])), [0]
    settled, before = True, None
    for minute, draws_s in enumerate(work.draws_s):
        now_s = 60.0 * minute
        target = targets if fixed else targets[minute]
        if not fixed and (not settled or before is None or not np.array_equal(before, target)):
            settled = pools.aim(now_s, target)
            before = target
        for at_s in draws_s or ():
            pools.draw(at_s, target)
            settled = False
        if minute % 60 == 59 or minute == work.minutes - 1:
            pools.advance(now_s + 60.0)
            missed[minute // 60 + 1], idle_s[minute // 60 + 1] = pools.missed, pools.idle_s
            draws.append(pools.draws)
    hourly_missed, hourly_idle_h = np.diff(missed, axis=0), np.diff(idle_s, axis=0) / 3600.0
    hourly_draws = np.diff(np.array(draws, np.float64))
    scored = slice(SCORED_FROM_MIN // 60, None)
    return Columns(
        hit_ratio=1.0 - hourly_missed[scored].sum(axis=0) / max(1.0, hourly_draws[scored].sum()),
        idle_h=hourly_idle_h[scored].sum(axis=0),
        hourly_missed=hourly_missed,
        hourly_idle_h=hourly_idle_h,
        hourly_draws=hourly_draws,
    )


def idle_at(found: Columns, hit_ratio: float) -> float | None:
    """Return the least idle node-hours with which a column reaches a hit rate; None = none does.

    Between columns it is linear.
    """
    best, below = -1.0, 0.0
    for place in np.argsort(found.idle_h, kind="stable"):
        reached, idle_h = float(found.hit_ratio[place]), float(found.idle_h[place])
        if reached <= best:
            continue
        if reached >= hit_ratio:
            if best < 0:
                return idle_h
            return below + (idle_h - below) * (hit_ratio - best) / (reached - best)
        best, below = reached, idle_h
    return None


def hit_at(found: Columns, idle_h: float) -> float:
    """Return the best hit rate of a column that idles no more, between columns linear."""
    order = np.argsort(found.idle_h, kind="stable")
    best = np.maximum.accumulate(found.hit_ratio[order])
    return float(np.interp(idle_h, found.idle_h[order], best))
