"""Sizes under Poisson draws in closed form: before anything is learnt, and to check what is learnt.

Under one-for-one refill the nodes on their way are Poisson with mean a = rate x E[lead] whatever the lead's law is
(Palm's theorem). A draw that waits for the pool is a hit with P(N <= S - 1); one that goes elsewhere when the pool is
empty with 1 - B(S, a), Erlang's loss formula.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def poisson_size(mean: float, goal_ratio: float) -> int:
    """Return the smallest S with P(N <= S - 1) >= goal, N ~ Poisson(mean)."""
    size, probability = 1, math.exp(-mean)
    below = probability
    while below < goal_ratio and size < 10_000:
        probability *= mean / size
        below += probability
        size += 1
    return size


def mean_idle(mean: float, size: int) -> float:
    """Return E[(S - N)+]: nodes that are warm and unclaimed on average."""
    probability, idle = math.exp(-mean), 0.0
    for taken in range(size):
        idle += (size - taken) * probability
        probability *= mean / (taken + 1)
    return idle


def cost_size(mean: float, miss_per_hour: float, idle_per_hour: float) -> int:
    """Return the size at which one node more costs more than it saves.

    S rises while h F(S) < p rate f(S): h the price of an idle hour, F the chance that the next node idles.

    Args:
        mean: a, nodes on their way on average.
        miss_per_hour: p x rate: what missing every draw would cost per hour.
        idle_per_hour: h.
    """
    size, probability = 0, math.exp(-mean)
    below = probability
    while idle_per_hour * below < miss_per_hour * probability and size < 10_000:
        size += 1
        probability *= mean / size
        below += probability
    return size


def loss(means: Floats, most: int) -> Floats:
    """Return Erlang's B(S, a).

    B(0) = 1;  B(S) = a B(S - 1) / (S + a B(S - 1))

    Args:
        means: a, shape (n,).
        most: Largest S.

    Returns:
        Shape (n, most + 1).
    """
    found = np.ones((len(means), most + 1))
    for size in range(1, most + 1):
        carried = means * found[:, size - 1]
        found[:, size] = carried / (size + carried)
    return found
