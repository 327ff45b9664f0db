"""One price for all levels: what a rung means, and what a chord costs."""

from __future__ import annotations

import numpy as np
import pytest

from warmpool.size.evidence import BINS, LEAST, LEVELS, bin_of
from warmpool.size.ladder import PRICES, ladder, rung_of

SIZES = np.arange(6)


def a_ladder(draws: float = 100.0):
    """Two levels: at the first each node saves half of 16 misses, at the second half of 64; a node idles one hour."""
    idle_h = np.stack([SIZES * 1.0, SIZES * 1.0])
    missed = np.stack([16.0 * 0.5**SIZES, 64.0 * 0.5**SIZES])
    return ladder(idle_h, missed, idle_h, missed, draws)


def test_a_higher_price_never_wants_fewer_nodes():
    found = a_ladder()
    assert (np.diff(found.sizes.astype(int), axis=0) >= 0).all()
    assert (np.diff(found.missed) <= 0).all()


def test_the_price_goes_where_a_node_saves_most():
    found = a_ladder()
    sizes = found.sizes[rung_of(0.1)]
    assert sizes.tolist() == [0, 2]  # 8, 4, ... and 32, 16, 8: a tenth of an hour a miss buys from 10 misses on


@pytest.mark.parametrize(("goal", "most"), [(0.5, 50.0), (0.9, 10.0), (0.95, 5.0)])
def test_the_lowest_rung_that_keeps_the_goal(goal, most):
    found = a_ladder()
    rung = found.rung_for_goal(goal)
    assert found.missed[rung] <= most
    assert rung == 0 or found.missed[rung - 1] > most


def test_a_goal_out_of_reach_takes_the_highest_rung():
    assert a_ladder(draws=1.0).rung_for_goal(0.99) == len(PRICES) - 1


def test_the_chord_is_hours_over_misses_between_two_rungs():
    found = a_ladder()
    high, low = found.rung_for_goal(0.95), found.rung_for_goal(0.85)
    wanted = (found.idle_h[high] - found.idle_h[low]) / (found.missed[low] - found.missed[high])
    assert found.chord_h(0.95) == pytest.approx(wanted)


def test_prices_beyond_the_ladder_are_its_ends():
    assert rung_of(0.0) == 0
    assert rung_of(1e30) == len(PRICES) - 1
    assert rung_of(float(PRICES[17])) == 17


def test_levels_and_their_bins_are_the_same():
    assert [bin_of(float(level)) for level in LEVELS] == list(range(BINS))
    assert bin_of(0.0) == bin_of(LEAST) == 0
    assert bin_of(1e9) == BINS - 1
