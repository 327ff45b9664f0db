"""A pool's learnt size with made-up minutes: spec, rule and time in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warmpool.size.pool import Pool
from warmpool.size.rule import Learnt
from warmpool.values import HitRate, Mode, PoolSpec, Shape

MINUTE = 28_000_000
DAY_MIN = 1440
LEAD_S = 511.0


def a_spec(**words: Any) -> PoolSpec:
    """Build a spec with a goal of 95 % and room for 60 nodes."""
    usual = {
        "name": "g1",
        "shape": Shape(),
        "max_nodes": 60,
        "mode": Mode.ACT,
        "objective": HitRate(goal_ratio=0.95),
    }
    return PoolSpec(**usual | words)


class Sized:
    """A rule that is fed minute by minute, and a pool that follows it."""

    def __init__(self, rule: Learnt | None = None, minute: int = MINUTE, **words: Any) -> None:
        self.rule = rule or Learnt(a_spec(**words))
        self.minute = minute
        self.rule.pass_to(60.0 * minute, 10, is_known=True)
        self.pool = Pool(self.now().target, 60.0 * minute)

    def live(self, counts: Sequence[int | None], serving: int | None = 10) -> list[int]:
        """Draw so many in each minute, None = not known, and return the target after each."""
        targets = []
        for count in counts:
            now_s = 60.0 * self.minute
            self.pool.advance(now_s)
            for _ in range(self.pool.missing(self.now().target)):
                self.pool.order(now_s + LEAD_S)
            if count:
                hits = sum(self.pool.draw(now_s + 30.0, LEAD_S) for _ in range(count))
                self.rule.drew(now_s + 30.0, count, count - hits)
            for part in (15.0, 30.0, 45.0, 60.0):
                self.rule.pass_to(now_s + part, serving, is_known=count is not None)
            self.minute += 1
            targets.append(self.now().target)
        return targets

    def now(self, coming: int = 0):
        """Return the size now."""
        return self.rule.size(60.0 * self.minute, coming)

    def quiet_days(self, days: float, per_hour: float = 6.0, seed: int = 1) -> None:
        """Live through steady demand."""
        random = np.random.default_rng(seed)
        self.live([int(one) for one in random.poisson(per_hour / 60.0, round(days * DAY_MIN))])
