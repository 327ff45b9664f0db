"""Reports from the field about the size of a pool, played minute by minute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bench.warmpool.demand import Demand
from bench.warmpool.rivals import buffers
from tests.support.sizing import DAY_MIN, Sized
from warmpool.size.decide import Reason


def test_silent_scrape_is_not_idle() -> None:
    """llm-d/llm-d-autoscaling#360: what could not be read became zero, and a saturated pool looked empty."""
    gap, zero = Sized(), Sized()
    targets = [sized.live([4, 5, 4, 5, 4])[-1] for sized in (gap, zero)]
    assert targets[0] == targets[1]
    over_gap = gap.live([None] * 60)
    assert min(over_gap) == max(over_gap) == targets[0]
    assert gap.now().reason == Reason.NO_DATA
    assert zero.live([0] * 60)[-1] < targets[1]
    seen = [sized.rule.evidence.features.day_mean for sized in (gap, zero)]
    assert round(seen[0], 3) == 4.4
    assert round(seen[1], 3) == 0.338


def test_buffer_must_not_feed_itself() -> None:
    """kubernetes-sigs/cluster-proportional-autoscaler#142: idle nodes were counted in the base of the idle nodes.

    Demand is the base of our size: nodes of the pool that nobody drew are no input at all. A peak of ten times the
    nodes leaves nothing that keeps itself.
    """
    sized = Sized(max_nodes=100)
    sized.live([0] * (2 * DAY_MIN), serving=5)
    steady = sized.live([0] * 60, serving=5)[-1]
    at_peak = sized.live([45, *([0] * 59)], serving=50)
    after = sized.live([0] * 120, serving=5)
    assert max(at_peak) > steady
    assert all(later <= earlier for earlier, later in pairwise(after))
    assert after[-1] <= 1


def test_the_share_of_nodes_in_use_that_rivals_keep_has_demand_as_its_base() -> None:
    """The same case for the buffers of the bench: 20 % of 5, 50 and 5 nodes in use are 1, 10 and 1."""
    in_use = np.repeat([5.0, 50.0, 5.0], 60)
    work = Demand(draws_s=((),) * 180, freed=np.zeros(180), in_use=in_use)
    targets = buffers(work, (0.2,))[:, 0]
    assert [targets[minute] for minute in (59, 119, 179)] == [1.0, 10.0, 1.0]
