"""The learnt size of one pool, as the controller uses it: draws and time go in, a size with its reason comes out."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from fleet.errors import DecodeError
from warmpool.history import History
from warmpool.size.contest import Contest
from warmpool.size.decide import decide
from warmpool.size.evidence import Evidence
from warmpool.size.leads import LeadTimes
from warmpool.size.pool import Pool
from warmpool.size.stored import packed, unpacked
from warmpool.sizing import Size
from warmpool.values import Costs, HitRate, Mode, PoolSpec

_VERSION: Final = 1
_MOST: Final = 256
_DAY_MIN: Final = 1440
_WEEK_DAYS: Final = 7
# Without a sign of life for so long, what happened between is not known.
_SILENT_S: Final = 120.0
# Past a longer silence nothing of the last windows is left to go on with.
_FORGET_MIN: Final = 360
_MOST_DRAWS: Final = 2000  # of one minute: more say no more about the size


class Learnt:
    """Mutable; some 60 microseconds a minute, 200 KB at 100 nodes."""

    def __init__(self, pool: PoolSpec, stored: bytes = b"") -> None:
        """Begin, with what was stored where that can be read.

        Args:
            pool: Its objective is a hit rate or costs.
            stored: From `stored()`; b"" = nothing.

        Raises:
            DecodeError: `stored` cannot be read.
        """
        self._phase = zlib.crc32(pool.name.encode()) % 60
        self.apply(pool)
        self.history = History()
        self.leads = LeadTimes()
        self.evidence: Evidence | None = None
        self.contest: Contest | None = None
        self._more: Pool | None = None  # one node more than the target, to see what it would save
        self._saved: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=_WEEK_DAYS)
        self._counted = (0, 0, 0.0, 0.0)
        self._draws: list[tuple[float, bool]] = []
        self._serving: float | None = None
        self._passed_s = -math.inf
        self._is_known = True
        self._target: int | None = None
        if stored:
            self._restore(stored)

    def apply(self, pool: PoolSpec) -> None:
        """Take a changed spec; what was learnt stays, for it does not depend on the goal."""
        if not isinstance(pool.objective, HitRate | Costs):
            raise TypeError(f"a size that is fixed needs no lesson: {pool.objective}")
        self._objective: HitRate | Costs = pool.objective
        self._is_followed = pool.mode is Mode.ACT  # else what hits and misses says nothing of the target
        self._least, self._limit = pool.min_nodes, pool.max_nodes
        self._most = max(8, min(_MOST, pool.max_nodes))

    def drew(self, wall_s: float, nodes: int, misses: int) -> None:
        """Take draws, in nodes, and how many of them found none."""
        room = _MOST_DRAWS - len(self._draws)
        for place in range(min(max(0, nodes), room)):
            self._draws.append((wall_s, place < nodes - misses))

    def led(self, lead_s: float) -> None:
        """Take a lead time that was completed, order to warm."""
        self.leads = self.leads.seen(lead_s)

    def pass_to(self, wall_s: float, serving: int | None, *, is_known: bool) -> None:
        """Let time pass; where draws could not be seen (`is_known` False) the time is a gap, not a quiet one."""
        if not math.isfinite(wall_s) or wall_s < self._passed_s:
            return
        evidence = self._begun(wall_s)
        is_silent = wall_s - self._passed_s > _SILENT_S
        self._is_known = self._is_known and is_known and not is_silent
        self._passed_s = wall_s
        minute = math.floor(wall_s / 60.0)
        if minute - evidence.minute > _FORGET_MIN:
            evidence.leap(minute - 1)
        while evidence.minute < minute:
            self._close(evidence, serving)
            # Whatever came while nobody looked is part of the silence.
            self._is_known = is_known and not (is_silent and evidence.minute < minute)

    def size(self, wall_s: float, coming_draws: int) -> Size:
        """Return the size; `coming_draws` nodes will be drawn within the horizon, as autoscalers say."""
        evidence = self._begun(wall_s)
        contest = self.contest
        assert contest is not None
        held = self._target if evidence.is_gap else None
        found = decide(
            evidence,
            contest.actor,
            self._objective,
            least=self._least,
            most=self._limit,
            coming=coming_draws,
            held=held,
            saves=(float(sum(one for one, _ in self._saved)), sum(one for _, one in self._saved)),
        )
        if not evidence.is_gap:
            self._target = found.target
        return found

    def recall(self, minute: int, draws: Sequence[int | None]) -> None:
        """Live through a past that was told, before anything was seen; some 60 microseconds a minute.

        Args:
            minute: The first of them, since the epoch.
            draws: Nodes drawn in each minute; None = not known. Whether they found one is not known, and not asked.

        Raises:
            ValueError: Something was seen already.
        """
        if self.evidence is not None:
            raise ValueError("a pool that has seen draws cannot be told an earlier past")
        is_followed, self._is_followed = self._is_followed, False
        self.pass_to(60.0 * minute, None, is_known=True)
        for place, count in enumerate(draws):
            start_s = 60.0 * (minute + place)
            if count:
                self.drew(start_s + 30.0, count, 0)
            self.pass_to(start_s + 60.0, None, is_known=count is not None)
        self._is_followed = is_followed

    def stored(self) -> bytes:
        """Return what is to be remembered: history and lessons, at most 190 KB."""
        history = self.history.to_bytes()
        lessons = b"" if self.evidence is None or self.contest is None else self._lessons(self.evidence, self.contest)
        return len(history).to_bytes(4, "little") + history + lessons

    def _begun(self, wall_s: float) -> Evidence:
        if self.evidence is None or self.evidence.most != self._most:
            minute = math.floor(wall_s / 60.0) if self.evidence is None else self.evidence.minute
            fresh = Evidence(self._most, minute, self.leads)
            if self.evidence is not None:
                fresh.adopt(self.evidence)
            self.evidence = fresh
            if self.contest is None:
                self.contest = Contest(60.0 * minute, self._phase)
                self._more = Pool(self.contest.actor.target + 1, 60.0 * minute)
                self._passed_s = wall_s
        return self.evidence

    def _close(self, evidence: Evidence, serving: int | None) -> None:
        """End a minute."""
        contest, more = self.contest, self._more
        assert contest is not None
        assert more is not None
        minute = evidence.minute
        end_s = 60.0 * (minute + 1)
        mine = [one for one in self._draws if one[0] < end_s]
        self._draws = self._draws[len(mine) :]
        draws_s = [min(max(at_s, 60.0 * minute), end_s) for at_s, _ in mine]
        now = None if serving is None else float(serving)
        freed = 0.0 if now is None or self._serving is None else max(0.0, self._serving + len(mine) - now)
        self._serving = now
        self.history.see(minute, len(mine) if self._is_known else None, now)
        if not self._is_known:
            evidence.see(None, 0.0, None, self.leads)
            return
        evidence.see(draws_s, freed, now, self.leads)
        hits = [is_hit for _, is_hit in mine] if self._is_followed else None
        contest.see(draws_s, hits, evidence, self.leads, self._objective)
        contest.turn(evidence, self.leads, self._objective)
        for at_s in draws_s:
            more.draw(at_s, evidence.sample(self.leads))
        more.advance(end_s)
        for _ in range(more.missing(contest.actor.target + 1)):
            more.order(end_s + evidence.sample(self.leads))
        if evidence.minute % _DAY_MIN == 0:
            self._saved.append((0, 0.0))
        self._book(contest, more)

    def _book(self, contest: Contest, more: Pool) -> None:
        """Add to today's account what one node more saved, and what it idled."""
        pool = contest.actor.pool
        now = (pool.missed, more.missed, pool.idle_s, more.idle_s)
        before = self._counted
        self._counted = now
        if now[0] < before[0] or now[2] < before[2]:
            return  # another rule acts: its pool has another past
        saved, idle_h = self._saved[-1]
        self._saved[-1] = (
            saved + (now[0] - before[0]) - (now[1] - before[1]),
            idle_h + ((now[3] - before[3]) - (now[2] - before[2])) / 3600.0,
        )

    def _lessons(self, evidence: Evidence, contest: Contest) -> bytes:
        exact = evidence.numbers() | {
            "contest": contest.numbers(),
            "candidates": np.stack([candidate.numbers() for candidate in contest.candidates]),
            "leads": np.array(self.leads.seen_s),
            "saved": np.array(list(self._saved), np.float64),
            "target": np.array([-1.0 if self._target is None else float(self._target)]),
        }
        return packed(evidence.arrays(), exact, _VERSION)

    def _restore(self, stored: bytes) -> None:
        size = int.from_bytes(stored[:4], "little")
        self.history = History.from_bytes(stored[4 : 4 + size])
        lessons = stored[4 + size :]
        if not lessons:
            return
        found = unpacked(lessons, _VERSION)
        try:
            self.leads = LeadTimes(seen_s=tuple(float(one) for one in found["leads"] if one > 0))
            most = len(found["missed"][0]) - 1
            evidence = Evidence(most, int(found["state"][0]), self.leads)
            evidence.restore(found)
            now_s = 60.0 * evidence.minute
            contest = Contest(now_s, self._phase)
            contest.restore(found["contest"])
            for candidate, numbers in zip(contest.candidates, found["candidates"], strict=True):
                candidate.restore(numbers, now_s)
                candidate.climb(evidence)
                candidate.price(evidence, self._objective)
            self._saved = deque(((int(one), float(two)) for one, two in found["saved"]), maxlen=_WEEK_DAYS)
            self._target = None if found["target"][0] < 0 else int(found["target"][0])
        except (KeyError, IndexError, ValueError) as error:
            raise DecodeError(f"what a pool learnt cannot be read: {error}") from error
        self.evidence, self.contest = evidence, contest
        self._more = Pool(contest.actor.target + 1, now_s)
        self._passed_s = now_s
