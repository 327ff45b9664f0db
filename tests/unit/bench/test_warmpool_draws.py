"""The proof of draws: what it tells of bills and starts, against what can be counted by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.warmpool_draws.kills import Kills
from bench.warmpool_draws.report import starts_of
from bench.warmpool_draws.story import fall
from berthmaster.local.cluster import Cluster
from tests.support.clock import ManualClock
from tests.support.warm_watch import Life


@pytest.mark.parametrize(
    ("counts", "back_s", "excess"),
    [
        ([(10.0, 15), (20.0, 11), (30.0, 10)], 20.0, 10 * 10 + 5 * 10 + 1 * 10),
        ([(10.0, 11), (20.0, 14), (30.0, 10)], 30.0, 10 * 10 + 1 * 10 + 4 * 10),  # it rose again: not for good
        ([(10.0, 12)], None, 10 * 10 + 2 * 50),
        ([], None, 10 * 60),
    ],
)
def test_a_bill_is_back_once_it_stays_within_a_tenth_of_the_need(counts, back_s, excess):
    assert fall(0.0, 20, counts, 10, 60.0) == (back_s, excess)


def test_a_bill_that_never_rose_is_back_at_once():
    assert fall(5.0, 10, [], 10, 60.0) == (0.0, 0.0)


def test_starts_are_told_apart_by_what_their_draw_found_and_by_kills(tmp_path: Path):
    kills = Kills(Cluster("none", environ={"XDG_STATE_HOME": str(tmp_path)}), ManualClock(), random.Random(1))
    kills.done += [(100.0, "second planner"), (200.0, "extender")]

    def life(created_s: float, took_s: float | None, outcome: str) -> Life:
        bound_s = None if took_s is None else created_s + took_s
        return Life(name="p", namespace="n", created_s=created_s, bound_s=bound_s, outcome=outcome)

    lives = [life(10.0, 1.0, "hit"), life(115.0, 9.0, "hit"), life(210.0, 2.0, "hit"), life(20.0, None, "miss")]
    told = starts_of([*lives, life(99.0, 2.0, "miss"), life(5.0, 1.0, "")], "n", kills, time_scale=60.0)
    assert (told["hit"]["draws"], told["hit"]["created_to_bound_calm_s"]["draws"]) == (3, 2)
    assert told["hit"]["created_to_bound_s"]["most"] == 9.0
    assert told["hit"]["created_to_bound_calm_s"]["most"] == 2.0
    assert told["miss"]["created_to_bound_calm_s"] == {"draws": 0}
    assert (told["needed_no_draw"], told["gone_before_bound"], told["of_these_drew"]) == (1, 1, 1)
    assert told["hit_ratio"] == 0.75
