"""Who acts: the Poisson law on calm demand, never where it loses the goal."""

from __future__ import annotations

import numpy as np
import pytest

from warmpool.size.contest import Candidate, Contest, Rule
from warmpool.size.evidence import Evidence
from warmpool.size.leads import LeadTimes
from warmpool.size.pool import Pool
from warmpool.values import HitRate

DAYS = 9


def play(bunch: int, per_hour: float, goal: float) -> tuple[Contest, Evidence]:
    """Play days of draws that come in bunches of one size."""
    random = np.random.default_rng(3)
    leads = LeadTimes()
    evidence, contest, objective = Evidence(80, 0, leads), Contest(0.0), HitRate(goal_ratio=goal)
    pool = Pool(2, 0.0)
    for minute in range(DAYS * 1440):
        pool.advance(60.0 * minute)
        for _ in range(pool.missing(contest.actor.target)):
            pool.order(60.0 * minute + 511.0)
        draws_s = [60.0 * minute + 15.0] * int(random.poisson(per_hour / 60.0 / bunch) * bunch)
        hits = [pool.draw(at_s, 511.0) for at_s in draws_s]
        evidence.see(draws_s, 0.0, None, leads)
        contest.see(draws_s, hits, evidence, leads, objective)
        contest.turn(evidence, leads, objective)
    return contest, evidence


def test_a_law_that_loses_the_goal_never_acts():
    contest, _ = play(bunch=12, per_hour=12.0, goal=0.95)
    by_rule = {candidate.rule: candidate for candidate in contest.candidates}
    assert contest.actor.rule is Rule.SHADOWS
    shadows, poisson = by_rule[Rule.SHADOWS].pool, by_rule[Rule.POISSON].pool
    assert shadows.missed < poisson.missed


def test_on_calm_demand_both_keep_the_goal_at_the_same_price():
    contest, evidence = play(bunch=1, per_hour=30.0, goal=0.95)
    for candidate in contest.candidates:
        assert candidate.pool.missed / candidate.pool.draws == pytest.approx(0.05, abs=0.02)
    idle_s = [candidate.pool.idle_s for candidate in contest.candidates]
    assert idle_s[0] == pytest.approx(idle_s[1], rel=0.15)
    assert evidence.forecast == pytest.approx(5.0, rel=0.3)


def test_a_flash_crowd_has_a_capped_vote():
    leads = LeadTimes()
    evidence = Evidence(80, 0, leads)
    random = np.random.default_rng(5)
    for minute in range(2 * 1440):
        evidence.see([60.0 * minute] * int(random.poisson(0.1)), 0.0, None, leads)
    calm = evidence.burst
    evidence.see([60.0 * evidence.minute] * 60, 0.0, None, leads)
    assert evidence.vote == pytest.approx(6 * calm / 60, rel=0.2)
    for _ in range(5):
        evidence.see([], 0.0, None, leads)
    assert evidence.is_off
    assert evidence.recent_largest >= 60


def test_a_window_votes_for_the_moment_before_it():
    leads = LeadTimes()
    evidence = Evidence(80, 0, leads)
    random = np.random.default_rng(5)
    for minute in range(2 * 1440):
        evidence.see([60.0 * minute] * int(random.poisson(0.1)), 0.0, None, leads)
    before, calm = evidence.draws.copy(), max(evidence._bins)
    evidence.see([60.0 * evidence.minute] * 60, 0.0, None, leads)
    assert evidence.bin > calm
    for _ in range(evidence.window_min - 1):
        evidence.see([], 0.0, None, leads)
    gained = evidence.draws - before
    assert gained.sum() > 60
    assert gained[calm + 1 :].sum() == 0.0  # the crowd came when the forecast was low, whatever it is by now


def test_a_target_falls_only_when_nothing_larger_was_wanted_for_a_lead_time():
    evidence = Evidence(80, 0, LeadTimes())
    for minute in range(1440):
        evidence.see([60.0 * minute] if minute % 10 == 0 else [], 0.0, None, LeadTimes())
    candidate = Candidate(Rule.SHADOWS, 0.0)
    candidate.sizes = np.arange(44, dtype=np.uint16)
    evidence.bin = 30
    assert candidate.size(evidence) == 30
    evidence.bin = 7
    held = [candidate.size(evidence) for _ in range(evidence.window_min + 1)]
    assert held == [30] * evidence.window_min + [7]
    evidence.bin = 9
    assert candidate.size(evidence) == 9


def test_a_window_with_a_gap_does_not_vote():
    leads = LeadTimes()
    evidence = Evidence(20, 0, leads)
    for minute in range(30):
        evidence.see([60.0 * minute], 0.0, None, leads)
    windows = evidence.windows.sum()
    evidence.see(None, 0.0, None, leads)
    for _ in range(evidence.window_min - 1):
        evidence.see([], 0.0, None, leads)
    assert evidence.windows.sum() == windows
    evidence.see([], 0.0, None, leads)
    assert evidence.windows.sum() == windows + 1
