"""Demands and shapes in, proposed pools out, beside today's by the same model."""

from __future__ import annotations

from collections.abc import Sequence

from warmpool.advice.groups import candidates, today
from warmpool.advice.partition import choose
from warmpool.advice.values import Candidate, Demand, NodeShape, Proposal

MOST_IMAGES = 16  # of a WarmPool
_ENOUGH_HOURS = 48
_BUDGET_S = 10.0


def propose(
    demands: Sequence[Demand],
    shapes: Sequence[NodeShape],
    *,
    most_pools: int | None = None,
    most_images: int = MOST_IMAGES,
    pool_cost: float = 0.0,
) -> Proposal:
    """Return the pools that serve all demands at the least idle cost.

    Args:
        demands: By unlike names, each on one of the shapes.
        shapes: That can be bought, by unlike names.
        most_pools: At most this many; None = as many as there are demands.
        most_images: On one node.
        pool_cost: What one more pool must save per hour to be worth having.
    """
    before = today(demands, {shape.name: shape for shape in shapes})
    possible = candidates(demands, shapes, most_images)
    names = [demand.name for demand in demands]
    most = len(demands) if most_pools is None else most_pools
    numbers, is_optimal = choose(possible, names, most_pools=most, pool_cost=pool_cost, budget_s=_BUDGET_S)
    notes = list(_notes(demands))
    pools = tuple(possible[number] for number in numbers)
    if not pools and demands:
        notes.append(f"no {most} pools can serve all of them: today's stand")
        pools = before
    return Proposal(
        today=before,
        pools=tuple(sorted(pools, key=_order)),
        is_optimal=is_optimal,
        candidates=len(possible),
        notes=tuple(notes),
    )


def _notes(demands: Sequence[Demand]) -> list[str]:
    return [
        f"{demand.name}: only {demand.watched_hours} hours were watched, {_ENOUGH_HOURS} make a usual day known"
        for demand in demands
        if demand.watched_hours < _ENOUGH_HOURS
    ]


def _order(candidate: Candidate) -> tuple[str, tuple[str, ...]]:
    return (candidate.shape.name, candidate.serves)
