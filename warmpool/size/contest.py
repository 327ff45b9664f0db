"""Two rules size the same pool; the one with the better record acts.

Each keeps an imaginary pool that follows its targets through the real draws, a price that its ladder says meets the
goal, and a debt that corrects it by what really happened::

    debt += w (missed - (1 - goal)) at each draw;  k = 0.1 / max(1, q / 2)
    price = ladder's x exp(clip(k debt, -2.5, 4))

Both thereby end at the same hit rate, so that they are compared by idle time, what is left of their debts priced in.
The shadows win where demand has a shape and bursts, by a third; the Poisson law where it has neither or history is
thin, by up to a half. Measured: bench/warmpool.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from warmpool.size.evidence import Evidence, bin_of
from warmpool.size.ladder import PRICES, STEP, Ladder, ladder, rung_of
from warmpool.size.leads import LeadTimes
from warmpool.size.pool import Pool
from warmpool.values import Costs, HitRate

Floats = NDArray[np.float64]

_GAIN: Final = 0.1
_DEBT_LOW, _DEBT_HIGH = -2.5, 4.0
_FIRST_DEBT: Final = 0.5  # over k: a little too many rather than too few while little is known
_TABLE_MIN: Final = 10
_HOUR_MIN: Final = 60
_DAY_MIN: Final = 1440
_FIRST_SIZE: Final = 2
# The record: six-hour blocks, faded over ten days; a change needs half a standard error.
_BLOCK_MIN: Final = 360
_FADE: Final = 0.5 ** (_BLOCK_MIN / (10 * _DAY_MIN))
_STANDARD_ERRORS: Final = 0.5
_NEIGHBOURS: Final = 2.0  # blocks err alike: their variance counts double
# A rule has lost the goal where it misses a fifth more than allowed, surely more than the other.
_LOST: Final = 1.2
_SURELY: Final = 1.5
_LEAST_BLOCKS: Final = 8.0


class Rule(StrEnum):
    """Who sizes."""

    SHADOWS = "Shadows"  # what pools of every size would have done at such a forecast
    POISSON = "Poisson"  # a Poisson law about the forecast


class Candidate:
    """One rule with its price, its debt and its imaginary pool."""

    __slots__ = (
        "_hold",
        "_is_begun",
        "debt",
        "idle_h",
        "ladder",
        "pool",
        "price_rung",
        "rule",
        "sizes",
        "target",
        "voted",
    )

    def __init__(self, rule: Rule, now_s: float) -> None:
        self.rule = rule
        self.debt = 0.0
        self.target = _FIRST_SIZE
        self.pool = Pool(_FIRST_SIZE, now_s)
        self.ladder: Ladder | None = None
        self.price_rung = 0
        self.sizes: NDArray[np.uint16] | None = None
        self.idle_h = 0.0
        self.voted = 0.0
        self._hold: deque[int] = deque()
        self._is_begun = False

    def climb(self, evidence: Evidence) -> None:
        """Renew the ladder."""
        tables = evidence.tables()
        if tables is None:
            return
        idle_h, missed = tables[:2] if self.rule is Rule.SHADOWS else evidence.poisson
        self.ladder = ladder(idle_h, missed, evidence.idle_h, evidence.missed, float(evidence.draws.sum()))

    def price(self, evidence: Evidence, objective: HitRate | Costs) -> None:
        """Renew the price and the size of every level."""
        if self.ladder is None:
            return
        if isinstance(objective, Costs):
            self.price_rung = rung_of(objective.per_miss / objective.per_idle_hour)
        else:
            gain = gain_of(evidence)
            if not self._is_begun:
                self._is_begun = True
                self.debt = _FIRST_DEBT / gain
            exponent = min(_DEBT_HIGH, max(_DEBT_LOW, gain * self.debt))
            rung = self.ladder.rung_for_goal(objective.goal_ratio) + round(exponent / STEP)
            self.price_rung = min(len(PRICES) - 1, max(0, rung))
        self.sizes = self.ladder.sizes[self.price_rung]

    def size(self, evidence: Evidence) -> int:
        """Return the target: the largest size wanted within the last lead time, for what goes must be ordered anew."""
        if evidence.is_first_day or self.sizes is None:
            return max(_FIRST_SIZE, math.ceil(evidence.largest) + 1)
        self._hold.append(min(int(self.sizes[evidence.bin]), evidence.supported))
        while len(self._hold) > evidence.window_min + 1:
            self._hold.popleft()
        return max(self._hold)

    def wanted(self, forecast: float) -> int | None:
        """Return the size for a forecast, at the present price; None = nothing is learnt."""
        return None if self.sizes is None else int(self.sizes[bin_of(forecast)])

    def owe(self, evidence: Evidence, objective: HitRate | Costs, *, is_hit: bool) -> None:
        """Book one draw; where misses have a price there is no goal, and the debt is what was missed lately.

        What goes beyond the bounds of the price is forgiven: a pool that a person holds too large for a month must not
        owe that month's misses.
        """
        missed = 0.0 if is_hit else 1.0
        if isinstance(objective, Costs):
            self.debt += missed
        elif self._is_begun:
            gain = gain_of(evidence)
            debt = self.debt + evidence.vote * (missed - (1.0 - objective.goal_ratio))
            self.debt = min(_DEBT_HIGH / gain, max(_DEBT_LOW / gain, debt))

    def numbers(self) -> Floats:
        """Return what is to be stored."""
        return np.array([self.debt, float(self._is_begun), float(self.target)])

    def restore(self, numbers: Floats, now_s: float) -> None:
        """Take what was stored; the imaginary pool begins full."""
        self.debt, self._is_begun, self.target = float(numbers[0]), bool(numbers[1]), int(numbers[2])
        self.pool = Pool(self.target, now_s)


class Contest:
    """Both candidates and their record; mutable, fed once a minute after the evidence.

    Attributes:
        candidates: The shadows first: they act until another is better.
        acting: Place of the one that acts.
        changes: How often that changed.
    """

    __slots__ = (
        "_blocks",
        "_draws",
        "_missed",
        "_more",
        "_more_squares",
        "_phase",
        "_price_log",
        "_saved",
        "_squares",
        "_voted",
        "acting",
        "candidates",
        "changes",
    )

    def __init__(self, now_s: float, phase: int = 0) -> None:
        """Begin without a record.

        Args:
            now_s: Seconds since the epoch.
            phase: Minute at which hourly work is done, so that not all pools do theirs at once.
        """
        self._phase = phase
        self.candidates = tuple(Candidate(rule, now_s) for rule in Rule)
        self.acting = 0
        self.changes = 0
        count = len(self.candidates)
        self._blocks = 0.0
        self._price_log = 0.0
        self._saved: Floats = np.zeros((count, count))
        self._squares: Floats = np.zeros((count, count))
        self._more: Floats = np.zeros((count, count))
        self._more_squares: Floats = np.zeros((count, count))
        self._missed: Floats = np.zeros(count)
        self._draws = 0.0
        self._voted = 0.0

    @property
    def actor(self) -> Candidate:
        """Return the candidate that acts."""
        return self.candidates[self.acting]

    def see(
        self,
        draws_s: Sequence[float],
        hits: Sequence[bool] | None,
        evidence: Evidence,
        leads: LeadTimes,
        objective: HitRate | Costs,
    ) -> None:
        """Add the draws of a minute.

        Args:
            draws_s: When each was.
            hits: Whether the real pool had a node: the debt of the rule that acts. None = no real pool follows it.
            evidence: With this minute.
            leads: As far as they are known.
            objective: What for.
        """
        self._voted += evidence.vote * len(draws_s)
        for place, candidate in enumerate(self.candidates):
            is_real = hits is not None and place == self.acting
            for number, at_s in enumerate(draws_s):
                imagined = candidate.pool.draw(at_s, evidence.sample(leads))
                candidate.voted += 0.0 if imagined else evidence.vote
                candidate.owe(evidence, objective, is_hit=hits[number] if is_real and hits else imagined)

    def turn(self, evidence: Evidence, leads: LeadTimes, objective: HitRate | Costs) -> None:
        """Renew targets at the end of a minute whose draws are known."""
        minute = evidence.minute
        now_s = minute * 60.0
        for place, candidate in enumerate(self.candidates):
            turn = minute + self._phase + place * _HOUR_MIN // len(self.candidates)
            if turn % _HOUR_MIN == 0 or candidate.ladder is None:
                candidate.climb(evidence)
            if turn % _TABLE_MIN == 0 or candidate.sizes is None:
                candidate.price(evidence, objective)
            candidate.target = candidate.size(evidence)
            candidate.pool.advance(now_s)
            for _ in range(candidate.pool.missing(candidate.target)):
                candidate.pool.order(now_s + evidence.sample(leads))
        if minute % _BLOCK_MIN == 0 and not evidence.is_first_day:
            self._compare(evidence, objective)

    def _compare(self, evidence: Evidence, objective: HitRate | Costs) -> None:
        idle_h = np.array([candidate.pool.idle_s / 3600.0 for candidate in self.candidates])
        spent = idle_h - np.array([candidate.idle_h for candidate in self.candidates])
        for candidate, total in zip(self.candidates, idle_h, strict=True):
            candidate.idle_h = float(total)
        voted = np.array([candidate.voted for candidate in self.candidates])
        for candidate in self.candidates:
            candidate.voted = 0.0
        drawn, self._voted = self._voted, 0.0
        shadows = self.candidates[0].ladder
        if evidence.features.seen_min < _DAY_MIN + _BLOCK_MIN or shadows is None:
            return
        saved = spent[:, None] - spent[None, :]
        self._blocks = self._blocks * _FADE + 1.0
        self._saved = self._saved * _FADE + saved
        self._squares = self._squares * _FADE + saved * saved
        more = voted[:, None] - voted[None, :]
        self._more = self._more * _FADE + more
        self._more_squares = self._more_squares * _FADE + more * more
        self._missed = self._missed * _FADE + voted
        self._draws = self._draws * _FADE + drawn
        if self._blocks < _LEAST_BLOCKS:
            return
        mean = self._saved / self._blocks
        variance = np.maximum(0.0, self._squares / self._blocks - mean * mean)
        spread = np.sqrt(_NEIGHBOURS * self._blocks * variance)
        debts = np.array([candidate.debt for candidate in self.candidates])
        here = self.acting
        if isinstance(objective, Costs):
            price_h = objective.per_miss / objective.per_idle_hour
            for candidate in self.candidates:
                candidate.debt *= _FADE
        else:
            price_h = self._slow_price_h(shadows.chord_h(objective.goal_ratio))
        gain = self._saved[here] - _STANDARD_ERRORS * spread[here] + price_h * (debts[here] - debts)
        gain[here] = 0.0
        if isinstance(objective, HitRate):
            gain[self._lost(objective)] = -np.inf
        best = int(gain.argmax())
        if best != here:
            self.acting = best
            self.changes += 1

    def _lost(self, objective: HitRate) -> NDArray[np.bool_]:
        """Return which candidates' imaginary pools miss the goal, and surely by more than the other's."""
        over = self._missed > _LOST * (1.0 - objective.goal_ratio) * self._draws
        mean = self._more / self._blocks
        variance = np.maximum(0.0, self._more_squares / self._blocks - mean * mean)
        surely = self._more > _SURELY * np.sqrt(_NEIGHBOURS * self._blocks * variance)
        np.fill_diagonal(surely, val=False)
        found: NDArray[np.bool_] = over & surely.any(axis=1)
        return found

    def _slow_price_h(self, price_h: float) -> float:
        """Return the price as it was over the record: one flash crowd does not revalue every debt at once."""
        log = math.log(max(price_h, float(PRICES[0])))
        self._price_log += (log - self._price_log) * max(1.0 - _FADE, 1.0 / self._blocks)
        return math.exp(self._price_log)

    def numbers(self) -> Floats:
        """Return the record, to be stored."""
        record = (float(self.acting), float(self.changes), self._blocks, self._price_log, self._draws)
        sums = (self._missed, self._saved, self._squares, self._more, self._more_squares)
        return np.concatenate((record, *(one.ravel() for one in sums)))

    def restore(self, numbers: Floats) -> None:
        """Take the record as it was stored."""
        self.acting, self.changes = int(numbers[0]), int(numbers[1])
        self._blocks, self._price_log, self._draws = (float(one) for one in numbers[2:5])
        count = len(self.candidates)
        self._missed = numbers[5 : 5 + count].copy()
        sums = numbers[5 + count :].reshape(4, count, count).copy()
        self._saved, self._squares, self._more, self._more_squares = sums


def gain_of(evidence: Evidence) -> float:
    """Return k: what one missed draw changes in the exponent of the price."""
    return _GAIN / max(1.0, evidence.burst / 2.0)
