"""Closed forms against known numbers: lead 511 s (kaito-project/kaito#2325), Poisson draws, 4 dollars an hour."""

from __future__ import annotations

import numpy as np
import pytest

from warmpool.size.closed import cost_size, loss, mean_idle, poisson_size

LEAD_H = 511 / 3600


@pytest.mark.parametrize(
    ("per_hour", "sizes", "idle", "by_cost"),
    [
        (1.2, (2, 2, 3, 3), 2.83, (0, 0, 1)),
        (6, (3, 4, 5, 6), 4.15, (0, 2, 3)),
        (30, (8, 9, 11, 13), 6.74, (5, 8, 10)),
        (120, (23, 25, 28, 32), 10.98, (21, 25, 29)),
    ],
)
def test_sizes_for_hit_rates_and_for_costs(per_hour, sizes, idle, by_cost):
    mean = per_hour * LEAD_H
    assert tuple(poisson_size(mean, goal) for goal in (0.9, 0.95, 0.99, 0.999)) == sizes
    assert mean_idle(mean, sizes[2]) == pytest.approx(idle, abs=0.005)
    assert tuple(cost_size(mean, price * per_hour, 4.0) for price in (0.5, 2.0, 10.0)) == by_cost


def test_one_pool_needs_less_than_five():
    assert poisson_size(30 * LEAD_H, 0.99) == 11
    assert 5 * poisson_size(6 * LEAD_H, 0.99) == 25


def test_erlangs_loss_at_known_points():
    # B(1, a) = a / (1 + a); B(2, 1) = 1/5; B(10, 5) = 0.018385 (tables of Erlang's B).
    found = loss(np.array([1.0, 5.0]), 10)
    assert found[0, 1] == pytest.approx(0.5)
    assert found[0, 2] == pytest.approx(0.2)
    assert found[1, 10] == pytest.approx(0.018385, abs=1e-6)


def test_no_demand_wants_the_least():
    assert poisson_size(0.0, 0.99) == 1
    assert cost_size(0.0, 0.0, 4.0) == 0
    assert mean_idle(0.0, 3) == pytest.approx(3.0)
